package main

import (
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// The detach keys leave the process and its input as they are.
func TestDetachLeavesTheInputOpen(t *testing.T) {
	c := newUp(t)
	s := c.onScreen(execArgs("-it", "--key", "k", "--", "bash", "-c", showsSizes)...)
	s.await("ready")
	s.press("\x10\x11")
	s.wantCooked(0)
	s = c.onScreen("attach", schemas.ProcessID(schemas.DefaultTenant, "t1", "k"))
	s.await("ready")
	s.press("end\r")
	s.await("got end")
	s.wantCooked(7)
}

// Ctrl+Z stops a program, and the shell continues it. The program's children are of the background: one of the
// foreground that is stopped between its vfork and its exec keeps its parent from stopping, in any terminal.
func TestJobControl(t *testing.T) {
	c := newUp(t)
	s := c.onScreen("shell", "--provider", "local", "t1")
	s.press("sh -c 'trap \"echo con\"tinued CONT; echo start\"\"ed; while :; do sleep 0.05 & wait $!; done'\r")
	s.await("started\r\n")
	s.press("\x1a")
	s.await("Stopped")
	s.press("fg\r")
	s.await("continued\r\n")
	s.press("\x03")
	s.press("exit 4\r")
	s.wantCooked(4)
}

// A command that waits for a worker leaves Ctrl+C to sluice, and gets the keys once it runs, also when it prints nothing.
func TestQueuedTerminal(t *testing.T) {
	f := newFleet(t, nil, "w1")
	home := f.homes["w1"]
	f.workers["w1"].kill()
	args := append([]string{"--nats", f.server.URL()}, execArgs("-it", "--", "cat")...)
	canceled := home.onScreen(args...)
	canceled.awaitStderr("is queued")
	testkit.Equal(t, "cooked", canceled.settings().Lflag&unix.ICANON, uint32(unix.ICANON))
	canceled.press("\x03")
	canceled.wantCooked(schemas.ExitSignalBase + int(syscall.SIGINT))
	canceled.awaitStderr("was canceled while it was queued")
	s := home.onScreen(args...)
	s.awaitStderr("is queued")
	f.start("w1")
	s.press("typed\r")
	s.await("typed\r\ntyped\r\n")
	s.press("\x04")
	s.wantCooked(0)
}

// A terminal that closes leaves its process running; without a server, sluice stays as its host.
func TestProcessOutlivesTheTerminalOfItsUser(t *testing.T) {
	for name, up := range map[string]bool{"server": true, "no server": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCLI(t)
			if up {
				c.up()
			}
			s, file := c.inTerminal(false, execArgs("-it", "--key", "k", "--", "bash", "-c", showsSizes)...)
			for strings.TrimSpace(s.line()) != "ready" {
			}
			id := schemas.ProcessID(schemas.DefaultTenant, "t1", "k")
			testkit.Must(t, file.Close())
			s.awaitStderr(id + " continues")
			again := c.onScreen("attach", id)
			again.await("ready")
			again.press("end\r")
			again.await("got end")
			again.wantCooked(7)
			<-s.ended
			testkit.Equal(t, "panics", strings.Contains(s.stderr.String(), "panic"), false)
		})
	}
}
