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
// The tables that decide, admit, collide and resume, stand in decide.go. Everything the worker keeps in memory can be rebuilt
// from the streams, the buckets and its sandboxes. It knows NATS only by the interfaces it declares.
package processor
