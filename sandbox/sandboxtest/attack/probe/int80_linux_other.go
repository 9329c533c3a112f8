//go:build linux && !amd64

package main

// tables attempts nothing: on this architecture a 64-bit program has one table of call numbers.
func tables() { report("none", nil) }
