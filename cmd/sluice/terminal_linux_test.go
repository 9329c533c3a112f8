package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// screen is sluice in a terminal, as its user sees it.
type screen struct {
	*spawned
	file  *os.File
	reads chan string
	shown string
}

func (c *cli) onScreen(args ...string) *screen {
	c.t.Helper()
	x, file := c.inTerminal(false, args...)
	s := &screen{spawned: x, file: file, reads: make(chan string)}
	ended := make(chan struct{})
	c.t.Cleanup(func() { close(ended) })
	go func() {
		for {
			b := make([]byte, 4096)
			n, err := file.Read(b) // it fails when sluice has ended
			if err != nil {
				return
			}
			select {
			case s.reads <- string(b[:n]):
			case <-ended:
				return
			}
		}
	}()
	return s
}

// await reads until the terminal shows all of the texts, in any order, after what was awaited before.
func (s *screen) await(texts ...string) {
	s.t.Helper()
	late := time.After(testkit.Timeout)
	for slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(s.shown, text) }) {
		select {
		case b := <-s.reads:
			s.shown += b
		case <-late:
			s.t.Fatalf("the terminal shows %q, want %q; standard error: %s", s.shown, texts, s.stderr)
		}
	}
	end := 0
	for _, text := range texts {
		end = max(end, strings.Index(s.shown, text)+len(text))
	}
	s.shown = s.shown[end:]
}

func (s *screen) press(keys string) {
	s.t.Helper()
	_, err := s.file.WriteString(keys)
	testkit.Must(s.t, err)
}

func (s *screen) resize(rows, cols uint16) {
	s.t.Helper()
	testkit.Must(s.t, unix.IoctlSetWinsize(int(s.file.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}))
}

// settings are those of the terminal.
func (s *screen) settings() unix.Termios {
	s.t.Helper()
	settings, err := unix.IoctlGetTermios(int(s.file.Fd()), unix.TCGETS)
	testkit.Must(s.t, err)
	return *settings
}

// wantCooked waits for the end, and checks the exit code and that the terminal echoes and has Ctrl+C again.
func (s *screen) wantCooked(code int) {
	s.t.Helper()
	<-s.ended
	testkit.Equal(s.t, "exit code", s.code, code)
	if got := s.settings().Lflag; got&unix.ICANON == 0 || got&unix.ECHO == 0 || got&unix.ISIG == 0 {
		s.t.Errorf("local modes of the terminal = %#x, want them restored", got)
	}
}

// showsSizes prints each size of its terminal, each line that is typed, and Ctrl+C. `read` has no timeout: one that ends in the middle of
// a line loses the characters before.
const showsSizes = `(while :; do s=$(stty size </dev/tty); [ "$s" = "$last" ] || echo "$s"; last=$s; sleep 0.05; done) &
trap 'echo interrupted' INT; echo ready; while :; do read x && echo "got $x" && [ "$x" = end ] && exit 7; done`

// The terminal of the process has the keys and the size of that of sluice, whose exit code is its.
func TestExecInTerminal(t *testing.T) {
	c := newUp(t)
	s := c.onScreen(execArgs("-it", "--", "bash", "-c", showsSizes)...)
	s.await("ready")
	testkit.Equal(t, "raw", s.settings().Lflag&(unix.ICANON|unix.ECHO|unix.ISIG), uint32(0))
	s.resize(41, 132)
	s.await("41 132")
	s.resize(5000, 65535)
	s.await("4096 4096")
	s.press("\x03")
	s.await("interrupted")
	s.press("one\r")
	s.await("got one")
	s.press("end\r")
	s.await("got end")
	s.wantCooked(7)
	c.good()
}

// A shell knows that it is interactive; Ctrl+D ends it.
func TestShell(t *testing.T) {
	c := newUp(t)
	c.env["TERM"] = "vt100"
	s := c.onScreen("shell", "--provider", "local", "t1")
	s.press("sh -c \"echo $TERM-$((6*7)); exec sleep 300\"\r") // a child that the shell has just forked loses the signal
	s.await("vt100-42")
	s.press("\x03")
	s.press("echo code $?\r")
	s.await("code 130")
	s.press("echo started; cat\r")
	s.await("started\r\n") // until then the shell reads the keys
	s.press("line\r")
	s.await("line\r\nline\r\n")
	s.press("\x04")
	s.press("exit 9\r")
	s.wantCooked(9)
}

// Several are attached at a time. Each sees everything and can type, and the detach keys leave the rest as it is.
func TestAttach(t *testing.T) {
	c := newUp(t)
	process := strings.TrimSpace(c.exec("-dt", "--", "bash", "-c", showsSizes).stdout)
	one := c.onScreen("attach", process)
	one.await("ready")
	one.press("from one\r")
	one.await("got from one")
	two := c.onScreen("attach", "--detach-keys", "ctrl-x,x", process)
	two.await("got from one") // the last screenful
	two.press("from two\r")
	one.await("got from two")
	two.await("got from two")
	two.press("\x18x")
	two.wantCooked(0)
	two.awaitStderr("sluice attach " + process)
	one.press("\x10\x11")
	one.wantCooked(0)
	three := c.onScreen("attach", process)
	three.await("got from two")
	three.press("end\r")
	three.await("got end")
	three.wantCooked(7)
	terminal := c.onScreen("attach", process)
	<-terminal.ended
	terminal.awaitStderr("has ended")
	plain := strings.TrimSpace(c.exec("-d", "--", "sleep", "300").stdout)
	terminal = c.onScreen("attach", plain)
	<-terminal.ended
	terminal.awaitStderr("without a terminal")
	c.run("process", "kill", "--grace", "0s", plain).check(t).exits(0)
}

// Whatever ends sluice, its terminal is as before, and the process goes on.
func TestTerminalIsRestored(t *testing.T) {
	c := newUp(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT} {
		s := c.onScreen(execArgs("-it", "--", "bash", "-c", showsSizes)...)
		s.await("ready")
		s.signal(sig)
		s.wantCooked(schemas.ExitSignalBase + int(sig))
		s.awaitStderr("continues")
	}
	testkit.Equal(t, "processes", strings.Count(c.run("ps").stdout, "running"), 3)
	for line := range strings.Lines(c.run("ps").stdout) {
		if id, _, _ := strings.Cut(line, " "); strings.HasPrefix(id, "p") {
			c.run("process", "kill", "--grace", "0s", id).check(t).exits(0)
		}
	}
}

type panics struct{}

// Write panics.
func (panics) Write([]byte) (int, error) { panic("the output") }

// The panic ends a process of its own: nothing that it leaves is closed.
func TestTerminalIsRestoredAfterAPanic(t *testing.T) {
	const panicsOn = "SLUICE_TEST_PANICS_ON"
	if data := os.Getenv(panicsOn); data != "" {
		c := &cli{t: t, data: data}
		c.runTo(os.Stdin, panics{}, execArgs("-it", "--", "echo", "on")...)
		return
	}
	c := newUp(t)
	file, terminal := openTerminal(t)
	defer terminal.Close()
	s := &screen{spawned: &spawned{t: t}, file: file}
	before := s.settings()
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env, child.Stdin = append(os.Environ(), panicsOn+"="+c.data), terminal
	if out, err := child.CombinedOutput(); err == nil || !strings.Contains(string(out), "panic: the output") {
		t.Errorf("the child ended with %v: %s", err, out)
	}
	testkit.Equal(t, "settings", s.settings(), before)
}

// Without a server, the detach keys give the terminal back, and the process goes on.
func TestDetachWithoutServer(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	s := c.onScreen(execArgs("-it", "--", "bash", "-c", "echo ready; until [ -e go ]; do sleep 0.02; done; exit 3")...)
	s.await("ready")
	s.press("\x10\x11")
	s.awaitStderr("continues in this sluice")
	testkit.Equal(t, "cooked", s.settings().Lflag&unix.ICANON, uint32(unix.ICANON))
	c.exec("--", "touch", "go").check(t).exits(0)
	s.wantCooked(3)
}

// A worker that is killed under an open terminal: after its restart the terminal goes on.
func TestTerminalOutlivesItsWorker(t *testing.T) {
	f := newFleet(t, nil, "w1")
	home := f.homes["w1"]
	s := home.onScreen(append([]string{"--nats", f.server.URL()}, execArgs("-it", "--", "bash", "-c", showsSizes)...)...)
	s.await("ready")
	s.press("one\r")
	s.await("got one")
	f.workers["w1"].kill()
	s.press("two\r")
	s.resize(41, 132)
	f.start("w1")
	s.await("got two", "41 132") // in any order
	s.press("end\r")
	s.await("got end")
	s.wantCooked(7)
}
