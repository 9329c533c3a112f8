// Package link is the host's end of a supervisor's socket. Every provider uses it: it makes a sandbox.Sandbox, whose processes are
// sandbox.Process, from one connection.
//
//	provider ── starts the supervisor, dials ──► Open ──► Sandbox ──Start──► Process
//	                                              │                            ▲
//	                                     one goroutine reads frames ── queues ─┘ output, exit record
//
// The reading goroutine never waits for a reader of a process: the protocol's window bounds the output of one stream that it
// queues. So a process without a reader does not block the others. Close waits for that goroutine.
package link
