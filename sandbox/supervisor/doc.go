// Package supervisor is the program that runs inside every sandbox: it forks, reaps, kills whole trees, and retains output
// until its host has stored it.
//
//	host ── unix socket, frames of package wire ──► main thread: reads frames, forks
//	                                                   │
//	     ◄── output ── one goroutine a pipe ◄───── process ────► its tree
//	     ◄── exit record, last ──┘                     │           │
//	                                  reaper: waits for any child, adopts orphans, kills what a process left behind
//
// Type supervisor reads messages and starts processes. Type trees owns the processes: it reaps, signals and kills them, and knows when
// the sandbox is empty. Type hosts owns the connections of the host.
//
// The frames of one process come in this order: Spawned, Output frames, Exit. When the main process has ended, the supervisor kills
// and reaps the rest of its tree and reads the pipes to their end; then it sends Exit.
//
// The package is linked into two programs. The program in folder tiny holds nothing else; package bin embeds it for Linux. Where
// no tiny program is embedded, the product's binary calls [Main] when it is run as a supervisor. This package imports neither
// fmt nor net nor encoding: each would double the tiny program.
package supervisor
