package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// Two `sluice exec` at once share a data folder without a server.
func TestTwoExecsShareADataFolder(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	fifo := c.fifo("go")
	host := c.spawn(execArgs("-n", "--", "bash", "-c", "echo host; read -r line < "+fifo+"; echo $line; exit 3")...)
	host.wantLine("host")
	guest := c.spawn(execArgs("-n", "--", "bash", "-c", "echo guest; exit 4")...)
	guest.wantEnd(4, "guest\n")
	c.run("process", "list").check(t).printsPart("echo host")
	c.release("go", "on")
	host.wantEnd(3, "on\n")
	// Both are on record for a third command.
	list := c.run("process", "list", "--all")
	testkit.Equal(t, "failed processes on record", strings.Count(list.stdout, "failed"), 2)
}

// A host whose own command has ended waits for its guests' commands.
func TestHostWaitsForGuests(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	first, second := c.fifo("first"), c.fifo("second")
	host := c.spawn(execArgs("-n", "--", "bash", "-c", "echo host; read -r line < "+first)...)
	host.line()
	guest := c.spawn(execArgs("-n", "--", "bash", "-c", "echo guest; read -r line < "+second+"; echo $line; exit 4")...)
	guest.line()
	c.release("first", "on")
	host.awaitStderr("waiting for them")
	c.release("second", "over")
	guest.wantEnd(4, "over\n")
	host.wantExit(0)
}

// A host is killed with SIGKILL: the guest becomes the host, and both processes continue.
func TestGuestTakesOverFromKilledHost(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	host := c.spawn(execArgs("-n", "--key", "host", "--", "bash", "-c", "echo host; read -r line < "+c.fifo("host")+"; echo $line; exit 3")...)
	host.line()
	guest := c.spawn(execArgs("-n", "--key", "guest", "--", "bash", "-c", "echo guest; read -r line < "+c.fifo("guest")+"; echo $line; exit 4")...)
	guest.line()
	host.kill()
	c.release("host", "over")
	c.release("guest", "on")
	guest.wantEnd(4, "on\n")
	// The same key returns the result of the killed host's process.
	c.exec("--key", "host", "-n", "--", "bash", "-c", "echo host; read -r line < "+filepath.Join(c.data, "host")+"; echo $line; exit 3").check(t).exits(3).prints("host\nover\n")
	c.good()
}

// Five execs start at once: one becomes the host, and none loses its command when another one ends.
func TestFiveExecsShareADataFolder(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	for round := range 3 {
		var all sync.WaitGroup
		var got [5]outcome
		for i := range got {
			all.Go(func() {
				x := c.spawn("exec", "--provider", "local", "--thread", fmt.Sprint("t", i), "-n", "--", "bash", "-c", fmt.Sprintf("seq 1 %d; exit %d", i+1, i+10))
				got[i] = x.outcome()
			})
		}
		all.Wait()
		for i, g := range got {
			if g.code != i+10 || strings.Count(g.stdout, "\n") != i+1 {
				t.Errorf("round %d, exec %d: exit code %d with output %q, want %d with %d lines: %s", round, i, g.code, g.stdout, i+10, i+1, g.stderr)
			}
		}
	}
}

// A second signal kills the host's process at once, even if the process ignores signals.
func TestInterruptedHostKillsItsProcess(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	arg := uniqueSeconds()
	host := c.spawn(execArgs("-n", "--", "bash", "-c", "trap '' INT TERM; echo ready; sleep "+arg+"; sleep "+arg)...)
	host.line()
	tree := withArgument(t, arg)
	host.signal(syscall.SIGINT)
	host.signal(syscall.SIGTERM)
	host.wantExit(128 + int(syscall.SIGKILL))
	waitGone(t, tree)
	c.good()
}
