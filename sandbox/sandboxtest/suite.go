package sandboxtest

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Factory makes the providers under test.
type Factory struct {
	// New makes a provider. The suite closes it. Required.
	New func(t *testing.T) sandbox.Provider
	// Restart makes another provider on the folder of one that was detached from its sandboxes, as a worker does that is started again
	// after it was killed. The suite closes it. Required for a sandbox.Reattacher.
	Restart func(t *testing.T, detached sandbox.Provider) sandbox.Provider
	// Workspace makes an empty folder for a sandbox's workspace. Default: t.TempDir.
	Workspace func(t *testing.T) string
	// Parts are the names of the parts to run: "Start", "Sandbox" and so on. Default: all.
	Parts []string
}

// Run tests everything that the interfaces promise. Each case is a subtest with its own provider and sandbox.
func Run(t *testing.T, factory Factory) {
	if factory.Workspace == nil {
		factory.Workspace = func(t *testing.T) string { return t.TempDir() }
	}
	for _, part := range []struct {
		name  string
		tests []test
	}{
		{"Start", startTests},
		{"Child", childTests},
		{"Exit", exitTests},
		{"Output", outputTests},
		{"Stdin", stdinTests},
		{"Tree", treeTests},
		{"Many", manyTests},
		{"Sandbox", sandboxTests},
		{"Limits", limitTests},
		{"Attach", attachTests},
	} {
		if len(factory.Parts) > 0 && !slices.Contains(factory.Parts, part.name) {
			continue
		}
		t.Run(part.name, func(t *testing.T) {
			for _, tt := range part.tests {
				t.Run(tt.name, func(t *testing.T) {
					tt.run(t, newFixture(t, factory))
				})
			}
		})
	}
}

type test struct {
	name string
	run  func(t *testing.T, f *fixture)
}

// fixture is the sandbox under test with its provider.
type fixture struct {
	sandbox.Sandbox
	factory   Factory
	provider  sandbox.Provider
	workspace string
	spec      sandbox.Spec
	ctx       context.Context
	last      atomic.Int64 // the number of the last process id
}

func newFixture(t *testing.T, factory Factory) *fixture {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Timeout)
	t.Cleanup(cancel)
	f := &fixture{factory: factory, provider: factory.New(t), workspace: factory.Workspace(t), ctx: ctx}
	t.Cleanup(func() {
		if err := f.provider.Close(); err != nil {
			t.Errorf("close the provider: %v", err)
		}
	})
	f.spec = sandbox.Spec{
		ID: "box", Thread: "thread-1", Workspace: f.workspace, Env: map[string]string{"FROM_SPEC": "spec", "BOTH": "spec"}, Owner: "first",
	}
	f.Sandbox = f.create(t, f.spec)
	return f
}

// create makes a sandbox of the same provider.
func (f *fixture) create(t *testing.T, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	s, err := f.provider.Create(f.ctx, spec)
	if err != nil {
		t.Fatalf("create %s: %v", spec.ID, err)
	}
	return s
}

// start starts a command; an empty ID gets one.
func (f *fixture) start(t *testing.T, cmd sandbox.Command) *testProcess {
	t.Helper()
	if cmd.ID == "" {
		cmd.ID = f.nextID()
	}
	p, err := f.Start(f.ctx, cmd)
	if err != nil {
		t.Fatalf("start %s %q: %v", cmd.Path, cmd.Args, err)
	}
	return &testProcess{Process: p, ctx: f.ctx}
}

func (f *fixture) nextID() string { return "p" + strconv.FormatInt(f.last.Add(1), 10) }

// sh starts a script.
func (f *fixture) sh(t *testing.T, script string, args ...string) *testProcess {
	t.Helper()
	return f.start(t, shell(script, args...))
}

func shell(script string, args ...string) sandbox.Command {
	return sandbox.Command{Path: "sh", Args: append([]string{"-c", script, "sh"}, args...)}
}

// output runs a script that must exit with 0, and returns its standard output.
func (f *fixture) output(t *testing.T, script string, args ...string) string {
	t.Helper()
	r := f.sh(t, script, args...)
	exit := r.readAll(t)
	if exit.Reason != schemas.ReasonExited || exit.Code != 0 {
		t.Fatalf("%s: exit = %+v, want exited 0; stdout %q, stderr %q", script, exit, r.stdout.String(), r.stderr.String())
	}
	return r.stdout.String()
}

// writeFile writes a file into the workspace.
func (f *fixture) writeFile(t *testing.T, name string, data []byte, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(f.workspace, name)
	testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	testkit.Must(t, os.WriteFile(path, data, mode))
	return path
}

// wantNoLeftovers fails the test when the supervisor has a child, running or not reaped, besides the shell that lists them.
func (f *fixture) wantNoLeftovers(t *testing.T) {
	t.Helper()
	script := `
for f in /proc/[0-9]*/stat; do
	[ -r "$f" ] && read -r line <"$f" || continue
	pid=${f#/proc/}; pid=${pid%/stat}
	set -- ${line##*) }
	[ "$2" = "$PPID" ] && [ "$pid" != $$ ] && echo "$pid $1 $(tr '\0' ' ' <"/proc/$pid/cmdline")"
done
true`
	if left := f.output(t, "{ "+script+"\n} 2>/dev/null"); left != "" {
		t.Errorf("processes left behind: %s, want none", left)
	}
}

// testProcess is a process with the output read so far.
type testProcess struct {
	sandbox.Process
	ctx    context.Context
	stdout bytes.Buffer
	stderr bytes.Buffer
}

// readChunk reads and acks one chunk, and checks what Read promises of it; false at the end.
func (r *testProcess) readChunk(t *testing.T) bool {
	t.Helper()
	out, err := r.Read(r.ctx)
	if err == io.EOF {
		return false
	}
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	r.appendOutput(t, out)
	if err := r.Ack(out.Stream, out.Offset+int64(len(out.Data))); err != nil {
		t.Fatalf("ack: %v", err)
	}
	return true
}

func (r *testProcess) appendOutput(t *testing.T, out sandbox.Output) {
	t.Helper()
	to := &r.stdout
	if out.Stream == schemas.Stderr {
		to = &r.stderr
	} else if out.Stream != schemas.Stdout {
		t.Fatalf("stream = %q, want stdout or stderr", out.Stream)
	}
	if len(out.Data) == 0 || len(out.Data) > 256<<10 {
		t.Fatalf("chunk of %d bytes, want 1 byte to 256 KiB", len(out.Data))
	}
	if out.Offset != int64(to.Len()) {
		t.Fatalf("%s: offset of a chunk = %d, want %d", out.Stream, out.Offset, to.Len())
	}
	to.Write(out.Data)
}

// readUntil reads until the standard output contains s.
func (r *testProcess) readUntil(t *testing.T, s string) {
	t.Helper()
	for !strings.Contains(r.stdout.String(), s) {
		if !r.readChunk(t) {
			t.Fatalf("the process ended without printing %q; stdout %q, stderr %q", s, r.stdout.String(), r.stderr.String())
		}
	}
}

// readAll reads to the end and returns the exit.
func (r *testProcess) readAll(t *testing.T) sandbox.Exit {
	t.Helper()
	for r.readChunk(t) {
	}
	exit := r.wait(t)
	testkit.Equal(t, "the exit's count of stdout bytes", exit.Stdout, int64(r.stdout.Len()))
	testkit.Equal(t, "the exit's count of stderr bytes", exit.Stderr, int64(r.stderr.Len()))
	return exit
}

func (r *testProcess) wait(t *testing.T) sandbox.Exit {
	t.Helper()
	exit, err := r.Wait(r.ctx)
	if err != nil {
		t.Fatalf("wait: %v", err)
	}
	return exit
}

// wantExit reads to the end and fails the test unless the process ends with this reason and code.
func (r *testProcess) wantExit(t *testing.T, reason schemas.Reason, code int) sandbox.Exit {
	t.Helper()
	exit := r.readAll(t)
	if exit.Reason != reason || exit.Code != code {
		t.Errorf("exit = %s %d, want %s %d; stdout %q, stderr %q", exit.Reason, exit.Code, reason, code, r.stdout.String(), r.stderr.String())
	}
	return exit
}

// kill kills the process, which must then end with SIGKILL.
func (r *testProcess) kill(t *testing.T) {
	t.Helper()
	testkit.Must(t, r.Kill(0))
	r.wantExit(t, schemas.ReasonKilled, 137)
}

// wantCode fails the test unless err has this code, and lets it go on.
func wantCode(t *testing.T, what string, err error, want schemas.Code) {
	t.Helper()
	if got := schemas.CodeOf(err); got != want {
		t.Errorf("%s: code = %q, want %q (error: %v)", what, got, want, err)
	}
}

// wantNoLimit fails the test when a command's exit reports an exceeded limit.
func wantNoLimit(t *testing.T, what string, exit sandbox.Exit) {
	t.Helper()
	if exit.Limit != nil {
		t.Errorf("%s: limit = %v, want none", what, exit.Limit)
	}
}

// wantBytes is testkit.Equal for large data: it does not print them.
func wantBytes(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got %d bytes, want %d bytes, and the content differs", what, len(got), len(want))
	}
}
