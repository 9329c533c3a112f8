package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Two `sluice exec` at once, with no server running, share one data folder and both work.
func TestTwoExecsShareADataFolder(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	fifo := c.fifo("go")
	host := c.spawn(execArgs("-n", "--", "bash", "-c", "echo host; read -r line < "+fifo+"; echo $line; exit 3")...)
	if got := host.line(); got != "host" {
		t.Fatalf("%q", got)
	}
	guest := c.spawn(execArgs("-n", "--", "bash", "-c", "echo guest; exit 4")...)
	if code, out := guest.wait(); code != 4 || out != "guest\n" {
		t.Errorf("the guest: code %d, %q", code, out)
	}
	if got := c.run("process", "list"); !strings.Contains(got.stdout, "echo host") {
		t.Errorf("the guest's list: %+v", got)
	}
	c.release("go", "on")
	if code, out := host.wait(); code != 3 || out != "on\n" {
		t.Errorf("the host: code %d, %q", code, out)
	}
	// Both are on record for a third one.
	if got := c.run("process", "list", "--all"); strings.Count(got.stdout, "exited") != 2 {
		t.Errorf("%+v", got)
	}
}

// The host has done its own command and waits for its guest's.
func TestAHostWaitsForItsGuests(t *testing.T) {
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
	if code, out := guest.wait(); code != 4 || out != "over\n" {
		t.Errorf("the guest: code %d, %q", code, out)
	}
	if code, _ := host.wait(); code != 0 {
		t.Errorf("the host: code %d", code)
	}
}

// A host killed with SIGKILL: the guest takes over, and goes on with its own process and with the host's.
func TestAGuestTakesOverFromAHostThatIsKilled(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	host := c.spawn(execArgs("-n", "--key", "host", "--", "bash", "-c", "echo host; read -r line < "+c.fifo("host")+"; echo $line; exit 3")...)
	host.line()
	guest := c.spawn(execArgs("-n", "--key", "guest", "--", "bash", "-c", "echo guest; read -r line < "+c.fifo("guest")+"; echo $line; exit 4")...)
	guest.line()
	host.kill()
	c.release("host", "over")
	c.release("guest", "on")
	code, rest := guest.wait()
	if code != 4 || rest != "on\n" {
		t.Errorf("the guest: code %d, %q, %s", code, rest, guest.stderr)
	}
	// Whoever asks again for what the dead one ran is told, by the record.
	if got := c.exec("--key", "host", "-n", "--", "bash", "-c", "echo host; read -r line < "+filepath.Join(c.data, "host")+"; echo $line; exit 3"); got.code != 3 || got.stdout != "host\nover\n" {
		t.Errorf("%+v", got)
	}
	c.good()
}

// Five at once, none of which is there before: one of them hosts, all work, none loses its command as another one ends.
func TestFiveExecsAtOnceAllWork(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	for round := range 3 {
		var all sync.WaitGroup
		var got [5]outcome
		for i := range got {
			all.Go(func() {
				x := c.spawn("exec", "--provider", "local", "--thread", fmt.Sprint("t", i), "-n", "--", "bash", "-c", fmt.Sprintf("seq 1 %d; exit %d", i+1, i+10))
				got[i].code, got[i].stdout = x.wait()
				got[i].stderr = x.stderr.String()
			})
		}
		all.Wait()
		for i, g := range got {
			if g.code != i+10 || strings.Count(g.stdout, "\n") != i+1 {
				t.Errorf("round %d, %d: %+v", round, i, g)
			}
		}
	}
}

// A second interrupt ends the host at once, whatever its process thinks of signals.
func TestAHostThatIsLeftTakesItsProcessAlong(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	arg := uniqueSeconds()
	host := c.spawn(execArgs("-n", "--", "bash", "-c", "trap '' INT TERM; echo ready; sleep "+arg+"; sleep "+arg)...)
	host.line()
	tree := withArgument(t, arg)
	host.signal(syscall.SIGINT)
	host.signal(syscall.SIGTERM)
	if code, _ := host.wait(); code != 128+int(syscall.SIGTERM) && code != 128+int(syscall.SIGINT) {
		t.Errorf("code %d", code)
	}
	waitGone(t, tree)
	if !strings.Contains(host.stderr.String(), "ends with it") {
		t.Errorf("it does not say what became of the process: %s", host.stderr)
	}
	c.good()
}
