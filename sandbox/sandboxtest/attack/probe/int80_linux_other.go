//go:build linux && !amd64

package main

// otherTables has none to try: this architecture has one table of calls that a 64-bit program can use.
func otherTables() { say("none", nil) }
