// Package policy decides which commands a template lets callers run.
//
//	command, args ──► name ──► deny, then allow
//	      │  sh -c LINE ──(syntax tree)──► each command in the line: pipelines, substitutions, subshells, functions, traps
//	      └─ env, xargs, find -exec, timeout … ──► the command inside, recursively
//
// A policy is not a security boundary; the sandbox is. The policy checks the names of commands that are written in the request.
// It does not check what an allowed program does: awk, sed, python, tar, git and many others run commands themselves, a script in
// the workspace may have an allowed name, and a program may be copied or linked to another name. Use a policy to keep
// well-meaning agents to their task and to report mistakes early, not to contain a hostile agent.
//
// The policy refuses what it cannot determine statically: names that the shell computes, shells that read a file or standard
// input, and unknown options of programs that run other programs. A program that runs others in ways that the policy does not
// analyze is refused under every policy, unless allow names it.
package policy
