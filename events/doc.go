// Package events is the only user of NATS: subjects, streams, leases, sessions, process records, output, and the ways in.
//
//	client side                    NATS                         worker side
//	Conn.Send ──rpc.<thread>.<op>─────────────────────────────► Inlet ──► Handler
//	    │ nobody listens                                          ▲
//	    ├──api.place──────────────────────────────────────────────┤ (a worker takes the thread)
//	    └──cmd.<thread>.<op>──► CMD, partitioned, pinned ─────────┘
//	Call.Next ◄──inbox───────────────────────────────────────── Conn.Answer
//	Feed ◄──feed.…──────── EVT ◄──evt.… (compare-and-swap)────── Conn.Append
//	Follower ◄──tail.…──── LOG ◄──log.…──────────────────────── LogWriter
//
// A process's records are write-once: each is published with the sequence of the one before, so that whoever comes second
// is refused by the server. That one mechanism gives idempotency, fencing and the durable result.
package events
