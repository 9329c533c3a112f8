package sandboxtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Start starts a command that must start.
func Start(t *testing.T, s sandbox.Sandbox, cmd sandbox.Command) sandbox.Process {
	t.Helper()
	p, err := s.Start(testkit.Context(t), cmd)
	if err != nil {
		t.Fatalf("start %s %q: %v", cmd.Path, cmd.Args, err)
	}
	return p
}

// StartShell starts a script as the process id.
func StartShell(t *testing.T, s sandbox.Sandbox, id, script string) sandbox.Process {
	t.Helper()
	return Start(t, s, sandbox.Command{ID: id, Path: "sh", Args: []string{"-c", script}})
}

// Result is the exit of a process and what it printed on each stream, at most 1 MiB of it.
type Result struct {
	sandbox.Exit
	Stdout, Stderr string
}

// maxResult bounds the output in a Result, in bytes.
const maxResult = 1 << 20

// Finish reads and acks a process's output to its end. Errors: those of Read, Ack and Wait, but an ack in a sandbox that has ended
// may fail.
func Finish(ctx context.Context, p sandbox.Process) (Result, error) {
	var stdout, stderr strings.Builder
	for {
		out, err := p.Read(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			return Result{}, fmt.Errorf("read %s: %w", p.ID(), err)
		}
		to := &stdout
		if out.Stream == schemas.Stderr {
			to = &stderr
		}
		if to.Len() < maxResult {
			to.Write(out.Data)
		}
		if err := p.Ack(out.Stream, out.Offset+int64(len(out.Data))); err != nil && !errors.Is(err, schemas.ErrUnavailable) {
			return Result{}, fmt.Errorf("ack %s: %w", p.ID(), err)
		}
	}
	exit, err := p.Wait(ctx)
	return Result{Exit: exit, Stdout: stdout.String(), Stderr: stderr.String()}, err
}

// MustFinish is Finish for a process whose output must be read: its stdout followed by its stderr.
func MustFinish(t *testing.T, p sandbox.Process) (output string, exit sandbox.Exit) {
	t.Helper()
	r, err := Finish(testkit.Context(t), p)
	testkit.Must(t, err)
	return r.Stdout + r.Stderr, r.Exit
}

// Shell runs a script as the process id, and returns its stdout followed by its stderr.
func Shell(t *testing.T, s sandbox.Sandbox, id, script string) (output string, exit sandbox.Exit) {
	t.Helper()
	return MustFinish(t, StartShell(t, s, id, script))
}

// WantShell runs a script that must print this and exit with 0.
func WantShell(t *testing.T, s sandbox.Sandbox, id, script, want string) {
	t.Helper()
	out, exit := Shell(t, s, id, script)
	testkit.Equal(t, "output of "+script, out, want)
	testkit.Equal(t, "exit code of "+script, exit.Code, 0)
}

// AttachOne attaches the sandbox of a killed worker, which must be the only one and have one process, running.
func AttachOne(t *testing.T, p sandbox.Reattacher) (sandbox.Attached, sandbox.ProcessState) {
	t.Helper()
	found, err := p.Attach(testkit.Context(t))
	testkit.Must(t, err)
	if len(found) != 1 {
		t.Fatalf("attached %d sandboxes, want 1", len(found))
	}
	processes, err := found[0].Processes(testkit.Context(t))
	testkit.Must(t, err)
	if len(processes) != 1 || processes[0].Ended {
		t.Fatalf("processes = %+v, want one that runs", processes)
	}
	return found[0], processes[0]
}

// KilledWorker runs this test binary with these arguments, kills it after its first line, and returns that line.
func KilledWorker(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	err = errors.Join(err, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	if err != nil {
		t.Fatalf("worker printed %q: %v", line, err)
	}
	return strings.TrimSpace(line)
}

// WantNoFiles fails the test when a file matches one of the patterns.
func WantNoFiles(t *testing.T, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		left, err := filepath.Glob(pattern)
		testkit.Must(t, err)
		if len(left) > 0 {
			t.Errorf("files left of %s: %q, want none", pattern, left)
		}
	}
}
