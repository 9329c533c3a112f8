// Package supervisor is the program that runs inside every sandbox: it forks, reaps, kills whole trees, and holds output
// until its host says that it is safe.
//
//	host ── unix socket, frames of package wire ──► main thread: reads frames, forks
//	                                                   │
//	     ◄── output ── one goroutine a pipe ◄───── process ────► its tree
//	     ◄── exit record, last ──┘                     │           │
//	                                  reaper: waits for any child, adopts orphans, sweeps what a process left behind
//
// The order of things in one process: Spawned, Output and Output, then, once its main process has ended, the rest of its
// tree is killed and reaped, the pipes reach their end, and the Exit record is the last frame about it.
//
// It is linked in two ways. The tiny program in folder tiny holds nothing else; package bin embeds it for Linux. The
// product's own binary calls [Main] when it is run as a supervisor, which is how it works where no tiny binary is
// embedded. This package therefore imports neither fmt nor net nor encoding: each would double the tiny program.
package supervisor
