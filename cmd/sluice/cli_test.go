package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// patience bounds every wait of these tests. It is no expectation: a machine that is busy with other things is slow.
const patience = 60 * time.Second

// cli is a person at a command line, with a data folder of their own.
type cli struct {
	t    *testing.T
	data string
	env  map[string]string
	bin  string              // what is spawned; this program, where it is empty
	as   *syscall.Credential // who spawned programs run as; this user, where it is nil
}

// newCLI has a data folder with a short name: that of a test's own folder would be too long for a socket.
func newCLI(t *testing.T) *cli {
	t.Helper()
	data, err := os.MkdirTemp("", "sluice")
	if err != nil {
		t.Fatal(err)
	}
	c := &cli{t: t, data: data, env: map[string]string{}}
	t.Cleanup(func() {
		c.endLeft()
		if err := os.RemoveAll(data); err != nil {
			t.Error(err)
		}
	})
	return c
}

// endLeft ends the sandboxes of workers that were killed and not started again: they would wait for ten minutes.
func (c *cli) endLeft() {
	for _, dir := range []string{"run", "run/j", "run/docker"} {
		files, err := filepath.Glob(filepath.Join(c.data, dir, "kept", "*.json"))
		if err != nil {
			c.t.Error(err)
		}
		for _, f := range files {
			var r struct {
				PID       int    `json:"pid"`
				Container string `json:"container"`
			}
			body, err := os.ReadFile(f)
			if err != nil || json.Unmarshal(body, &r) != nil {
				continue // it has just gone
			}
			if r.PID > 0 {
				_ = syscall.Kill(r.PID, syscall.SIGKILL) // it may have ended
			}
			if r.Container != "" {
				_ = exec.Command("docker", "rm", "-f", r.Container).Run() // the same
			}
		}
	}
}

// outcome is what a command line came to.
type outcome struct {
	code           int
	stdout, stderr string
}

// run runs sluice in this process, with nothing on its standard input.
func (c *cli) run(args ...string) outcome {
	c.t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	return c.runFrom(null, args...)
}

// runFrom runs sluice in this process.
func (c *cli) runFrom(stdin *os.File, args ...string) outcome {
	var stdout, stderr buffer
	code := c.runTo(stdin, &stdout, &stderr, args...)
	return outcome{code, stdout.String(), stderr.String()}
}

func (c *cli) runTo(stdin *os.File, stdout, stderr io.Writer, args ...string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	m := &Main{Args: c.args(args), Stdin: stdin, Stdout: stdout, Stderr: stderr, Getenv: c.getenv}
	return m.Run(ctx)
}

// args puts the data folder first: what follows exec's flags is the command's own.
func (c *cli) args(args []string) []string { return append([]string{"--data", c.data}, args...) }

func (c *cli) getenv(name string) string {
	if v, ok := c.env[name]; ok {
		return v
	}
	if name == "PATH" || name == "HOME" {
		return os.Getenv(name)
	}
	return ""
}

// exec runs a command of thread t1.
func (c *cli) exec(args ...string) outcome {
	c.t.Helper()
	return c.run(execArgs(args...)...)
}

// execArgs are the arguments of an exec: args are flags, --, and the command.
func execArgs(args ...string) []string {
	return append([]string{"exec", "--provider", "local", "--thread", "t1"}, args...)
}

// good runs a command that must work, and so proves that whatever came before has stopped nothing.
func (c *cli) good() {
	c.t.Helper()
	word := unique()
	if got := c.exec("--", "echo", word); got.code != 0 || got.stdout != word+"\n" {
		c.t.Errorf("a good command afterwards: %+v", got)
	}
}

// result is the result object of an exec with --json.
func (o outcome) result(t *testing.T) *schemas.Result {
	t.Helper()
	var r schemas.Result
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
		t.Fatalf("not a result: %v: %+v", err, o)
	}
	return &r
}

// wantError checks that Sluice refused with a code, and that the text says what it is about.
func (o outcome) wantError(t *testing.T, code schemas.Code, words ...string) {
	t.Helper()
	if o.code != schemas.ExitSluiceFailed {
		t.Errorf("exit code %d, want %d: %s", o.code, schemas.ExitSluiceFailed, o.stderr)
	}
	for _, w := range append(words, "sluice: "+string(code)+": ") {
		if !strings.Contains(o.stderr, w) {
			t.Errorf("%q is not in %q", w, o.stderr)
		}
	}
}

// unique is a word that is nowhere else.
func unique() string { return strings.ToLower(rand.Text()[:16]) }

// buffer is what a program has printed so far.
type buffer struct {
	mu    sync.Mutex
	data  bytes.Buffer
	grown chan struct{} // closed at the next Write, where somebody waits for it
}

// Write keeps p.
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.grown != nil {
		close(b.grown)
		b.grown = nil
	}
	return b.data.Write(p)
}

// String is all of it.
func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}

// await waits until the text is there; false when its writer has ended before.
func (b *buffer) await(text string, ended <-chan struct{}) bool {
	timeout := time.After(patience)
	for {
		b.mu.Lock()
		found := strings.Contains(b.data.String(), text)
		if b.grown == nil {
			b.grown = make(chan struct{})
		}
		grown := b.grown
		b.mu.Unlock()
		if found {
			return true
		}
		select {
		case <-grown:
		case <-ended:
			return strings.Contains(b.String(), text)
		case <-timeout:
			return false
		}
	}
}

// digest takes output without keeping it.
func digest() (w io.Writer, sum func() string) {
	h := sha256.New()
	return h, func() string { return hex.EncodeToString(h.Sum(nil)) }
}

// seqDigest is the SHA-256 of `seq 1 5000000`, as sha256sum gives it.
func seqDigest(t *testing.T, n int) string {
	t.Helper()
	h := sha256.New()
	var line []byte
	for i := 1; i <= n; i++ {
		line = appendInt(line[:0], i)
		if _, err := h.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
