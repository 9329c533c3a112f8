package sandboxtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

var attachTests = []test{
	{"ResumesFromStoredOffset", resumesFromOffset},
	{"KeepsExitsOfEndedProcesses", keepsExits},
	{"KeepsStdinAndSignals", keepsStdin},
	{"KeepsTimeout", keepsTimeout},
	{"KeepsSandbox", keepsSandbox},
}

// restart replaces the provider and attaches its sandbox, as a worker does that is started again after it was killed.
func (f *fixture) restart(t *testing.T) sandbox.Attached {
	t.Helper()
	detached, ok := f.provider.(sandbox.Reattacher)
	if !ok {
		t.Skip("the sandboxes of this provider end with it")
	}
	testkit.Must(t, detached.Detach())
	<-f.Done()
	next, ok := f.factory.New(t, f.dir).(sandbox.Reattacher)
	if !ok {
		t.Fatal("the restarted provider is no sandbox.Reattacher")
	}
	// Close after Detach must not end the sandbox.
	if err := detached.Close(); err != nil {
		t.Errorf("close after detach: %v", err)
	}
	f.provider = next
	found, err := next.Attach(f.ctx)
	testkit.Must(t, err)
	if len(found) != 1 {
		t.Fatalf("attached %d sandboxes, want 1", len(found))
	}
	f.Sandbox = found[0]
	return found[0]
}

// resume takes over a process at the end of the output that was read of it before.
func (f *fixture) resume(t *testing.T, s sandbox.Attached, before *testProcess) *testProcess {
	t.Helper()
	p, err := s.Resume(f.ctx, before.ID(), int64(before.stdout.Len()), int64(before.stderr.Len()))
	testkit.Must(t, err)
	r := &testProcess{Process: p, ctx: f.ctx}
	r.stdout.Write(before.stdout.Bytes())
	r.stderr.Write(before.stderr.Bytes())
	return r
}

// release releases a process and fails the test when the sandbox still holds it.
func (f *fixture) release(t *testing.T, s sandbox.Attached, r *testProcess) {
	t.Helper()
	testkit.Must(t, r.Release())
	// Any later request follows the release on the connection.
	processes, err := s.Processes(f.ctx)
	testkit.Must(t, err)
	for _, h := range processes {
		if h.ID == r.ID() {
			t.Errorf("process %s is listed after its release, want it gone", h.ID)
		}
	}
}

// resumesFromOffset: a process prints more than the supervisor buffers and waits for the next worker. Stored output is not delivered
// again, and the rest is delivered without a gap.
func resumesFromOffset(t *testing.T, f *fixture) {
	const lines = 1_200_000 // 8 MiB and more
	first := f.sh(t, fmt.Sprintf("echo on >&2; seq 1 %d; exit 7", lines))
	stored := int64(0)
	for stored < 300_000 {
		first.readChunk(t)
		stored = int64(first.stdout.Len())
	}
	s := f.restart(t)
	processes, err := s.Processes(f.ctx)
	testkit.Must(t, err)
	if len(processes) != 1 || processes[0].ID != first.ID() || processes[0].PID != first.PID() || processes[0].Ended || processes[0].Stdout > stored {
		t.Fatalf("processes = %+v, want one running process %s with pid %d and stdout at %d or less", processes, first.ID(), first.PID(), stored)
	}
	r := f.resume(t, s, first)
	_, err = s.Resume(f.ctx, first.ID(), 0, 0)
	WantCode(t, "second resume", err, schemas.CodeConflict)
	r.wantExit(t, schemas.ReasonExited, 7)
	var want bytes.Buffer
	for i := range lines {
		fmt.Fprintln(&want, i+1)
	}
	wantBytes(t, "stdout", r.stdout.Bytes(), want.Bytes())
	testkit.Equal(t, "stderr", r.stderr.String(), "on\n")
	f.release(t, s, r)
	f.wantNoLeftovers(t)
}

func keepsExits(t *testing.T, f *fixture) {
	p := f.sh(t, "echo out; echo err >&2; exit 3")
	if exit := p.wait(t); exit.Code != 3 {
		t.Fatalf("exit = %+v, want code 3", exit)
	}
	p.stderr.WriteString("err\n") // stored, as if it was read
	slow := f.sh(t, "echo begun; until [ -e go ]; do sleep 0.02; done; echo over; kill -9 $$")
	slow.readUntil(t, "begun\n")
	s := f.restart(t)
	f.writeFile(t, "go", nil, 0o644)
	r := f.resume(t, s, p)
	exit := r.wantExit(t, schemas.ReasonExited, 3)
	testkit.Equal(t, "the exit's counts of bytes", []int64{exit.Stdout, exit.Stderr}, []int64{4, 4})
	if exit.Ended.Before(exit.Started) {
		t.Errorf("ended at %v, want no time before the start at %v", exit.Ended, exit.Started)
	}
	testkit.Equal(t, "stdout", r.stdout.String(), "out\n")
	r2 := f.resume(t, s, slow)
	r2.wantExit(t, schemas.ReasonKilled, 137)
	testkit.Equal(t, "stdout", r2.stdout.String(), "begun\nover\n")
	f.release(t, s, r)
	f.release(t, s, r2)
	_, err := s.Resume(f.ctx, "never-was", 0, 0)
	WantCode(t, "resume of an unknown process", err, schemas.CodeNotFound)
}

func keepsStdin(t *testing.T, f *fixture) {
	cmd := shell("trap 'echo usr1' USR1; echo ready; while read -r l; do echo \"got $l\"; done; echo end; exit 4")
	cmd.Stdin = true
	p := f.start(t, cmd)
	p.readUntil(t, "ready\n")
	testkit.Must(t, p.WriteStdin(f.ctx, []byte("one\n")))
	p.readUntil(t, "got one\n")
	stubborn := f.sh(t, "trap '' TERM; echo on; while :; do sleep 0.05; done")
	stubborn.readUntil(t, "on\n")
	s := f.restart(t)
	processes, err := s.Processes(f.ctx)
	testkit.Must(t, err)
	if len(processes) != 2 {
		t.Fatalf("processes = %+v, want two processes", processes)
	}
	for _, h := range processes {
		if h.ID == p.ID() && (h.Stdin != 4 || h.StdinClosed) {
			t.Errorf("processes = %+v, want an open stdin at 4", h)
		}
		if h.ID == stubborn.ID() && !h.StdinClosed {
			t.Errorf("processes = %+v, want a closed stdin", h)
		}
	}
	r := f.resume(t, s, p)
	testkit.Must(t, r.WriteStdin(f.ctx, []byte("two\n")))
	r.readUntil(t, "got two\n")
	testkit.Must(t, r.Signal(10))
	// A shell that gets a signal just before it reads runs the trap after the read. It may also take the interruption of its read for the
	// end of its input.
	testkit.Must(t, r.CloseStdin())
	r.readUntil(t, "usr1\n")
	r.wantExit(t, schemas.ReasonExited, 4)
	q := f.resume(t, s, stubborn)
	testkit.Must(t, q.Kill(10*time.Millisecond))
	q.wantExit(t, schemas.ReasonKilled, 137)
	f.wantNoLeftovers(t)
}

// keepsTimeout: the timeout runs while no worker is connected. It may pass before, on a busy machine: so the script has nothing to do before it.
func keepsTimeout(t *testing.T, f *fixture) {
	cmd := shell("sleep 300 & sleep 300")
	cmd.Timeout = 500 * time.Millisecond
	p := f.start(t, cmd)
	s := f.restart(t)
	r := f.resume(t, s, p)
	r.wantExit(t, schemas.ReasonTimedOut, schemas.ExitTimedOut)
	f.wantNoLeftovers(t)
}

func keepsSandbox(t *testing.T, f *fixture) {
	f.output(t, "echo kept >/tmp/kept-$$.here && mv /tmp/kept-$$.here here && echo $PPID >super")
	first, ok := f.Sandbox.(sandbox.Attached)
	if !ok {
		t.Skip("the sandboxes of this provider end with it")
	}
	testkit.Must(t, first.SetOwner("second"))
	s := f.restart(t)
	spec := s.Spec()
	testkit.Equal(t, "the attached sandbox", []string{s.ID(), spec.ID, spec.Thread, spec.Workspace, spec.Owner},
		[]string{"box", "box", "thread-1", f.spec.Workspace, "second"})
	testkit.Equal(t, "the output with the same supervisor", f.output(t, "cat here; [ $(cat super) = $PPID ] && echo $SLUICE_THREAD $FROM_SPEC"), "kept\nthread-1 spec\n")
	_, err := f.provider.Create(f.ctx, f.spec)
	WantCode(t, "create with the id of an attached sandbox", err, schemas.CodeConflict)
	// A second restart attaches it again; a second Attach does not find it.
	s = f.restart(t)
	if next, ok := f.provider.(sandbox.Reattacher); ok {
		found, err := next.Attach(f.ctx)
		testkit.Must(t, err)
		if len(found) != 0 {
			t.Errorf("second attach found %d sandboxes, want none", len(found))
		}
	}
	f.output(t, "true")
	testkit.Must(t, s.Terminate(f.ctx, 0))
	other := f.spec
	other.ID, other.Workspace = "other", filepath.Join(f.workspace, "other")
	o := f.create(t, other)
	testkit.Equal(t, "id", o.ID(), "other")
	_, err = os.Stat(other.Workspace)
	testkit.Must(t, err)
}
