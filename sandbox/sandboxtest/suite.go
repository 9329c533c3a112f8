package sandboxtest

import (
	"bytes"
	"context"
	"errors"
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
	// New makes a provider with its run folder in dir, whose path is short. The suite closes it. A second call with the same dir
	// follows a Detach of the first provider, as when a killed worker is started again. Required.
	New func(t *testing.T, dir string) sandbox.Provider
	// Dir makes the folder for New. Default: testkit.ShortDir.
	Dir func(tb testing.TB) string
	// Parts are the names of the parts to run: "Start", "Sandbox" and so on. Default: all.
	Parts []string
}

// Run tests everything that the interfaces promise. Each case is a subtest. The cases of a part about commands or files share a sandbox, whose
// workspace is empty when a case begins, and get a new one after a case that has failed: to start a sandbox costs most providers more than a
// case does. Each case about the sandbox itself has its own provider and sandbox.
func Run(t *testing.T, factory Factory) {
	for _, p := range []part{
		{"Start", startTests, true},
		{"Child", childTests, true},
		{"Exit", exitTests, true},
		{"Output", outputTests, true},
		{"Stdin", stdinTests, true},
		{"Terminal", terminalTests, true},
		{"Tree", treeTests, true},
		{"Many", manyTests, true},
		{"Sandbox", sandboxTests, false},
		{"Limits", limitTests, false},
		{"Usage", usageTests, false},
		{"Dial", dialTests, false},
		{"Attach", attachTests, false},
		{"Files", fileTests, true},
		{"BadFiles", badFileTests, true},
	} {
		if len(factory.Parts) > 0 && !slices.Contains(factory.Parts, p.name) {
			continue
		}
		t.Run(p.name, func(t *testing.T) { p.run(t, factory) })
	}
}

// part is some of the cases.
type part struct {
	name   string
	tests  []test
	shared bool // the cases share a sandbox
}

func (p *part) run(t *testing.T, factory Factory) {
	var f *fixture
	for _, tt := range p.tests {
		if p.shared && f == nil {
			f = newFixture(t, factory)
		}
		passed := t.Run(tt.name, func(t *testing.T) {
			if !p.shared {
				tt.run(t, newFixture(t, factory))
				return
			}
			f.ctx = testkit.Context(t)
			emptyDir(t, f.workspace)
			tt.run(t, f)
		})
		if !passed {
			f = nil
		}
	}
}

func emptyDir(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	testkit.Must(t, err)
	for _, e := range entries {
		testkit.Must(t, os.RemoveAll(filepath.Join(dir, e.Name())))
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
	dir       string // for Factory.New
	provider  sandbox.Provider
	workspace string
	spec      sandbox.Spec
	ctx       context.Context
	last      atomic.Int64 // the number of the last process id
}

func newFixture(t *testing.T, factory Factory) *fixture {
	t.Helper()
	dir := testkit.ShortDir
	if factory.Dir != nil {
		dir = factory.Dir
	}
	f := &fixture{factory: factory, dir: dir(t), workspace: t.TempDir(), ctx: testkit.Context(t)}
	f.provider = factory.New(t, f.dir)
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

func (f *fixture) create(t *testing.T, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	s, err := f.provider.Create(f.ctx, spec)
	testkit.Must(t, err)
	return s
}

// start starts a command; an empty ID gets one.
func (f *fixture) start(t *testing.T, cmd sandbox.Command) *testProcess {
	t.Helper()
	if cmd.ID == "" {
		cmd.ID = f.nextID()
	}
	return &testProcess{Process: Start(t, f.Sandbox, cmd), ctx: f.ctx}
}

// run starts a command that must exit with 0, and reads its output.
func (f *fixture) run(t *testing.T, cmd sandbox.Command) *testProcess {
	t.Helper()
	r := f.start(t, cmd)
	r.wantExit(t, schemas.ReasonExited, 0)
	return r
}

func (f *fixture) nextID() string { return "p" + strconv.FormatInt(f.last.Add(1), 10) }

func (f *fixture) sh(t *testing.T, script string, args ...string) *testProcess {
	t.Helper()
	return f.start(t, shell(script, args...))
}

// shReady starts a script and reads its output until it has printed ready.
func (f *fixture) shReady(t *testing.T, script string) *testProcess {
	t.Helper()
	r := f.sh(t, script)
	r.readUntil(t, "ready")
	return r
}

func shell(script string, args ...string) sandbox.Command {
	return sandbox.Command{Path: "sh", Args: append([]string{"-c", script, "sh"}, args...)}
}

// output runs a script that must exit with 0, and returns its standard output.
func (f *fixture) output(t *testing.T, script string, args ...string) string {
	t.Helper()
	r := f.run(t, shell(script, args...))
	return r.stdout.String()
}

func (f *fixture) canceled() context.Context {
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	return ctx
}

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

func (r *testProcess) readUntil(t *testing.T, s string) {
	t.Helper()
	for !strings.Contains(r.stdout.String(), s) {
		if !r.readChunk(t) {
			t.Fatalf("the process ended without printing %q; stdout %q, stderr %q", s, r.stdout.String(), r.stderr.String())
		}
	}
}

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
	testkit.Must(t, err)
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

// wantEnd closes the standard input of a process that must then exit with 0.
func (r *testProcess) wantEnd(t *testing.T) {
	t.Helper()
	testkit.Must(t, r.CloseStdin())
	r.wantExit(t, schemas.ReasonExited, 0)
}

// kill kills the process, which must then end with SIGKILL.
func (r *testProcess) kill(t *testing.T) {
	t.Helper()
	testkit.Must(t, r.Kill(0))
	r.wantExit(t, schemas.ReasonKilled, 137)
}

// WantCode fails the test unless err has this code, and lets it go on.
func WantCode(t *testing.T, what string, err error, want schemas.Code) {
	t.Helper()
	if got := schemas.CodeOf(err); got != want {
		t.Errorf("%s: code = %q, want %q (error: %v)", what, got, want, err)
	}
}

// wantError fails the test unless err is this error, and lets it go on.
func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error = %v, want %v", what, err, want)
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
