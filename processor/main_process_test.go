package processor_test

import (
	"context"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

// mainly is a main process that ends with code 7 once there is a file go.
func mainly() schemas.Exec {
	e := sh("echo on; until [ -e go ]; do sleep 0.02; done; exit 7")
	e.Main = true
	return e
}

// wantCompleted waits for the end of thread t's session, and wants that of its main process.
func (c *cell) wantCompleted(code int) {
	c.t.Helper()
	var last schemas.Session
	c.must(c.awaitEvent(schemas.TypeSessionTerminated).Decode(&last))
	if last.State != schemas.SandboxCompleted || last.ExitCode == nil || *last.ExitCode != code {
		c.t.Errorf("the session ended as %s with exit code %v, want completed with %d", last.State, last.ExitCode, code)
	}
	_, err := c.conn.Reader.Session(c.ctx, schemas.DefaultTenant, "t")
	testkit.WantCode(c.t, err, schemas.CodeNotFound)
}

func TestMainProcessEndsItsSessionAfterItsWorkerWasKilled(t *testing.T) {
	c, dead := newRig(t, hasty)
	cmd := command("k", mainly())
	c.send(cmd)
	c.output(processOf(cmd), "on")
	c.awaitType(processOf(cmd), schemas.TypeProcessStarted)
	dead.crash()
	w := dead.again(hasty)
	w.awaitLine("process_resumed")
	c.file("go")
	c.wantCompleted(7)
}

// cutOff stores the end of a process, and then does nothing more until it is released.
type cutOff struct {
	processor.Records
	stored, released chan struct{}
}

func (r *cutOff) Append(ctx context.Context, ev *schemas.Event, after uint64) (uint64, error) {
	seq, err := r.Records.Append(ctx, ev, after)
	if err == nil && ev.Type == schemas.TypeProcessExited {
		close(r.stored)
		<-r.released
	}
	return seq, err
}

func TestMainProcessEndsItsSessionAfterAKillBetweenTheTwo(t *testing.T) {
	records := &cutOff{stored: make(chan struct{}), released: make(chan struct{})}
	c, dead := newRig(t, hasty, func(cfg *processor.Config) { records.Records, cfg.Records = cfg.Records, records })
	t.Cleanup(func() { close(records.released) })
	cmd := command("k", mainly())
	c.send(cmd)
	c.output(processOf(cmd), "on")
	c.file("go")
	<-records.stored
	dead.crash()
	dead.again(hasty)
	c.wantCompleted(7)
}

func TestSessionOfAMainProcessStaysWhenItsWorkerShutsDown(t *testing.T) {
	c, w := newRig(t)
	cmd := command("k", mainly())
	call := c.send(cmd)
	c.output(processOf(cmd), "on")
	w.stop()
	wantFields(t, c.end(call), schemas.Result{Reason: schemas.ReasonKilled})
	s, err := c.conn.Reader.Session(c.ctx, schemas.DefaultTenant, "t")
	c.must(err)
	equal(t, "state", s.State, schemas.SandboxTerminated)
}
