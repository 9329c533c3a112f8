// Package shortage is what Sluice does while the system has no file descriptor left for it: for this process, which is EMFILE, or for the
// whole machine, which is ENFILE. It passes, so nothing may end for it.
//
//	Accept ──► retries, until the listener is closed
//	Check  ──► waits are for the caller: work that must not fail halfway asks first
//	Explain ─► unavailable, with the way out
package shortage
