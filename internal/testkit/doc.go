// Package testkit holds what the tests of every package share: the leak check, bounded waits, and the one rule for a missing
// component.
//
//	TestMain ──► Main ──► a helper program named by os.Args[1], or the tests and then goleak
//	a test   ──► Context (bounded), Must, WantCode, Missing (skip here, fail in CI), ShortDir (fits a unix socket)
package testkit
