package sandboxtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

var attachTests = []test{
	{"GoesOnFromTheStoredOffset", goesOn},
	{"KeepsWhatEndedMeanwhile", keepsEnded},
	{"KeepsStdinAndSignals", keepsStdin},
	{"KeepsTheTimeout", keepsTimeout},
	{"IsTheSameSandbox", sameSandbox},
}

// again is what a worker does that was killed, and started anew: the box is then the attached one.
func (b *box) again(t *testing.T) sandbox.Attached {
	t.Helper()
	left, ok := b.provider.(sandbox.Reattacher)
	if !ok {
		t.Skip("sandboxes of this provider end with it")
	}
	if err := left.Detach(); err != nil {
		t.Fatalf("leave: %v", err)
	}
	<-b.Done()
	next, ok := b.factory.Next(t, b.provider).(sandbox.Reattacher)
	if !ok {
		t.Fatal("the next provider is no Reattacher")
	}
	// The one that left ends nothing more.
	if err := left.Close(); err != nil {
		t.Errorf("close after leave: %v", err)
	}
	b.provider = next
	found, err := next.Attach(b.ctx)
	if err != nil || len(found) != 1 {
		t.Fatalf("attach: %d sandboxes, %v", len(found), err)
	}
	b.Sandbox = found[0]
	return found[0]
}

func (b *box) resume(t *testing.T, s sandbox.Attached, id string, stdout, stderr int64) *run {
	t.Helper()
	p, err := s.Resume(b.ctx, id, stdout, stderr)
	if err != nil {
		t.Fatalf("resume %s: %v", id, err)
	}
	return &run{Process: p, ctx: b.ctx}
}

// released fails unless the sandbox forgets a process.
func (b *box) released(t *testing.T, s sandbox.Attached, r *run) {
	t.Helper()
	if err := r.Release(); err != nil {
		t.Errorf("release %s: %v", r.ID(), err)
	}
	// A request of any kind brings the release along.
	held, err := s.Held(b.ctx)
	if err != nil {
		t.Fatalf("held: %v", err)
	}
	for _, h := range held {
		if h.ID == r.ID() {
			t.Errorf("%s is held after its release", h.ID)
		}
	}
}

// goesOn: more is printed than is held, so that the process has to wait for the next worker; what was stored does not come
// again, and the rest comes without a hole.
func goesOn(t *testing.T, b *box) {
	const lines = 1_200_000 // 8 MiB and more
	first := b.sh(t, fmt.Sprintf("echo on >&2; seq 1 %d; exit 7", lines))
	stored := int64(0)
	for stored < 300_000 {
		first.next(t)
		stored = int64(first.stdout.Len())
	}
	s := b.again(t)
	held, err := s.Held(b.ctx)
	if err != nil || len(held) != 1 || held[0].ID != first.ID() || held[0].PID != first.PID() || held[0].Ended || held[0].Stdout > stored {
		t.Fatalf("held: %+v, %v", held, err)
	}
	r := b.resume(t, s, first.ID(), stored, 0)
	r.stdout.Write(first.stdout.Bytes())
	if _, err := s.Resume(b.ctx, first.ID(), 0, 0); schemas.CodeOf(err) != schemas.CodeConflict {
		t.Errorf("resumed twice: %v", err)
	}
	r.ends(t, schemas.ReasonExited, 7)
	var want bytes.Buffer
	for i := range lines {
		fmt.Fprintln(&want, i+1)
	}
	if !bytes.Equal(r.stdout.Bytes(), want.Bytes()) || r.stderr.String() != "on\n" {
		t.Errorf("%d bytes, want %d, and %q", r.stdout.Len(), want.Len(), r.stderr.String())
	}
	b.released(t, s, r)
	b.alone(t)
}

func keepsEnded(t *testing.T, b *box) {
	p := b.sh(t, "echo out; echo err >&2; exit 3")
	if exit := p.wait(t); exit.Code != 3 {
		t.Fatalf("%+v", exit)
	}
	slow := b.sh(t, "echo begun; until [ -e go ]; do sleep 0.02; done; echo over; kill -9 $$")
	slow.until(t, "begun\n")
	s := b.again(t)
	b.file(t, "go", nil, 0o644)
	r := b.resume(t, s, p.ID(), 0, 4) // of stderr all was stored
	r.stderr.WriteString("err\n")
	exit := r.ends(t, schemas.ReasonExited, 3)
	if exit.Stdout != 4 || exit.Stderr != 4 || exit.Ended.Before(exit.Started) {
		t.Errorf("%+v", exit)
	}
	is(t, "stdout", r.stdout.String(), "out\n")
	r2 := b.resume(t, s, slow.ID(), 6, 0)
	r2.stdout.WriteString("begun\n")
	r2.ends(t, schemas.ReasonKilled, 137)
	is(t, "stdout", r2.stdout.String(), "begun\nover\n")
	b.released(t, s, r)
	b.released(t, s, r2)
	if _, err := s.Resume(b.ctx, "never-was", 0, 0); schemas.CodeOf(err) != schemas.CodeNotFound {
		t.Errorf("resume of nothing: %v", err)
	}
}

func keepsStdin(t *testing.T, b *box) {
	cmd := shell("trap 'echo usr1' USR1; echo ready; while read -r l; do echo \"got $l\"; done; echo end; exit 4")
	cmd.Stdin = true
	p := b.start(t, cmd)
	p.until(t, "ready\n")
	if err := p.WriteStdin(b.ctx, []byte("one\n")); err != nil {
		t.Fatal(err)
	}
	p.until(t, "got one\n")
	rude := b.sh(t, "trap '' TERM; echo on; while :; do sleep 0.05; done")
	rude.until(t, "on\n")
	s := b.again(t)
	held, err := s.Held(b.ctx)
	if err != nil || len(held) != 2 {
		t.Fatalf("held: %+v, %v", held, err)
	}
	for _, h := range held {
		if h.ID == p.ID() && (h.Stdin != 4 || h.StdinClosed) || h.ID == rude.ID() && !h.StdinClosed {
			t.Errorf("%+v", h)
		}
	}
	r := b.resume(t, s, p.ID(), int64(p.stdout.Len()), 0)
	r.stdout.Write(p.stdout.Bytes())
	if err := r.WriteStdin(b.ctx, []byte("two\n")); err != nil {
		t.Fatal(err)
	}
	r.until(t, "got two\n")
	if err := r.Signal(10); err != nil {
		t.Error(err)
	}
	r.until(t, "usr1\n")
	if err := r.CloseStdin(); err != nil {
		t.Error(err)
	}
	// A shell whose read a signal has interrupted may take that for the end of its input.
	r.ends(t, schemas.ReasonExited, 4)
	q := b.resume(t, s, rude.ID(), 3, 0)
	q.stdout.WriteString("on\n")
	if err := q.Kill(10 * time.Millisecond); err != nil {
		t.Error(err)
	}
	q.ends(t, schemas.ReasonKilled, 137)
	b.alone(t)
}

// keepsTimeout: the time runs while nobody is there.
func keepsTimeout(t *testing.T, b *box) {
	cmd := shell("echo on; sleep 300 & sleep 300")
	cmd.Timeout = 500 * time.Millisecond
	p := b.start(t, cmd)
	p.until(t, "on\n")
	s := b.again(t)
	r := b.resume(t, s, p.ID(), 3, 0)
	r.stdout.WriteString("on\n")
	r.ends(t, schemas.ReasonTimedOut, schemas.ExitTimedOut)
	b.alone(t)
}

func sameSandbox(t *testing.T, b *box) {
	b.say(t, "echo kept >/tmp/kept-$$.here && mv /tmp/kept-$$.here here && echo $PPID >super")
	first, ok := b.Sandbox.(sandbox.Attached)
	if !ok {
		t.Skip("sandboxes of this provider end with it")
	}
	if err := first.SetOwner("second"); err != nil {
		t.Fatal(err)
	}
	s := b.again(t)
	spec := s.Spec()
	if s.ID() != "box" || spec.ID != "box" || spec.Thread != "thread-1" || spec.Workspace != b.spec.Workspace || spec.Owner != "second" {
		t.Errorf("%+v", spec)
	}
	is(t, "the same supervisor", b.say(t, "cat here; [ $(cat super) = $PPID ] && echo $SLUICE_THREAD $FROM_SPEC"), "kept\nthread-1 spec\n")
	if _, err := b.provider.Create(b.ctx, b.spec); schemas.CodeOf(err) != schemas.CodeConflict {
		t.Errorf("made twice: %v", err)
	}
	// Left and attached once more; what is attached already is not found again.
	s = b.again(t)
	if next, ok := b.provider.(sandbox.Reattacher); ok {
		if found, err := next.Attach(b.ctx); err != nil || len(found) != 0 {
			t.Errorf("attached twice: %v, %v", found, err)
		}
	}
	b.say(t, "true")
	if err := s.Terminate(b.ctx, 0); err != nil {
		t.Error(err)
	}
	other := b.spec
	other.ID, other.Workspace = "other", filepath.Join(b.workspace, "other")
	o, err := b.provider.Create(b.ctx, other)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(other.Workspace); err != nil || strings.Contains(o.ID(), "box") {
		t.Error(o.ID(), err)
	}
}
