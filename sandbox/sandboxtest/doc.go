// Package sandboxtest is the suite that every provider passes. What package sandbox promises in its comments, this suite
// tries out; a provider's own tests add only what is particular to it.
//
//	provider's test ──► Run(t, Factory) ──► a sandbox per subtest ──► sh, cat, dd, sleep, setsid inside it
//
// The sandboxes need a POSIX shell, the usual small programs, and /proc. Nothing in the suite depends on how fast things
// go: it waits for events, and every wait ends after a [Patience] that only a hang exceeds.
package sandboxtest
