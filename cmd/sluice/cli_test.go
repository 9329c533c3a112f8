package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox/hostproc"
	"github.com/sluice-dev/sluice/sandbox/supervisor"
	"github.com/sluice-dev/sluice/schemas"
)

// asSluice makes the test binary run as sluice. A second process then runs the code that was compiled for the test, with the race
// detector where that is on.
const asSluice = "SLUICE_TEST_AS_SLUICE"

func TestMain(m *testing.M) {
	if os.Getenv(asSluice) != "" {
		main()
	}
	if signal.Ignored(syscall.SIGHUP) { // below nohup; the programs that tests start must not inherit that
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	testkit.Main(m, testkit.Programs{"supervisor": supervisor.Main})
}

// cli is a user's command line, with a data folder of its own.
type cli struct {
	t    *testing.T
	data string
	env  map[string]string
	bin  string              // the program that spawn runs; empty for this one
	as   *syscall.Credential // the user that spawn runs it as; nil for this one
}

// newCLI makes a cli. Its data folder has a short path, for the sockets in it.
func newCLI(t *testing.T) *cli {
	t.Helper()
	c := &cli{t: t, data: testkit.ShortDir(t), env: map[string]string{}}
	t.Cleanup(c.killSandboxes)
	return c
}

// newUp makes a cli on which `sluice up` runs, for a test that runs in parallel to others.
func newUp(t *testing.T) *cli {
	t.Helper()
	t.Parallel()
	c := newCLI(t)
	c.up()
	return c
}

// record is the part of a sandbox's record file that these tests read.
type record struct {
	hostproc.Ref
	Container string `json:"container"`
}

func (c *cli) recordFiles() (all []string) {
	c.t.Helper()
	for _, dir := range []string{"run", "run/j", "run/docker"} {
		files, err := filepath.Glob(filepath.Join(c.data, dir, "kept", "*"))
		testkit.Must(c.t, err)
		all = append(all, files...)
	}
	return all
}

func (c *cli) records() (all []record) {
	c.t.Helper()
	for _, f := range c.recordFiles() {
		var r record
		if body, err := os.ReadFile(f); err == nil && json.Unmarshal(body, &r) == nil { // otherwise it was removed meanwhile
			all = append(all, r)
		}
	}
	return all
}

// killSandboxes kills the sandboxes of workers that were killed and not started again: they would wait for ten minutes.
func (c *cli) killSandboxes() {
	for _, r := range c.records() {
		if p, err := hostproc.Find(r.Ref); err == nil { // otherwise it has ended, and its pid may be another process's
			p.Kill()
			<-p.Gone
		}
		if r.Container != "" {
			_ = exec.Command("docker", "rm", "-f", r.Container).Run() // it may have ended
		}
	}
}

type outcome struct {
	code           int
	stdout, stderr string
	sync           bool // it is that of sluice sync, which has its own exit codes
}

// run runs sluice in this process, with nothing on its standard input.
func (c *cli) run(args ...string) outcome {
	c.t.Helper()
	return c.runFrom(c.null(), args...)
}

// null is an empty standard input.
func (c *cli) null() *os.File {
	c.t.Helper()
	f, err := os.Open(os.DevNull)
	testkit.Must(c.t, err)
	c.t.Cleanup(func() { _ = f.Close() })
	return f
}

func (c *cli) runFrom(stdin *os.File, args ...string) outcome {
	var stdout buffer
	got := c.runTo(stdin, &stdout, args...)
	got.stdout = stdout.String()
	return got
}

// runTo runs sluice in this process. The outcome has no standard output.
func (c *cli) runTo(stdin *os.File, stdout io.Writer, args ...string) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Timeout)
	defer cancel()
	var stderr buffer
	m := &Main{Args: c.args(args), Stdin: stdin, Stdout: stdout, Stderr: &stderr, Getenv: c.getenv}
	return outcome{code: m.Run(ctx), stderr: stderr.String(), sync: len(args) > 0 && args[0] == syncName}
}

// args puts --data first: exec takes everything after its flags for the command.
func (c *cli) args(args []string) []string { return append([]string{"--data", c.data}, args...) }

func (c *cli) getenv(name string) string {
	if v, ok := c.env[name]; ok {
		return v
	}
	switch name {
	case "PATH", "HOME":
		return os.Getenv(name)
	case "SLUICE_HTTP":
		return httpOff // tests run at the same time
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

// good runs a command that must succeed: nothing before it stopped the worker.
func (c *cli) good() {
	c.t.Helper()
	word := unique()
	c.exec("--", "echo", word).check(c.t).exits(0).prints(word + "\n")
}

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	return v
}

// result decodes the result that exec --json prints.
func (o outcome) result(t *testing.T) *schemas.Result {
	t.Helper()
	return decode[*schemas.Result](t, o.stdout)
}

// wantError checks that Sluice failed with a code, and that the message has these parts.
func (o outcome) wantError(t *testing.T, code schemas.Code, parts ...string) {
	t.Helper()
	exit := schemas.ExitSluiceFailed
	if o.sync {
		exit = syncExit(&schemas.Error{Code: code})
	}
	o.check(t).exits(exit).reports("sluice: " + string(code) + ": ").reports(parts...)
}

func (o outcome) check(t *testing.T) checks {
	t.Helper()
	return checks{t, o}
}

// checks are checks of an outcome. Each one that fails prints what was wanted and what came.
type checks struct {
	t   *testing.T
	got outcome
}

func (c checks) that(ok bool, format string, args ...any) checks {
	c.t.Helper()
	if !ok {
		c.t.Errorf(format+"; standard error: %s", append(args, c.got.stderr)...)
	}
	return c
}

func (c checks) exits(code int) checks {
	c.t.Helper()
	return c.that(c.got.code == code, "exit code = %d, want %d", c.got.code, code)
}

func (c checks) prints(stdout string) checks {
	c.t.Helper()
	return c.that(c.got.stdout == stdout, "standard output = %q, want %q", c.got.stdout, stdout)
}

func (c checks) printsPart(parts ...string) checks {
	c.t.Helper()
	for _, p := range parts {
		c.that(strings.Contains(c.got.stdout, p), "standard output = %q, want one with %q", c.got.stdout, p)
	}
	return c
}

func (c checks) printsMatch(pattern string) checks {
	c.t.Helper()
	matches := regexp.MustCompile(pattern).MatchString(c.got.stdout)
	return c.that(matches, "standard output = %q, want one that matches %q", c.got.stdout, pattern)
}

func (c checks) omits(part string) checks {
	c.t.Helper()
	return c.that(!strings.Contains(c.got.stdout, part), "standard output = %q, want one without %q", c.got.stdout, part)
}

func (c checks) reports(parts ...string) checks {
	c.t.Helper()
	for _, p := range parts {
		c.that(strings.Contains(c.got.stderr, p), "want a standard error with %q", p)
	}
	return c
}

func (c checks) reportsNothing() checks {
	c.t.Helper()
	return c.that(c.got.stderr == "", "want no standard error")
}

// unique is a word that occurs nowhere else.
func unique() string { return strings.ToLower(rand.Text()[:16]) }

// buffer holds what a program has printed so far.
type buffer struct {
	mu    sync.Mutex
	data  bytes.Buffer
	grown chan struct{} // closed at the next Write; nil while no one waits
}

// Write appends p.
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

// await waits for a text; false where the writer ended before it came.
func (b *buffer) await(text string, ended <-chan struct{}) bool {
	timeout := time.After(testkit.Timeout)
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

// digest sums output up without keeping it.
type digest struct{ hash.Hash }

func newDigest() digest { return digest{sha256.New()} }

// String is the SHA-256 of what was written so far, as sha256sum prints it.
func (d digest) String() string { return hex.EncodeToString(d.Sum(nil)) }

// count writes the output of `seq 1 n`.
func (d digest) count(n int) {
	var line []byte
	for i := range n {
		line = append(strconv.AppendInt(line[:0], int64(i+1), 10), '\n')
		d.Write(line)
	}
}

// long is the value for a test with SLUICE_LONG, or else the one for every run.
func long[T any](with, without T) T {
	if os.Getenv("SLUICE_LONG") != "" {
		return with
	}
	return without
}

// fifo is a named pipe by which a test lets a process continue. Its path has no character that a shell interprets.
func (c *cli) fifo(name string) string {
	c.t.Helper()
	path := filepath.Join(c.data, name)
	testkit.Must(c.t, unix.Mkfifo(path, 0o600))
	return path
}

// release writes a line to a fifo, once a process reads it.
func (c *cli) release(name, line string) {
	c.t.Helper()
	f, err := os.OpenFile(filepath.Join(c.data, name), os.O_WRONLY, 0)
	testkit.Must(c.t, err)
	_, err = f.WriteString(line + "\n")
	testkit.Must(c.t, errors.Join(err, f.Close()))
}
