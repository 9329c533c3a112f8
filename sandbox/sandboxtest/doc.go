// Package sandboxtest is the conformance suite of providers: it tests what package sandbox promises in its comments. A provider's own
// tests add only what is particular to it.
//
//	provider's test ──► Run(t, Factory) ──► a sandbox per part, or per subtest ──► sh, cat, dd, sleep, setsid inside it
//
// The sandboxes need a POSIX shell, the usual small programs, and /proc. No case depends on timing: each waits for events, and every
// wait ends after testkit.Timeout.
package sandboxtest
