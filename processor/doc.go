// Package processor is the worker: it takes a command from acceptance to its record.
//
//	Worker ──► recovery ──► run ──► session ──► publisher, work
//	   │                     ▲         ▲
//	   └─► conversation ─────┘─────────┘
//
// Each part owns its state and its lock, and calls only parts to its right:
//
//	session       threads, their sessions in KV, sandboxes and workspaces: claim, change, expire, park, terminate
//	run           processes: accept, start, follow, record, resume, signal
//	conversation  the messages of a thread, one after the other, and the hooks around an answer
//	recovery      reattaching at a start, and reporting as lost what no worker runs any more
//	publisher     events, answers and log lines, and the fence that stops them when the lease is lost
//	work          background functions, a mutex for each key, timeouts
//
// In session, Sessions holds the threads, entries writes them to KV and sandboxes owns their sandboxes. In run, Runs holds the runs,
// follower takes a running process to its end and recorder writes the records.
//
// Worker only wires them, and is what a transport calls. What a worker keeps in memory can be rebuilt from the streams, the buckets
// and its sandboxes. It knows NATS only by the interfaces it declares.
package processor
