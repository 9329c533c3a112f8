// Package link is the host's end of a supervisor's socket. Every provider uses it: it turns one connection into a
// sandbox.Sandbox whose processes are sandbox.Process.
//
//	provider ── starts the supervisor, dials ──► Open ──► Sandbox ──Start──► Process
//	                                              │                            ▲
//	                                     one goroutine reads frames ── queues ─┘ output, exit record
//
// The reading goroutine never waits for a process's reader: what it may receive for one stream is bounded by the
// protocol's window, so it queues it and goes on, and a process nobody reads does not hold up the others. Closing a Link
// waits for that goroutine.
package link
