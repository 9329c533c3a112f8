package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// server is a `sluice up` in this process.
type server struct {
	url   string
	token string
	log   *buffer
	stop  func() int
}

// up starts `sluice up` on a free port and waits until it says that it is up. It is stopped when the test ends.
func (c *cli) up(flags ...string) *server {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	read, write := io.Pipe()
	s := &server{log: &buffer{}}
	ended := make(chan int, 1)
	go func() {
		m := &Main{Args: c.args(append([]string{"up", "--provider", "local", "--listen", "127.0.0.1:0"}, flags...)), Stdout: write, Stderr: s.log, Getenv: c.getenv}
		code := m.Run(ctx)
		_ = write.Close()
		ended <- code
	}()
	stopped := -1
	s.stop = func() int {
		if stopped < 0 {
			cancel()
			stopped = <-ended
		}
		return stopped
	}
	c.t.Cleanup(func() {
		if code := s.stop(); code != 0 {
			c.t.Errorf("sluice up ended with %d", code)
		}
		if c.t.Failed() {
			c.t.Logf("sluice up logged:\n%s", s.log)
		}
	})
	s.url = upURL(c.t, bufio.NewReader(read))
	s.token = (&folder{path: c.data}).storedToken()
	return s
}

// upURL reads the line by which `sluice up` says that it is up.
func upURL(t *testing.T, stdout *bufio.Reader) string {
	t.Helper()
	line, err := stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("sluice up did not come up: %v", err)
	}
	url, ok := strings.CutPrefix(line, "sluice is up: ")
	if !ok {
		t.Fatalf("sluice up said %q", line)
	}
	url, _, _ = strings.Cut(url, ",")
	return url
}

// spawned is sluice in a process of its own.
type spawned struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	read   *os.File // behind stdout
	stderr *buffer
	ended  chan struct{}
	code   int // -1 when a signal ended it
}

// spawn starts sluice as another process, in a process group of its own as a shell would.
func (c *cli) spawn(args ...string) *spawned {
	c.t.Helper()
	s := &spawned{t: c.t, stderr: &buffer{}, ended: make(chan struct{})}
	bin := c.bin
	if bin == "" {
		bin = os.Args[0]
	}
	s.cmd = exec.Command(bin, c.args(args)...)
	s.cmd.Env = []string{asSluice + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	for k, v := range c.env {
		s.cmd.Env = append(s.cmd.Env, k+"="+v)
	}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.as}
	s.cmd.Stderr = s.stderr
	s.cmd.WaitDelay = patience
	var err error
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		c.t.Fatal(err)
	}
	// A pipe of its own: Wait would close the reading end of cmd.StdoutPipe before all of it was read.
	read, write, err := os.Pipe()
	if err != nil {
		c.t.Fatal(err)
	}
	s.cmd.Stdout, s.stdout, s.read = write, bufio.NewReader(read), read
	if err := s.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	_ = write.Close()
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait() // the exit code says it all
		s.code = s.cmd.ProcessState.ExitCode()
	}()
	c.t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.ended
		_ = read.Close()
		if c.t.Failed() {
			c.t.Logf("sluice %s: exit code %d, standard error:\n%s", strings.Join(args, " "), s.code, s.stderr)
		}
	})
	return s
}

// line reads one line of the standard output.
func (s *spawned) line() string {
	s.t.Helper()
	type read struct {
		line string
		err  error
	}
	got := make(chan read, 1)
	go func() {
		line, err := s.stdout.ReadString('\n')
		got <- read{line, err}
	}()
	select {
	case r := <-got:
		if r.err != nil {
			s.t.Fatalf("no line on standard output: %q, %v", r.line, r.err)
		}
		return strings.TrimSuffix(r.line, "\n")
	case <-time.After(patience):
		s.t.Fatal("no line on standard output in time")
		return ""
	}
}

// wait waits for the end and returns the exit code and the rest of the standard output.
func (s *spawned) wait() (int, string) {
	s.t.Helper()
	rest := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(s.stdout) // what was read before an error is looked at
		rest <- string(b)
	}()
	select {
	case <-s.ended:
	case <-time.After(2 * patience):
		s.t.Fatal("sluice did not end in time")
	}
	return s.code, <-rest
}

// signal sends a signal to the process alone.
func (s *spawned) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// kill ends it as the kernel would, unless it has ended by itself, and waits until it has gone.
func (s *spawned) kill() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Fatal(err)
	}
	<-s.ended
}

func appendInt(b []byte, n int) []byte { return append(strconv.AppendInt(b, int64(n), 10), '\n') }

// awaitStderr waits until the standard error holds a text.
func (s *spawned) awaitStderr(text string) {
	s.t.Helper()
	if !s.stderr.await(text, s.ended) {
		s.t.Fatalf("%q did not come: %s", text, s.stderr)
	}
}

// leave closes the reading end of the standard output, as a reader that has had enough does.
func (s *spawned) leave() {
	s.t.Helper()
	if err := s.read.Close(); err != nil {
		s.t.Error(err)
	}
}
