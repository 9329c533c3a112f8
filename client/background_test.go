package client_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// start starts a process in the background.
func (d *caller) start(req client.Request) *client.Process {
	d.t.Helper()
	p, err := d.StartProcess(d.ctx, req)
	d.must(err)
	d.t.Cleanup(p.Close)
	return p
}

func TestProcessesRunInTheBackground(t *testing.T) {
	d := newCaller(t, "w1")
	exits := make(chan *schemas.Result, 1)
	req := sh("echo on; read line; echo got $line; exit 3")
	req.Key, req.StdinOpen = "mine", true
	req.OnExit = func(r *schemas.Result, err error) {
		if err != nil {
			t.Error(err)
		}
		exits <- r
	}
	p := d.start(req)
	d.equal("id by its name", p.ID(), d.ProcessID("t", "mine"))
	// The same command under the same name is the same process; another command is refused.
	req.OnExit = nil
	d.equal("id of the second start", d.start(req).ID(), p.ID())
	other := sh("exit 9")
	other.Key = "mine"
	d.wantCode("another command of the name", errorOf(d.StartProcess(d.ctx, other)), schemas.CodeConflict)
	d.waitForOutput(p.ID(), "on")
	info, err := p.Info(d.ctx)
	d.must(err)
	d.equal("status", info.Status, schemas.StatusRunning)

	short, cancel := context.WithTimeout(d.ctx, 50*time.Millisecond)
	defer cancel()
	done, pending := client.Wait(short, 0, p)
	d.equal("ended and pending processes", []int{len(done), len(pending)}, []int{0, 1})

	// Two handles write one after the other: each goes on where the input is.
	d.must(p.WriteStdin(d.ctx, []byte("he")))
	again, err := d.Process(d.ctx, "", p.ID())
	d.must(err)
	d.must(again.WriteStdin(d.ctx, []byte("llo")))
	d.must(again.CloseStdin(d.ctx))
	d.must(again.CloseStdin(d.ctx))
	r, err := again.Wait(d.ctx)
	d.must(err)
	d.equal("standard output", r.Stdout, "on\ngot hello\n")
	d.equal("exit code", r.ExitCode, 3)
	d.equal("exit code of OnExit", (<-exits).ExitCode, 3)
	d.equal("exit code of a handle on an ended process", func() int { r, _ := again.Wait(d.ctx); return r.ExitCode }(), 3)
	d.wantCode("input after the end", again.WriteStdin(d.ctx, []byte("x")), schemas.CodeNotFound)
	d.wantCode("a handle on an unknown process", errorOf(d.Process(d.ctx, "t", "p0")), schemas.CodeNotFound)
}

func TestStartReportsWhyNothingRuns(t *testing.T) {
	d := newCaller(t, "w1")
	req := sh("true")
	req.Stdin = strings.NewReader("x")
	d.wantCode("a reader as input", errorOf(d.StartProcess(d.ctx, req)), schemas.CodeInvalidArgument)
	req = sh("true")
	req.Session = "ended"
	d.wantCode("an ended session", errorOf(d.StartProcess(d.ctx, req)), schemas.CodeSessionExpired)
	p := d.start(client.Request{Thread: "t", Command: "no-such-program"})
	r, err := p.Wait(d.ctx)
	d.must(err)
	d.equal("reason", r.Reason, schemas.ReasonRejected)
	d.equal("exit code", r.ExitCode, schemas.ExitNotFound)
	closed := sh("cat")
	q := d.start(closed)
	_, err = q.Wait(d.ctx)
	d.must(err)
	d.wantCode("input of a process without one", q.WriteStdin(d.ctx, []byte("x")), schemas.CodeNotFound)
}

func TestAllProcessesOfAThreadAreKilled(t *testing.T) {
	d := newCaller(t, "w1", "w2")
	var processes []*client.Process
	for range 3 {
		processes = append(processes, d.start(sh("echo on; exec sleep 300")))
	}
	other := sh("echo on; exec sleep 300")
	other.Thread = "u"
	spared := d.start(other)
	for _, p := range processes {
		d.waitForOutput(p.ID(), "on")
	}
	n, err := d.KillAll(d.ctx, "t", 0)
	d.must(err)
	d.equal("killed processes", n, 3)
	done, pending := client.Wait(d.ctx, 0, processes...)
	d.equal("ended and pending processes", []int{len(done), len(pending)}, []int{3, 0})
	for _, p := range processes {
		info, err := p.Info(d.ctx)
		d.must(err)
		d.equal("status", info.Status, schemas.StatusKilled)
	}
	n, err = d.KillAll(d.ctx, "t", 0)
	d.must(err)
	d.equal("killed processes of a thread without any", n, 0)
	// One of several.
	list := []*client.Process{spared, processes[0]}
	done, pending = client.Wait(d.ctx, 1, list...)
	d.equal("ended process", ids(done), ids(list[1:]))
	d.equal("pending process", ids(pending), ids(list[:1]))
	d.must(spared.Kill(d.ctx, 0))
	d.wantCode("an invalid thread", errorOf(d.KillAll(d.ctx, "a b", 0)), schemas.CodeInvalidArgument)
}

func ids(processes []*client.Process) (out []string) {
	for _, p := range processes {
		out = append(out, p.ID())
	}
	return out
}
