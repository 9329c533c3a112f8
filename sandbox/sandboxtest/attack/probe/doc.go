// Command probe attempts what must fail in a sandbox, in groups of system calls. It prints a line for each attempt: its name, and the
// error or "done".
//
//	probe GROUP… ──► name<TAB>errno
package main
