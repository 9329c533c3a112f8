// Package run owns the processes of a worker, from a command's acceptance to the record of its end.
//
//	HandleCommand ──► admit ──► accepted (the key is taken) ──► sandbox ──► started ──► output ──► exited
//	                    │            │                                                              │
//	                    │            └─ the key was taken before: collide ──► replay, attach,       └──► inbox
//	                    └─ refuse, decline, forward, reject                   lost, run again
//
// The tables that decide, admit, collide and resume, are in decide.go. A process that an earlier incarnation started comes in by
// Resume instead, and takes the same way from its output on.
//
// Runs holds the runs, starts them and ends them. Types that hold no run do the rest:
//
//	Acceptor  commands: it decides, answers, and accepts those that run here
//	Canceler  cancels of commands that are not accepted yet
//	follower  a running process to its end: input, output, log, and what an earlier incarnation left in both
//	recorder  the records of a run after its acceptance, its gaps and log line, and the answers to its callers
package run
