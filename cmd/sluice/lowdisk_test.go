package main

import (
	"testing"
)

// Hardening 3: without a worker that could have room, a command on a low disk is refused at once, with the way out; `sluice status` says why a
// worker starts nothing.
func TestALowDiskIsReported(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("exec", "--provider", "local", "--min-free", "1000000GiB", "--", "true").check(t).exits(125).reports("pool_exhausted: ").reports(" free in " + c.data).reports("--min-free")
	c.run("exec", "--provider", "local", "--min-free", "0", "--", "true").check(t).exits(0)
	c.up("--min-free", "1000000GiB")
	c.run("status").check(t).exits(0).printsPart("it starts no process")
	c.run("limits").check(t).exits(0).printsPart("space kept free on the disk")
}
