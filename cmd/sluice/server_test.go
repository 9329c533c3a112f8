package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// server is a `sluice up` in this process.
type server struct {
	url   string
	token string
	log   *buffer
	stop  func() int
}

// up starts `sluice up` on a free port and waits until it is up. It stops when the test ends.
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
	s.stop = sync.OnceValue(func() int {
		cancel()
		return <-ended
	})
	c.t.Cleanup(func() {
		if code := s.stop(); code != 0 {
			c.t.Errorf("sluice up: exit code %d, want 0", code)
		}
		if c.t.Failed() {
			c.t.Logf("sluice up logged:\n%s", s.log)
		}
	})
	s.url = upURL(c.t, bufio.NewReader(read))
	s.token = (&dataFolder{path: c.data}).storedToken()
	return s
}

// upURL reads the URL from the line that `sluice up` prints when it is up.
func upURL(t *testing.T, stdout *bufio.Reader) string {
	t.Helper()
	line, err := stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("sluice up did not start: %v", err)
	}
	url, ok := strings.CutPrefix(line, "sluice is up: ")
	if !ok {
		t.Fatalf("sluice up printed %q, want a line that starts with \"sluice is up: \"", line)
	}
	url, _, _ = strings.Cut(url, ",")
	return url
}

// spawned is sluice in another process.
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

// spawn starts sluice in another process and process group, as a shell does.
func (c *cli) spawn(args ...string) *spawned {
	c.t.Helper()
	s := &spawned{t: c.t, stderr: &buffer{}, ended: make(chan struct{})}
	bin := c.bin
	if bin == "" {
		bin = os.Args[0]
	}
	s.cmd = exec.Command(bin, c.args(args)...)
	s.cmd.Env = []string{asSluice + "=1", "SLUICE_HTTP=" + httpOff, "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	for k, v := range c.env {
		s.cmd.Env = append(s.cmd.Env, k+"="+v)
	}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.as}
	s.cmd.Stderr = s.stderr
	s.cmd.WaitDelay = testkit.Timeout
	var err error
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		c.t.Fatal(err)
	}
	// Not cmd.StdoutPipe: Wait would close its reading end before all of it is read.
	read, write, err := os.Pipe()
	testkit.Must(c.t, err)
	s.cmd.Stdout, s.stdout, s.read = write, bufio.NewReader(read), read
	testkit.Must(c.t, s.cmd.Start())
	_ = write.Close()
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait() // the exit code is checked
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

func (s *spawned) line() string {
	s.t.Helper()
	testkit.Must(s.t, s.read.SetReadDeadline(time.Now().Add(testkit.Timeout)))
	line, err := s.stdout.ReadString('\n')
	if err != nil {
		s.t.Fatalf("no line on standard output within %s: %q, %v", testkit.Timeout, line, err)
	}
	testkit.Must(s.t, s.read.SetReadDeadline(time.Time{}))
	return strings.TrimSuffix(line, "\n")
}

// wait waits for the end, and returns the exit code and the rest of the standard output.
func (s *spawned) wait() (int, string) {
	s.t.Helper()
	rest := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(s.stdout) // the bytes before an error are checked
		rest <- string(b)
	}()
	select {
	case <-s.ended:
	case <-time.After(testkit.Timeout):
		s.t.Fatalf("sluice did not end within %s", testkit.Timeout)
	}
	return s.code, <-rest
}

func (s *spawned) wantExit(code int) {
	s.t.Helper()
	s.outcome().check(s.t).exits(code)
}

func (s *spawned) wantEnd(code int, rest string) {
	s.t.Helper()
	s.outcome().check(s.t).exits(code).prints(rest)
}

// outcome waits for the end. It has the rest of the standard output.
func (s *spawned) outcome() outcome {
	s.t.Helper()
	code, rest := s.wait()
	return outcome{code: code, stdout: rest, stderr: s.stderr.String()}
}

// awaitLine reads lines of the standard output until one has a text.
func (s *spawned) awaitLine(text string) {
	s.t.Helper()
	for !strings.Contains(s.line(), text) {
		continue
	}
}

func (s *spawned) wantLine(want string) {
	s.t.Helper()
	if got := s.line(); got != want {
		s.t.Errorf("line = %q, want %q; standard error: %s", got, want, s.stderr)
	}
}

func (s *spawned) write(text string) {
	s.t.Helper()
	_, err := io.WriteString(s.stdin, text)
	testkit.Must(s.t, err)
}

// signal sends a signal to the process, not to its group.
func (s *spawned) signal(sig syscall.Signal) {
	s.t.Helper()
	testkit.Must(s.t, s.cmd.Process.Signal(sig))
}

// kill sends SIGKILL, unless the process has ended, and waits for its end.
func (s *spawned) kill() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Fatal(err)
	}
	<-s.ended
}

// awaitStderr waits until the standard error holds a text.
func (s *spawned) awaitStderr(text string) {
	s.t.Helper()
	if !s.stderr.await(text, s.ended) {
		s.t.Fatalf("standard error = %q, want one with %q", s.stderr, text)
	}
}

// leave closes the reading end of the standard output, as head does.
func (s *spawned) leave() {
	s.t.Helper()
	if err := s.read.Close(); err != nil {
		s.t.Error(err)
	}
}
