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

func TestLogsBeginAnywhereAndAtAnyTime(t *testing.T) {
	d := newDesk(t, "w1")
	r, err := d.Exec(d.ctx, sh("seq 1 100000; echo end >&2"))
	d.must(err)
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
	if int64(len(all)) != r.StdoutBytes || seqs[0] != r.Log.FirstSeq || seqs[len(seqs)-1] != r.Log.LastSeq {
		t.Fatalf("%d bytes, %v, %+v", len(all), seqs, r.Log)
	}
	for i, from := range seqs {
		for _, follow := range []bool{false, true} {
			if _, rest := read(client.LogQuery{Process: r.Process, Thread: "t", From: from, Follow: follow}); len(rest) != len(seqs)-i {
				t.Fatalf("from %d: %v", from, rest)
			}
		}
	}
	if err := d.Logs(d.ctx, client.LogQuery{Process: "p0"}, nil); !errors.Is(err, schemas.ErrNotFound) {
		t.Fatal(err)
	}
	if err := d.Logs(d.ctx, client.LogQuery{Process: "no id"}, nil); !errors.Is(err, schemas.ErrInvalidArgument) {
		t.Fatal(err)
	}
}

func TestALateFollowerMissesNothingAndASlowOneEither(t *testing.T) {
	d := newDesk(t, "w1")
	req := sh("seq 1 50000; read line; seq 50001 150000")
	hold := make(chan struct{})
	req.Stdin = &held{until: hold, then: strings.NewReader("go\n")}
	x, err := d.ExecStream(d.ctx, req)
	d.must(err)
	defer x.Close()
	d.printed(x.Process(), "\n50000\n")
	var b strings.Builder
	d.must(d.Logs(d.ctx, client.LogQuery{Process: x.Process(), Follow: true}, func(k schemas.Chunk) error {
		b.Write(k.Data)
		if hold != nil && strings.Contains(b.String(), "\n50000\n") {
			close(hold)
			hold = nil
			d.event(x.Process(), schemas.TypeProcessExited) // so slow is this reader
		}
		return nil
	}))
	if !strings.HasSuffix(b.String(), "\n150000\n") || strings.Count(b.String(), "\n") != 150000 {
		t.Fatalf("%d lines", strings.Count(b.String(), "\n"))
	}
}

// held is a reader that waits.
type held struct {
	until chan struct{}
	then  *strings.Reader
}

// Read waits, then reads.
func (h *held) Read(p []byte) (int, error) {
	<-h.until
	return h.then.Read(p)
}

func TestAFollowersOwnErrorsAndContextEndIt(t *testing.T) {
	d := newDesk(t, "w1")
	x, err := d.ExecStream(d.ctx, sh("echo on; exec sleep 300"))
	d.must(err)
	defer x.Close()
	d.printed(x.Process(), "on")
	ctx, cancel := context.WithCancel(d.ctx)
	err = d.Logs(ctx, client.LogQuery{Process: x.Process(), Follow: true}, func(schemas.Chunk) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	d.must(x.Kill(d.ctx, 0))
}

func TestProcessesAreFoundSignalledAndKilledById(t *testing.T) {
	d := newDesk(t, "w1")
	x, err := d.ExecStream(d.ctx, sh("trap 'echo usr1' USR1; echo on; while :; do sleep 0.05; done"))
	d.must(err)
	defer x.Close()
	d.printed(x.Process(), "on")
	other := sh("exit 7")
	other.Thread = "u"
	ended, err := d.Exec(d.ctx, other)
	d.must(err)
	d.event(x.Process(), schemas.TypeProcessStarted)

	list, err := d.Processes(d.ctx, "")
	d.must(err)
	if len(list) != 2 || list[0].ID != x.Process() || list[0].State != "started" || list[0].Ended != nil || list[0].ExitCode != nil || list[0].Worker != "w1" ||
		list[1].ID != ended.Process || list[1].State != "exited" || *list[1].ExitCode != 7 || list[1].Ended == nil || list[1].Command != "sh" {
		t.Fatalf("%+v", list)
	}
	if list, err := d.Processes(d.ctx, "u"); err != nil || len(list) != 1 || list[0].Thread != "u" {
		t.Fatalf("%+v %v", list, err)
	}
	d.must(d.Signal(d.ctx, "", x.Process(), "USR1"))
	d.printed(x.Process(), "usr1")
	if err := d.Signal(d.ctx, "", x.Process(), "SIGNOTHING"); !errors.Is(err, schemas.ErrInvalidArgument) {
		t.Fatal(err)
	}
	d.must(d.Kill(d.ctx, "", x.Process(), 0))
	d.event(x.Process(), schemas.TypeProcessExited)
	if r, err := d.Result(d.ctx, "", x.Process()); err != nil || r.Reason != schemas.ReasonKilled || !strings.HasPrefix(r.Stdout, "on\nusr1\n") {
		t.Fatalf("%+v %v", r, err)
	}
	for name, err := range map[string]error{
		"an ended process":   d.Kill(d.ctx, "", ended.Process, 0),
		"an unknown process": d.Kill(d.ctx, "", "p0", 0),
		"a wrong thread":     d.Signal(d.ctx, "t", ended.Process, "INT"),
	} {
		if !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := d.Result(d.ctx, "no id", ended.Process); !errors.Is(err, schemas.ErrInvalidArgument) {
		t.Fatal(err)
	}
}

func TestEventsAreFollowedFromAnySequence(t *testing.T) {
	d := newDesk(t, "w1")
	first, err := d.Exec(d.ctx, sh(":"))
	d.must(err)
	var seen []*schemas.Event
	d.must(d.Events(d.ctx, client.EventQuery{Thread: "t"}, func(ev *schemas.Event) error {
		seen = append(seen, ev)
		return nil
	}))
	if len(seen) < 4 || seen[0].Type != schemas.TypeSessionCreated {
		t.Fatalf("%v", seen)
	}
	// Live, from the middle: the rest of what is stored, then what comes.
	var follows []*schemas.Event
	sent := false
	err = d.Events(d.ctx, client.EventQuery{Thread: "t", From: seen[1].Seq, Follow: true}, func(ev *schemas.Event) error {
		follows = append(follows, ev)
		if !sent && ev.Process == first.Process && ev.Type == schemas.TypeProcessExited {
			sent = true
			_, err := d.Exec(d.ctx, sh(":"))
			return err
		}
		if ev.Process != first.Process && ev.Type == schemas.TypeProcessExited {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) || follows[0].ID != seen[1].ID {
		t.Fatalf("%v", err)
	}
	for i := 1; i < len(follows); i++ {
		if follows[i].Seq <= follows[i-1].Seq {
			t.Fatalf("event %d after %d", follows[i].Seq, follows[i-1].Seq)
		}
	}
	if err := d.Events(d.ctx, client.EventQuery{Process: "no id"}, nil); !errors.Is(err, schemas.ErrInvalidArgument) {
		t.Fatal(err)
	}
}

func TestALostProcessIsListedUnderTheWorkerThatRanIt(t *testing.T) {
	d := newDesk(t)
	stop, err := d.cell.worker("w1")
	d.must(err)
	_ = stop
	r, err := d.Exec(d.ctx, sh("kill -9 $PPID; sleep 300"))
	if !errors.Is(err, schemas.ErrLost) {
		t.Fatal(err)
	}
	list, err := d.Processes(d.ctx, "t")
	d.must(err)
	if len(list) != 1 || list[0].Worker != r.Worker || list[0].State != "lost" || *list[0].ExitCode != 125 {
		t.Fatalf("%+v", list)
	}
}

func TestConnectAndCloseLeaveNothing(t *testing.T) {
	if _, err := client.Connect("nats://127.0.0.1:1"); !errors.Is(err, schemas.ErrUnavailable) {
		t.Fatal(err)
	}
	if _, err := client.Connect("nats://127.0.0.1:1", client.WithTenant("a.b")); !errors.Is(err, schemas.ErrInvalidArgument) {
		t.Fatal(err)
	}
	if _, err := client.Connect("nats://127.0.0.1:1", client.WithCell("a.b")); !errors.Is(err, schemas.ErrInvalidArgument) {
		t.Fatal(err)
	}
	d := newDesk(t, "w1")
	for range 5 {
		x, err := d.ExecStream(d.ctx, client.Request{Thread: "t", Command: "cat", Stdin: strings.NewReader(strings.Repeat("x", 1<<20)), Timeout: time.Minute})
		d.must(err)
		x.Close()
		x.Close()
		_ = d.Kill(d.ctx, "t", x.Process(), 0)
	}
}
