// Package session owns the threads of a worker, and for each its session, its sandbox and its workspace.
//
//	Claim ──► created | reused ──► Sandbox, cold start once per epoch ──► Sweep: parked | expired ──► terminated
//
// Sessions holds the threads: it claims, expires, terminates and gives them up. It leaves the rest to types that hold no thread:
//
//	offer      what the worker can serve: it fills in new sessions
//	entries    the sessions in KV, and their events in order: change, update, delete
//	sandboxes  the sandboxes of threads: create, cold start, hooks, park, end
//	Workspaces the folders of threads: those of ended sessions are kept for a time
//
// A session is a thread's claim on one sandbox after the other. KV holds it. A claim or an adoption writes it first; from then on
// entries.change is the only place that writes it.
// A sandbox goes through these states; transitions in lifecycle.go is the table, and each arrow is an event of that name:
//
//	PENDING ──► CREATING ──► RUNNING ──► COMPLETED   it ended by itself, or was parked
//	   │           │            │
//	   ├───────────┴────────────┼──────► FAILED      it was not created in time, or its cold start failed
//	   │                        │
//	   └─ any of them ──────────┴──────► TERMINATED  on request; until then it is ending, with a deadline
//
// A thread knows its runs only as what it can kill: packages above register them with Enter.
package session
