// Package events is the only user of NATS: subjects, streams, leases, sessions, process records, output, and the delivery of
// commands. A [Conn] connects to a cell and sets up its streams. Two views divide what it can do: a [Caller] sends commands and
// reads, a [Worker] receives commands and writes.
//
//	Caller                         NATS                          Worker
//	Call.Send ──rpc.<thread>.<op>──────────────────────────────► Listener ──► Handler
//	    │ no responder                                             ▲
//	    ├──api.place─────────────────────────────────────────────► │ (a worker takes the thread)
//	    └──cmd.<thread>.<op>──► CMD, partitioned, pinned ──────────┘
//	Call.Next ◄──inbox────────────────────────────────────────── Worker.Answer
//	EventFeed ◄──feed.…──── EVT ◄──evt.… (compare-and-swap)────── Records
//	Follower ◄──tail.…──── LOG ◄──log.…───────────────────────── Logs
//	Reader ◄────────────── KV state, leases ◄──────────────────── SessionStore, Roster, Lease
//	MessageFeed ◄──said.…── MSG ◄──msg.…──────────────────────── MessageStore
//
// A Listener decodes what arrives and passes it to its Handler. What it receives has owners: Threads the subscriptions to threads, a
// dispatcher the queues of CMD, ownRoom the reports of room, placements the requests to take a thread, tunnels the forwarded connections,
// inboxes the answers.
//
// The records of a process are write-once. Each is published with the sequence of the record before it, and the server rejects
// the second writer. This compare-and-swap gives idempotency, fencing and the durable result.
package events
