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
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Patience is how long the suite waits for anything before it calls it a hang: 2 minutes.
const Patience = 2 * time.Minute

// Factory says how to get a provider.
type Factory struct {
	// New makes a provider. The suite closes it. Required.
	New func(t *testing.T) sandbox.Provider
	// Next makes another provider on the folder of one that has left its sandboxes, as a worker does that was killed and is
	// started again. The suite closes it. Required, unless the provider is no sandbox.Reattacher.
	Next func(t *testing.T, left sandbox.Provider) sandbox.Provider
	// Workspace makes an empty folder that sandboxes may have as their workspace. Default: t.TempDir.
	Workspace func(t *testing.T) string
	// Parts are those to run, by name: "Start", "Sandbox" and so on. Default: all.
	Parts []string
}

// Run tries out everything the interfaces promise. Each part is a subtest, with a provider and a sandbox of its own.
func Run(t *testing.T, f Factory) {
	if f.Workspace == nil {
		f.Workspace = func(t *testing.T) string { return t.TempDir() }
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
		if len(f.Parts) > 0 && !slices.Contains(f.Parts, part.name) {
			continue
		}
		t.Run(part.name, func(t *testing.T) {
			for _, tt := range part.tests {
				t.Run(tt.name, func(t *testing.T) {
					tt.run(t, newBox(t, f))
				})
			}
		})
	}
}

type test struct {
	name string
	run  func(t *testing.T, b *box)
}

// box is a sandbox with what a test needs around it.
type box struct {
	sandbox.Sandbox
	factory   Factory
	provider  sandbox.Provider
	workspace string
	spec      sandbox.Spec
	ctx       context.Context
	last      atomic.Int64
}

func newBox(t *testing.T, f Factory) *box {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	b := &box{factory: f, provider: f.New(t), workspace: f.Workspace(t), ctx: ctx}
	t.Cleanup(func() {
		if err := b.provider.Close(); err != nil {
			t.Errorf("close the provider: %v", err)
		}
	})
	b.spec = sandbox.Spec{
		ID: "box", Thread: "thread-1", Workspace: b.workspace, Env: map[string]string{"FROM_SPEC": "spec", "BOTH": "spec"}, Owner: "first",
	}
	s, err := b.provider.Create(ctx, b.spec)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	b.Sandbox = s
	return b
}

// start runs a command that must start; an empty ID gets one.
func (b *box) start(t *testing.T, cmd sandbox.Command) *run {
	t.Helper()
	if cmd.ID == "" {
		cmd.ID = b.id()
	}
	p, err := b.Start(b.ctx, cmd)
	if err != nil {
		t.Fatalf("start %s %q: %v", cmd.Path, cmd.Args, err)
	}
	return &run{Process: p, ctx: b.ctx}
}

func (b *box) id() string { return "p" + strconv.FormatInt(b.last.Add(1), 10) }

// sh starts a script.
func (b *box) sh(t *testing.T, script string, args ...string) *run {
	t.Helper()
	return b.start(t, shell(script, args...))
}

func shell(script string, args ...string) sandbox.Command {
	return sandbox.Command{Path: "sh", Args: append([]string{"-c", script, "sh"}, args...)}
}

// say runs a script to its end, which must be 0, and gives what it printed on its standard output.
func (b *box) say(t *testing.T, script string, args ...string) string {
	t.Helper()
	r := b.sh(t, script, args...)
	exit := r.finish(t)
	if exit.Reason != schemas.ReasonExited || exit.Code != 0 {
		t.Fatalf("%s: %+v, printed %q, %q", script, exit, r.stdout.String(), r.stderr.String())
	}
	return r.stdout.String()
}

// file puts a file into the workspace.
func (b *box) file(t *testing.T, name string, data []byte, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(b.workspace, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// alone fails unless the supervisor has no other child than the one that looks: nothing was left behind, alive or dead.
func (b *box) alone(t *testing.T) {
	t.Helper()
	script := `
for f in /proc/[0-9]*/stat; do
	[ -r "$f" ] && read -r line <"$f" || continue
	pid=${f#/proc/}; pid=${pid%/stat}
	set -- ${line##*) }
	[ "$2" = "$PPID" ] && [ "$pid" != $$ ] && echo "$pid $1 $(tr '\0' ' ' <"/proc/$pid/cmdline")"
done
true`
	if left := b.say(t, "{ "+script+"\n} 2>/dev/null"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// run is a process with what it has printed so far.
type run struct {
	sandbox.Process
	ctx    context.Context
	stdout bytes.Buffer
	stderr bytes.Buffer
}

// next reads one piece, checks what Read promises of it, and acks it; false at the end.
func (r *run) next(t *testing.T) bool {
	t.Helper()
	out, err := r.Read(r.ctx)
	if err == io.EOF {
		return false
	}
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	r.take(t, out)
	if err := r.Ack(out.Stream, out.Offset+int64(len(out.Data))); err != nil {
		t.Fatalf("ack: %v", err)
	}
	return true
}

func (r *run) take(t *testing.T, out sandbox.Output) {
	t.Helper()
	to := &r.stdout
	if out.Stream == schemas.Stderr {
		to = &r.stderr
	} else if out.Stream != schemas.Stdout {
		t.Fatalf("stream %q", out.Stream)
	}
	if len(out.Data) == 0 || len(out.Data) > 256<<10 {
		t.Fatalf("a piece of %d bytes", len(out.Data))
	}
	if out.Offset != int64(to.Len()) {
		t.Fatalf("%s: a piece at %d after %d bytes", out.Stream, out.Offset, to.Len())
	}
	to.Write(out.Data)
}

// until reads until the standard output holds s.
func (r *run) until(t *testing.T, s string) {
	t.Helper()
	for !strings.Contains(r.stdout.String(), s) {
		if !r.next(t) {
			t.Fatalf("ended without printing %q: %q, %q", s, r.stdout.String(), r.stderr.String())
		}
	}
}

// finish reads to the end and gives the exit record.
func (r *run) finish(t *testing.T) sandbox.Exit {
	t.Helper()
	for r.next(t) {
	}
	exit := r.wait(t)
	if exit.Stdout != int64(r.stdout.Len()) || exit.Stderr != int64(r.stderr.Len()) {
		t.Errorf("exit record counts %d and %d bytes, %d and %d came", exit.Stdout, exit.Stderr, r.stdout.Len(), r.stderr.Len())
	}
	return exit
}

func (r *run) wait(t *testing.T) sandbox.Exit {
	t.Helper()
	exit, err := r.Wait(r.ctx)
	if err != nil {
		t.Fatalf("wait: %v", err)
	}
	return exit
}

// ends fails unless the process ends as given.
func (r *run) ends(t *testing.T, reason schemas.Reason, code int) sandbox.Exit {
	t.Helper()
	exit := r.finish(t)
	if exit.Reason != reason || exit.Code != code {
		t.Errorf("ended %s %d, want %s %d; printed %q, %q", exit.Reason, exit.Code, reason, code, r.stdout.String(), r.stderr.String())
	}
	return exit
}

func is(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func code(t *testing.T, what string, err error, want schemas.Code) {
	t.Helper()
	if schemas.CodeOf(err) != want {
		t.Errorf("%s: got %v (%s), want %s", what, err, schemas.CodeOf(err), want)
	}
}
