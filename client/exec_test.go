package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func TestExecGivesResultsAndErrorsTheirPlaces(t *testing.T) {
	d := newDesk(t, "w1")
	r, err := d.Exec(d.ctx, sh("echo out; echo err >&2; exit 3"))
	if err != nil || r.Stdout != "out\n" || r.Stderr != "err\n" || r.ExitCode != 3 {
		t.Fatalf("%+v %v", r, err)
	}
	if r, err := d.Exec(d.ctx, client.Request{Thread: "t", Command: "no-such-program"}); err != nil || r.ExitCode != 127 || r.Error == nil {
		t.Fatalf("a command that is not found is a result: %+v %v", r, err)
	}
	if r, err := d.Exec(d.ctx, sh("kill -9 $PPID; sleep 300")); !errors.Is(err, schemas.ErrLost) || r == nil || r.Reason != schemas.ReasonLost {
		t.Fatalf("%+v %v", r, err)
	}
	key := sh("echo $$")
	key.Key = "k"
	one, err := d.Exec(d.ctx, key)
	d.must(err)
	two, err := d.Exec(d.ctx, key)
	d.must(err)
	if one.Stdout != two.Stdout {
		t.Fatalf("%q and %q", one.Stdout, two.Stdout)
	}
	key.Args = []string{"-c", "echo other"}
	if _, err := d.Exec(d.ctx, key); !errors.Is(err, schemas.ErrConflict) {
		t.Fatal(err)
	}
	for name, req := range map[string]client.Request{
		"thread":   {Thread: "a b", Command: "true"},
		"command":  {Thread: "t"},
		"timeout":  {Thread: "t", Command: "true", Timeout: -time.Nanosecond},
		"grace":    {Thread: "t", Command: "true", Grace: -time.Hour},
		"provider": {Thread: "t", Command: "true", Provider: "a b"},
	} {
		if _, err := d.Exec(d.ctx, req); !errors.Is(err, schemas.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := d.Exec(d.ctx, client.Request{Thread: "t", Command: "true", Args: []string{strings.Repeat("x", 10<<20)}}); !errors.Is(err, schemas.ErrTooLarge) {
		t.Fatal(err)
	}
	if _, err := d.Exec(d.ctx, client.Request{Thread: "t", Command: "true", Provider: "docker"}); !errors.Is(err, schemas.ErrConflict) {
		t.Fatal(err)
	}
	if _, err := d.Exec(d.ctx, client.Request{Thread: "new", Command: "true", Provider: "docker"}); !errors.Is(err, schemas.ErrPermissionDenied) {
		t.Fatal(err)
	}
}

func TestExecFillsUpFromTheLogWhatTheRecordHadNoRoomFor(t *testing.T) {
	d := newDesk(t, "w1")
	req := sh("seq 1 300000; seq 1 200000 >&2")
	req.OutputLimit = 4 << 20
	r, err := d.Exec(d.ctx, req)
	d.must(err)
	if int64(len(r.Stdout)) != r.StdoutBytes || r.StdoutTruncated || !strings.HasSuffix(r.Stdout, "\n300000\n") {
		t.Fatalf("%d of %d bytes, truncated %v", len(r.Stdout), r.StdoutBytes, r.StdoutTruncated)
	}
	if int64(len(r.Stderr)) != r.StderrBytes || !strings.HasSuffix(r.Stderr, "\n200000\n") {
		t.Fatalf("%d of %d bytes", len(r.Stderr), r.StderrBytes)
	}
	req.OutputLimit = 1500000
	if r, err = d.Exec(d.ctx, req); err != nil || len(r.Stdout) != 1500000 || !r.StdoutTruncated || r.StderrTruncated {
		t.Fatalf("%d bytes, truncated %v %v: %v", len(r.Stdout), r.StdoutTruncated, r.StderrTruncated, err)
	}
	req.OutputLimit = -1
	if r, err = d.Exec(d.ctx, req); err != nil || r.Stdout != "" || !r.StdoutTruncated || r.StdoutBytes < 1500000 {
		t.Fatalf("%+v %v", r, err)
	}
}

func TestExecKillsWhenItsContextEnds(t *testing.T) {
	d := newDesk(t, "w1")
	req := sh("echo on; exec sleep 300")
	req.Key = "k"
	ctx, cancel := context.WithCancel(d.ctx)
	done := make(chan error, 1)
	go func() {
		_, err := d.Exec(ctx, req)
		done <- err
	}()
	process := schemas.ProcessID(schemas.DefaultTenant, "t", "k")
	d.event(process, schemas.TypeProcessStarted)
	d.printed(process, "on")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	d.event(process, schemas.TypeProcessExited)
	if r, err := d.Result(d.ctx, "", process); err != nil || r.Reason != schemas.ReasonKilled {
		t.Fatalf("%+v %v", r, err)
	}
}

func TestExecStreamYieldsAllInOrderAndTheResultLast(t *testing.T) {
	d := newDesk(t, "w1")
	x, err := d.ExecStream(d.ctx, sh("seq 1 200000; echo end >&2; exit 4"))
	d.must(err)
	defer x.Close()
	var out, errs bytes.Buffer
	var result *schemas.Result
	var last uint64
	for e, err := range x.Events(d.ctx) {
		d.must(err)
		if result != nil {
			t.Fatal("something came after the result")
		}
		if e.Result != nil {
			result = e.Result
			continue
		}
		if e.Chunk.Seq <= last {
			t.Fatalf("chunk %d after %d", e.Chunk.Seq, last)
		}
		last = e.Chunk.Seq
		into := &out
		if e.Chunk.Stream == schemas.Stderr {
			into = &errs
		}
		if e.Chunk.Offset != int64(into.Len()) {
			t.Fatalf("a hole: %d after %d bytes", e.Chunk.Offset, into.Len())
		}
		into.Write(e.Chunk.Data)
	}
	if result == nil || result.ExitCode != 4 || int64(out.Len()) != result.StdoutBytes || !strings.HasSuffix(out.String(), "\n200000\n") || errs.String() != "end\n" {
		t.Fatalf("%d bytes, %+v", out.Len(), result)
	}
}

func TestAStreamThatIsLeftOrCancelledLeavesItsProcessAlone(t *testing.T) {
	d := newDesk(t, "w1")
	for _, cancelled := range []bool{false, true} {
		ctx, cancel := context.WithCancel(d.ctx)
		req := sh("echo on; read line; echo $line")
		in, feed := io.Pipe()
		req.Stdin = in
		x, err := d.ExecStream(ctx, req)
		d.must(err)
		for e, err := range x.Events(ctx) {
			if cancelled && errors.Is(err, context.Canceled) {
				break
			}
			d.must(err)
			if e.Chunk == nil || string(e.Chunk.Data) != "on\n" {
				t.Fatalf("%+v", e)
			}
			if !cancelled {
				break
			}
			cancel()
		}
		cancel()
		if _, err := d.Result(d.ctx, "t", x.Process()); !errors.Is(err, schemas.ErrUnavailable) {
			t.Fatalf("it has ended: %v", err)
		}
		// The input still goes through, for that is Close's to end.
		if _, err := feed.Write([]byte("still here\n")); err != nil {
			t.Fatal(err)
		}
		d.event(x.Process(), schemas.TypeProcessExited)
		if r, err := d.Result(d.ctx, "t", x.Process()); err != nil || r.Stdout != "on\nstill here\n" {
			t.Fatalf("%+v %v", r, err)
		}
		x.Close()
		d.must(feed.Close())
	}
}

func TestInputOfAnySizeArrivesWhole(t *testing.T) {
	d := newDesk(t, "w1")
	big := strings.Repeat("0123456789abcdef", 100<<10)
	req := client.Request{Thread: "t", Command: "wc", Args: []string{"-c"}, Stdin: strings.NewReader(big)}
	if r, err := d.Exec(d.ctx, req); err != nil || strings.TrimSpace(r.Stdout) != "1638400" {
		t.Fatalf("%+v %v", r, err)
	}
	// A process that ends without reading ends the feeding too.
	req = client.Request{Thread: "t", Command: "true", Stdin: strings.NewReader(big)}
	if r, err := d.Exec(d.ctx, req); err != nil || !r.Success {
		t.Fatalf("%+v %v", r, err)
	}
	// An input that is there but empty is an end of file.
	req = client.Request{Thread: "t", Command: "cat", Stdin: strings.NewReader("")}
	if r, err := d.Exec(d.ctx, req); err != nil || r.Stdout != "" || !r.Success {
		t.Fatalf("%+v %v", r, err)
	}
}

func TestACommandThatNobodyTakesWaitsForAWorker(t *testing.T) {
	d := newDesk(t)
	req := client.Request{Thread: "t", Command: "cat", Stdin: strings.NewReader("from before")}
	x, err := d.ExecStream(d.ctx, req)
	d.must(err)
	defer x.Close()
	if !x.Queued() {
		t.Error("it counts as accepted")
	}
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := d.cell.worker("w1"); err != nil {
			t.Error(err)
		}
	})
	var out strings.Builder
	for e, err := range x.Events(d.ctx) {
		d.must(err)
		if e.Chunk != nil {
			out.Write(e.Chunk.Data)
		}
	}
	all.Wait()
	if out.String() != "from before" || x.Queued() {
		t.Fatalf("%q, queued %v", out.String(), x.Queued())
	}
}

// event waits for an event of a process.
func (d *desk) event(process string, typ schemas.EventType) {
	d.t.Helper()
	err := d.Events(d.ctx, client.EventQuery{Process: process, Follow: true}, func(ev *schemas.Event) error {
		if ev.Type == typ {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		d.t.Fatal(err)
	}
}
