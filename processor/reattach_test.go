package processor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// crash ends a worker as SIGKILL would: it tells nobody anything, and its sandboxes are left. Nothing may be printed meanwhile.
func (r *rig) crash() {
	r.cell.t.Helper()
	r.fenced.Store(true)
	r.cell.must(r.stage.Detach())
	r.conn.Close()
}

// again starts a worker on the folder of one that crashed.
func (c *cell) again(dead *rig, edit ...func(*Config)) *rig {
	c.t.Helper()
	c.next = stageIn(c, dead.stage.dir)
	return c.worker(dead.cfg.Worker, edit...)
}

// file puts a file into thread t's workspace.
func (c *cell) file(name string) {
	c.t.Helper()
	c.must(os.WriteFile(filepath.Join(c.dir, "workspaces", schemas.DefaultTenant, "t", name), nil, 0o600))
}

func TestAProcessGoesOnAfterItsWorkerWasKilled(t *testing.T) {
	c := newCell(t)
	dead := c.worker("w1", hasty)
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

	w := c.again(dead)
	if got := w.log.of("process_resumed"); len(got) == 0 {
		c.awaitLine(w, "process_resumed")
	}
	// A second caller attaches to it; another command under the key is refused.
	_, answers := w.deliver(cmd, false, 1)
	if v, refused := w.deliver(command("k", sh("echo other")), false, 1); v.Action != schemas.ActionDone || c.terminal(refused).Error.Code != schemas.CodeConflict {
		t.Errorf("%+v", v)
	}
	c.file("go")
	for _, r := range []*schemas.Result{c.end(call), c.terminal(answers)} {
		if r.Reason != schemas.ReasonExited || r.ExitCode != 7 || r.Error != nil || r.Stdout != "one\ntw" || r.Stderr != "err\ner" || !r.StdoutTruncated ||
			r.StdoutBytes != 8 || r.StderrBytes != 9 || r.Log == nil || len(r.Args) != 2 || r.DurationMS <= 0 {
			t.Errorf("%+v %v", r, r.Error)
		}
	}
	c.wantRecords(process, schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)
	if got := c.output(process, "err2"); strings.Count(got, "one") != 1 || strings.Count(got, "two") != 1 || strings.Count(got, "err2") != 1 {
		t.Errorf("the log holds %q", got)
	}
	if r := c.exec(cmd); r.ExitCode != 7 {
		t.Errorf("a replay: %+v", r)
	}
	// The thread goes on in the same sandbox.
	r := c.exec(command("k2", sh("cat runs")))
	var s schemas.Started
	c.must(started.Decode(&s))
	var s2 schemas.Started
	c.must(c.awaitType(r.Process, schemas.TypeProcessStarted).Decode(&s2))
	if r.Stdout != "ran\n" || s2.Sandbox != s.Sandbox || r.Epoch != 2 {
		t.Errorf("%+v in %s, before in %s", r, s2.Sandbox, s.Sandbox)
	}
	sb := w.threads[threadKey("default", "t")].making.sb
	if a, ok := sb.(sandbox.Attached); !ok {
		t.Errorf("%T", sb)
	} else if held, err := a.Held(c.ctx); err != nil || len(held) > 1 {
		t.Errorf("not released: %+v, %v", held, err)
	}
}

// awaitLine waits for a line of a worker's log.
func (c *cell) awaitLine(r *rig, message string) {
	c.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for len(r.log.of(message)) == 0 {
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			c.t.Fatalf("no line %s", message)
		}
	}
}

func TestControlsAndTimeoutsReachAProcessThatGoesOn(t *testing.T) {
	c := newCell(t)
	dead := c.worker("w1", hasty)
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

	w := c.again(dead)
	// A piece whose answer was lost is sent once more; the next one follows it.
	c.must(w.feed(processOf(fedCmd), 0, "one\n", false))
	c.must(w.feed(processOf(fedCmd), 4, "two\n", true))
	c.must(w.control(processOf(killed), schemas.Control{Kill: &schemas.KillRequest{GraceMS: 10}}))
	for i, r := range []*schemas.Result{c.end(one), c.end(two), c.end(three)} {
		if r.Reason != calls[i] {
			t.Errorf("%+v", r)
		}
		if i == 0 && r.Stdout != "on\ngot zero\ngot one\ngot two\nend\n" {
			t.Errorf("%q", r.Stdout)
		}
	}
}

func TestWhatCannotGoOnIsLost(t *testing.T) {
	c := newCell(t)
	dead := c.worker("w1", hasty)
	// Its input is larger than pipe and supervisor take, and the rest went with the worker.
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
	for _, sb := range dead.stage.sandboxes() {
		if a, ok := sb.(sandbox.Attached); ok && a.Spec().Thread == "t2" {
			other = sb
		}
	}
	// Its sandbox is not there any more when the worker comes back.
	dead.fenced.Store(true)
	c.must(other.Terminate(c.ctx, 0))
	dead.crash()
	c.again(dead)
	for _, process := range []string{processOf(cmd), processOf(orphan)} {
		if r := c.result(c.awaitType(process, schemas.TypeProcessLost)); r.Reason != schemas.ReasonLost {
			t.Errorf("%+v", r)
		}
	}
	if _, err := os.Stat(filepath.Join(c.dir, "workspaces", "default", "t", "eaten")); !errors.Is(err, os.ErrNotExist) {
		t.Error("it was fed half its input")
	}
	if r := c.exec(command("after", sh("echo on"))); r.Stdout != "on\n" {
		t.Errorf("%+v", r)
	}
}

func TestASandboxWhoseThreadWasTakenOverIsEnded(t *testing.T) {
	c := newCell(t)
	dead := c.worker("w1", hasty)
	cmd := command("k", sh("echo on; sleep 300"))
	call := c.send(cmd)
	c.output(processOf(cmd), "on")
	c.awaitType(processOf(cmd), schemas.TypeProcessStarted)
	dead.crash()
	c.lapse("w1")
	c.worker("w2", soon)
	if r := c.end(call); r.Reason != schemas.ReasonLost {
		t.Fatalf("%+v", r)
	}
	if r := c.exec(command("k2", sh("echo two"))); r.Stdout != "two\n" || r.Worker != "w2" {
		t.Fatalf("%+v", r)
	}
	w := c.again(dead)
	if got := w.log.of("sandbox_stale"); len(got) != 1 {
		t.Errorf("%v", got)
	}
	c.wantRecords(processOf(cmd), schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessLost)
	w.stop()
	if left, err := filepath.Glob(filepath.Join(dead.stage.dir, "kept", "*")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A worker that was given up for dead, and whose thread nobody wanted: the thread is its own again, what ran is lost.
func TestAProcessThatWasToldLostIsEnded(t *testing.T) {
	c := newCell(t)
	dead := c.worker("w1", hasty)
	cmd := command("k", sh("echo on; trap '' TERM; sleep 300; echo over >over"))
	call := c.send(cmd)
	c.output(processOf(cmd), "on")
	c.awaitType(processOf(cmd), schemas.TypeProcessStarted)
	dead.crash()
	c.lapse("w1")
	c.worker("w2", soon)
	if r := c.end(call); r.Reason != schemas.ReasonLost {
		t.Fatalf("%+v", r)
	}
	w := c.again(dead)
	t2 := w.threads[threadKey("default", "t")]
	if t2 == nil {
		t.Fatal("the thread was not taken back")
	}
	a, ok := t2.making.sb.(sandbox.Attached)
	if !ok {
		t.Fatalf("%T", t2.making.sb)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		held, err := a.Held(c.ctx)
		c.must(err)
		if len(held) == 0 {
			break
		}
		<-tick.C
	}
	if r := c.exec(command("k2", sh("echo on"))); r.Stdout != "on\n" || r.Worker != "w1" {
		t.Errorf("%+v", r)
	}
}
