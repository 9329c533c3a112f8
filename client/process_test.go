package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func TestLogsBeginAtAnySequence(t *testing.T) {
	d := newCaller(t, "w1")
	r := d.exec(sh("seq 1 100000; echo end >&2"))
	read := func(q client.LogQuery) (out string, seqs []uint64) {
		t.Helper()
		var b strings.Builder
		d.must(d.Logs(d.ctx, q, func(k schemas.Chunk) error {
			if k.Stream == schemas.Stdout {
				b.Write(k.Data)
			}
			seqs = append(seqs, k.Seq)
			return nil
		}))
		return b.String(), seqs
	}
	all, seqs := read(client.LogQuery{Process: r.Process})
	d.equal("bytes of stdout", int64(len(all)), r.StdoutBytes)
	d.equal("first sequence", seqs[0], r.Log.FirstSeq)
	d.equal("last sequence", seqs[len(seqs)-1], r.Log.LastSeq)
	for i, from := range seqs {
		for _, follow := range []bool{false, true} {
			if _, rest := read(client.LogQuery{Process: r.Process, Thread: "t", From: from, Follow: follow}); len(rest) != len(seqs)-i {
				t.Fatalf("from %d, follow %t: sequences %v, want %v", from, follow, rest, seqs[i:])
			}
		}
	}
	d.wantCode("logs of an unknown process", d.Logs(d.ctx, client.LogQuery{Process: "p0"}, nil), schemas.CodeNotFound)
	d.wantCode("logs of an invalid id", d.Logs(d.ctx, client.LogQuery{Process: "no id"}, nil), schemas.CodeInvalidArgument)
	d.wantCode("logs of no process", d.Logs(d.ctx, client.LogQuery{}, nil), schemas.CodeInvalidArgument)
}

func TestLateAndSlowFollowerGetsAllOutput(t *testing.T) {
	d := newCaller(t, "w1")
	req := sh("seq 1 50000; read line; seq 50001 150000")
	hold := make(chan struct{})
	req.Stdin = &gatedReader{open: hold, Reader: strings.NewReader("go\n")}
	x := d.stream(req)
	d.waitForOutput(x.Process(), "\n50000\n")
	var b strings.Builder
	d.must(d.Logs(d.ctx, client.LogQuery{Process: x.Process(), Follow: true}, func(k schemas.Chunk) error {
		b.Write(k.Data)
		if hold != nil && strings.Contains(b.String(), "\n50000\n") {
			close(hold)
			hold = nil
			d.waitForEvent(x.Process(), schemas.TypeProcessExited) // the reader is this slow
		}
		return nil
	}))
	d.equal("lines", strings.Count(b.String(), "\n"), 150000)
	d.equal("output ends with the last line", strings.HasSuffix(b.String(), "\n150000\n"), true)
}

// gatedReader blocks until open is closed.
type gatedReader struct {
	*strings.Reader
	open chan struct{}
}

func (g *gatedReader) Read(p []byte) (int, error) {
	<-g.open
	return g.Reader.Read(p)
}

func TestLogsEndWithTheirContext(t *testing.T) {
	d := newCaller(t, "w1")
	x := d.stream(sh("echo on; exec sleep 300"))
	d.waitForOutput(x.Process(), "on")
	ctx, cancel := context.WithCancel(d.ctx)
	err := d.Logs(ctx, client.LogQuery{Process: x.Process(), Follow: true}, func(schemas.Chunk) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("Logs: error = %v, want %v", err, context.Canceled)
	}
	d.must(x.Kill(d.ctx, 0))
}

func TestProcessesAreListedSignaledAndKilled(t *testing.T) {
	d := newCaller(t, "w1")
	x := d.stream(sh("trap 'echo usr1' USR1; echo on; while :; do sleep 0.05; done"))
	d.waitForOutput(x.Process(), "on")
	other := sh("exit 7")
	other.Thread = "u"
	ended := d.exec(other)
	d.waitForEvent(x.Process(), schemas.TypeProcessStarted)

	list, err := d.Processes(d.ctx, client.ProcessQuery{All: true})
	d.must(err)
	d.equal("number of processes", len(list), 2)
	running, exited := list[0], list[1]
	d.equal("id of the running process", running.Process, x.Process())
	d.equal("status of the running process", running.Status, schemas.StatusRunning)
	d.equal("worker of the running process", running.Worker, "w1")
	d.equal("running process has an end", !running.Ended.IsZero() || running.ExitCode != nil, false)
	d.equal("id of the ended process", exited.Process, ended.Process)
	d.equal("status of the ended process", exited.Status, schemas.StatusFailed)
	d.equal("exit code of the ended process", *exited.ExitCode, 7)
	d.equal("ended process has an end", !exited.Ended.IsZero(), true)
	d.equal("command of the ended process", exited.Command, "sh")
	list, err = d.Processes(d.ctx, client.ProcessQuery{All: true, Thread: "u"})
	d.must(err)
	d.equal("number of processes of thread u", len(list), 1)
	d.equal("thread of the process", list[0].Thread, "u")

	p := d.process(x.Process())
	d.must(p.Signal(d.ctx, "USR1"))
	d.waitForOutput(x.Process(), "usr1")
	d.wantCode("an unknown signal", p.Signal(d.ctx, "SIGNOTHING"), schemas.CodeInvalidArgument)
	d.must(p.Kill(d.ctx, 0))
	r := d.waitForEnd(x.Process())
	d.equal("reason", r.Reason, schemas.ReasonKilled)
	d.equal("stdout begins with both lines", strings.HasPrefix(r.Stdout, "on\nusr1\n"), true)

	d.wantCode("kill of an ended process", d.process(ended.Process).Kill(d.ctx, 0), schemas.CodeNotFound)
	d.wantCode("an unknown process", errorOf(d.Process(d.ctx, "", "p0")), schemas.CodeNotFound)
	d.wantCode("the wrong thread", errorOf(d.Process(d.ctx, "t", ended.Process)), schemas.CodeNotFound)
	d.wantCode("an invalid thread", errorOf(d.Process(d.ctx, "no id", ended.Process)), schemas.CodeInvalidArgument)
}

func TestEventsAreFollowedFromAnySequence(t *testing.T) {
	d := newCaller(t, "w1")
	first := d.exec(sh(":"))
	var stored []*schemas.Event
	d.must(d.Events(d.ctx, client.EventQuery{Thread: "t"}, func(ev *schemas.Event) error {
		stored = append(stored, ev)
		return nil
	}))
	if len(stored) < 4 {
		t.Fatalf("%d events are stored, want at least 4", len(stored))
	}
	d.equal("type of the first event", stored[0].Type, schemas.TypeSessionCreated)
	// From the middle: the rest of what is stored, then the new events.
	var followed []*schemas.Event
	sent := false
	err := d.Events(d.ctx, client.EventQuery{Thread: "t", From: stored[1].Seq, Follow: true}, func(ev *schemas.Event) error {
		followed = append(followed, ev)
		if !sent && ev.Process == first.Process && ev.Type == schemas.TypeProcessExited {
			sent = true
			_, err := d.Exec(d.ctx, sh(":"))
			return err
		}
		if ev.Process != first.Process && ev.Type == schemas.TypeProcessExited {
			return errStop
		}
		return nil
	})
	if !errors.Is(err, errStop) {
		t.Fatalf("follow events: %v", err)
	}
	d.equal("id of the first followed event", followed[0].ID, stored[1].ID)
	for i := 1; i < len(followed); i++ {
		if followed[i].Seq <= followed[i-1].Seq {
			t.Fatalf("event sequence = %d, want more than %d", followed[i].Seq, followed[i-1].Seq)
		}
	}
	d.wantCode("events of an invalid id", d.Events(d.ctx, client.EventQuery{Process: "no id"}, nil), schemas.CodeInvalidArgument)
}

func TestLostProcessIsListedUnderItsWorker(t *testing.T) {
	d := newCaller(t, "w1")
	r, err := d.Exec(d.ctx, sh("kill -9 $PPID; sleep 300"))
	d.wantCode("exec of a lost process", err, schemas.CodeLost)
	list, err := d.Processes(d.ctx, client.ProcessQuery{All: true, Thread: "t"})
	d.must(err)
	d.equal("number of processes", len(list), 1)
	d.equal("worker", list[0].Worker, r.Worker)
	d.equal("status", list[0].Status, schemas.StatusLost)
	d.equal("exit code", *list[0].ExitCode, 125)
}

func TestConnectRejectsInvalidOptions(t *testing.T) {
	d := newCaller(t)
	d.wantCode("no server", errorOf(client.Connect("nats://127.0.0.1:1")), schemas.CodeUnavailable)
	d.wantCode("an invalid tenant", errorOf(client.Connect("nats://127.0.0.1:1", client.WithTenant("a.b"))), schemas.CodeInvalidArgument)
	d.wantCode("an invalid cell", errorOf(client.Connect("nats://127.0.0.1:1", client.WithCell("a.b"))), schemas.CodeInvalidArgument)
}

func TestCloseEndsTheCopyOfStdin(t *testing.T) {
	d := newCaller(t, "w1")
	for range 5 {
		x := d.stream(client.Request{Thread: "t", Command: "cat", Stdin: strings.NewReader(strings.Repeat("x", 1<<20)), Timeout: time.Minute})
		x.Close()
		x.Close()
		if p, err := d.Process(d.ctx, "t", x.Process()); err == nil {
			_ = p.Kill(d.ctx, 0) // it may have ended
		}
	}
}
