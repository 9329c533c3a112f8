// Package membership joins a worker to a cell. It is the one place where events and processor, which do not import each other, meet:
//
//	events.Conn ──► events.Worker ──parts──► processor.Config ──► processor.Worker
//	                     │                                             ▲
//	                     └──► events.Incarnation: lease, listener ─────┘ (a lost lease fences the worker)
//
// Join acquires the lease and makes the worker; [Membership.Run] runs both until the context ends.
package membership
