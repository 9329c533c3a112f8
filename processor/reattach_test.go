package processor_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// crash ends a worker like SIGKILL: it publishes nothing more, and leaves its sandboxes. No process may print meanwhile.
func (r *rig) crash() {
	r.cell.t.Helper()
	r.Publisher().Fence()
	r.cell.must(r.provider.Detach())
	r.conn.Close()
}

// again restarts a worker that crashed, on the same folder.
func (r *rig) again(edit ...func(*processor.Config)) *rig {
	c := r.cell
	c.t.Helper()
	c.next = newTestProvider(c, r.provider.dir)
	return c.worker(r.Config().Worker, edit...)
}

// file puts a file into thread t's workspace.
func (c *cell) file(name string) {
	c.t.Helper()
	c.must(os.WriteFile(filepath.Join(c.dir, "workspaces", schemas.DefaultTenant, "t", name), nil, 0o600))
}

func TestProcessResumesAfterItsWorkerWasKilled(t *testing.T) {
	c, dead := newRig(t, hasty)
	e := sh("echo one; echo err >&2; until [ -e go ]; do sleep 0.02; done; echo two; echo err2 >&2; echo ran >>runs; exit 7")
	limit := int64(6)
	e.OutputLimit = &limit
	cmd := command("k", e)
	call := c.send(cmd)
	process := processOf(cmd)
	c.output(process, "one")
	c.output(process, "err")
	started := c.awaitType(process, schemas.TypeProcessStarted)
	dead.crash()

	w := dead.again()
	w.awaitLine("process_resumed")
	// A second caller attaches to it; another command with the key is refused.
	_, answers := w.deliver(cmd, false, 1)
	w.wantAnswer(command("k", sh("echo other")), false, 1, schemas.ActionDead, failed(schemas.CodeConflict))
	c.file("go")
	for _, r := range []*schemas.Result{c.end(call), c.terminal(answers)} {
		wantFields(t, r, schemas.Result{
			Reason: schemas.ReasonExited, ExitCode: 7, Stdout: "one\ntw", Stderr: "err\ner", StdoutTruncated: true, StdoutBytes: 8, StderrBytes: 9,
		})
		equal(t, "error", r.Error, nil)
		equal(t, "arguments", len(r.Args), 2)
		if r.Log == nil || r.DurationMS <= 0 {
			t.Errorf("log range %v, duration %v ms: want both", r.Log, r.DurationMS)
		}
	}
	c.wantRecords(process, schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)
	if got := c.output(process, "err2"); strings.Count(got, "one") != 1 || strings.Count(got, "two") != 1 || strings.Count(got, "err2") != 1 {
		t.Errorf("the log holds %q, want each line once", got)
	}
	wantFields(t, c.exec(cmd), schemas.Result{ExitCode: 7})
	// The thread continues in the same sandbox.
	r := c.exec(command("k2", sh("cat runs")))
	var s, s2 schemas.Started
	c.must(started.Decode(&s))
	c.must(c.awaitType(r.Process, schemas.TypeProcessStarted).Decode(&s2))
	equal(t, "r.Stdout", r.Stdout, "ran\n")
	equal(t, "s2.Sandbox", s2.Sandbox, s.Sandbox)
	equal(t, "r.Epoch", r.Epoch, 2)
	w.awaitForgotten()
}

// awaitLine waits for a line of a worker's log.
func (r *rig) awaitLine(message string) {
	c := r.cell
	c.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for len(r.log.of(message)) == 0 {
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			c.t.Fatalf("no log line %s, want one", message)
		}
	}
}

func TestResumedProcessGetsControlsAndTimeouts(t *testing.T) {
	t.Parallel()
	c, dead := newRig(t, hasty)
	fed := sh("echo on; while read l; do echo got $l; done; echo end")
	fed.StdinOpen, fed.Stdin = true, []byte("zero\n")
	stubborn := sh("trap '' TERM; echo on; while :; do sleep 0.05; done")
	timed := sh("echo on; sleep 300")
	timed.TimeoutMS = 3000
	fedCmd, killed, late := command("fed", fed), command("killed", stubborn), command("timed", timed)
	calls := []schemas.Reason{schemas.ReasonExited, schemas.ReasonKilled, schemas.ReasonTimedOut}
	one, two, three := c.send(fedCmd), c.send(killed), c.send(late)
	c.output(processOf(fedCmd), "got zero")
	c.output(processOf(killed), "on")
	c.output(processOf(late), "on")
	c.must(dead.feed(processOf(fedCmd), 0, "one\n", false))
	c.output(processOf(fedCmd), "got one")
	dead.crash()

	w := dead.again()
	// A piece whose answer was lost is sent once more; the next one follows it.
	c.must(w.feed(processOf(fedCmd), 0, "one\n", false))
	c.must(w.feed(processOf(fedCmd), 4, "two\n", true))
	c.must(w.control(processOf(killed), schemas.Control{Kill: &schemas.KillRequest{GraceMS: 10}}))
	for i, r := range []*schemas.Result{c.end(one), c.end(two), c.end(three)} {
		wantFields(t, r, schemas.Result{Reason: calls[i]})
		if i == 0 && r.Stdout != "on\ngot zero\ngot one\ngot two\nend\n" {
			t.Errorf("stdout = %q, want the answers to all input", r.Stdout)
		}
	}
}

func TestProcessThatCannotResumeIsLost(t *testing.T) {
	c, dead := newRig(t, hasty)
	// Its input is larger than what pipe and supervisor hold, and the rest was lost with the worker.
	hungry := sh("echo on; until [ -e never ]; do sleep 0.02; done; cat >eaten")
	hungry.Stdin = make([]byte, 500<<10)
	orphan := command("orphan", sh("echo on; sleep 300"))
	orphan.Thread = "t2"
	cmd := command("hungry", hungry)
	c.send(cmd)
	c.send(orphan)
	c.output(processOf(cmd), "on")
	c.awaitType(processOf(cmd), schemas.TypeProcessStarted)
	c.awaitType(processOf(orphan), schemas.TypeProcessStarted)
	var other sandbox.Sandbox
	for _, sb := range dead.provider.sandboxes() {
		if a, ok := sb.(sandbox.Attached); ok && a.Spec().Thread == "t2" {
			other = sb
		}
	}
	// Its sandbox is gone when the worker restarts.
	dead.Publisher().Fence()
	c.must(other.Terminate(c.ctx, 0))
	dead.crash()
	dead.again()
	for _, process := range []string{processOf(cmd), processOf(orphan)} {
		wantFields(t, c.result(c.awaitType(process, schemas.TypeProcessLost)), schemas.Result{Reason: schemas.ReasonLost})
	}
	if _, err := os.Stat(filepath.Join(c.dir, "workspaces", "default", "t", "eaten")); !errors.Is(err, os.ErrNotExist) {
		t.Error("the process got a part of its input")
	}
	wantFields(t, c.exec(command("after", sh("echo on"))), schemas.Result{Stdout: "on\n"})
}

// newLost starts a script on the worker w1, which crashes. The worker w2 reports the process as lost.
func newLost(t *testing.T, script string) (c *cell, dead *rig, cmd *schemas.Command) {
	t.Helper()
	c, dead = newRig(t, hasty)
	cmd = command("k", sh(script))
	call := c.start(cmd, "on")
	dead.crash()
	c.lapse("w1")
	c.worker("w2", soon)
	wantFields(t, c.end(call), schemas.Result{Reason: schemas.ReasonLost})
	return c, dead, cmd
}

func TestSandboxOfATakenThreadIsEnded(t *testing.T) {
	c, dead, cmd := newLost(t, "echo on; sleep 300")
	wantFields(t, c.exec(command("k2", sh("echo two"))), schemas.Result{Stdout: "two\n", Worker: "w2"})
	w := dead.again()
	equal(t, "sandbox_stale lines", len(w.log.of("sandbox_stale")), 1)
	c.wantRecords(processOf(cmd), schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessLost)
	w.stop()
	if left, err := filepath.Glob(filepath.Join(dead.provider.dir, "kept", "*")); err != nil || len(left) != 0 {
		t.Errorf("folders %v are left, error %v; want none", left, err)
	}
}

// A worker whose lease lapsed, and whose thread no other worker claimed, owns the thread again; its process is lost.
func TestProcessReportedLostIsEnded(t *testing.T) {
	c, dead, _ := newLost(t, "echo on; trap '' TERM; sleep 300; echo over >over")
	w := dead.again()
	if w.Sessions().Find("default", "t") == nil {
		t.Fatal("the worker does not own the thread again")
	}
	w.awaitForgotten()
	wantFields(t, c.exec(command("k2", sh("echo on"))), schemas.Result{Stdout: "on\n", Worker: "w1"})
}
