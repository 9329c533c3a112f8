// Package processor is the worker: it takes a command from acceptance to its record.
//
//	Delivery ──► admit ──► accepted (the key is taken) ──► sandbox ──► started ──► output ──► exited
//	               │            │                                                              │
//	               │            └─ the key was taken before: collide ──► replay, attach,       └──► inbox
//	               └─ refuse, retry elsewhere, forward, bury                lost, run again
//
// A worker that begins anew first takes back what runs: sandboxes found by their provider ──► session still its own ──► records
// without an end ──► log read to its end ──► output from there on, and the end as above.
//
// A sandbox goes through these states; transitions in lifecycle.go is the table, and each arrow is an event of that name:
//
//	PENDING ──► CREATING ──► RUNNING ──► COMPLETED   it ended by itself, or was parked
//	   │           │            │
//	   ├───────────┴────────────┼──────► FAILED      it was not made in time, its cold start failed
//	   │                        │
//	   └─ any of them ──────────┴──────► TERMINATED  somebody wished so; in between it is ending, for so long at most
//
// A session is a thread's claim on one sandbox after the other: claim makes or finds it (session.go, thread.go), sweep expires and
// parks it (expiry.go, park.go), beginEnd ends it (stop.go). KV holds it, and change is the only way it changes there.
//
//	claim ──► created | reused ──► sandbox, cold start once per epoch ──► … ──► hooks ──► terminated | expired
//
// The tables that decide, admit, collide and resume, stand in decide.go. Everything the worker keeps in memory can be rebuilt
// from the streams, the buckets and its sandboxes. It knows NATS only by the interfaces it declares.
package processor
