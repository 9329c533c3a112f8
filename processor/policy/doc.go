// Package policy says which commands a template lets callers ask for.
//
//	command, args ──► name ──► deny, then allow
//	      │  sh -c LINE ──(syntax tree)──► every command of the line: pipelines, substitutions, subshells, functions, traps
//	      └─ env, xargs, find -exec, timeout … ──► the command inside, and so on
//
// It is no boundary; the sandbox is. It sees the names of the commands that are written down. It does not see what an allowed
// program does by itself: awk, sed, python, tar, git and many others run commands of their own, a script in the workspace may have
// an allowed name, and a program may be copied or linked to another name. Use it to keep well-meaning agents to their work, and to
// be told early; not to keep a hostile one in.
//
// What it cannot see through it refuses rather than lets pass: names that are put together when the line runs, shells that read
// a file or their standard input, options it does not know of a program that runs another one. A program of the last kind that
// is not known here is refused under every policy, until allow names it.
package policy
