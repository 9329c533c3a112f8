package client_test

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 10: the record has the beginning of the output. Every way to a result makes it whole, up to the limit.
func TestResultIsComposedFromTheLog(t *testing.T) {
	d := newCaller(t, "w1")
	req := sh("seq 1 50000; seq 1 40000 >&2; printf '\\377\\376' >&2")
	req.Key = "k"
	first, err := d.Exec(d.ctx, req)
	d.must(err)
	whole := func(what string, r *schemas.Result) {
		t.Helper()
		stderr, err := r.Output(schemas.Stderr)
		d.must(err)
		d.equal(what+": bytes of stdout", int64(len(r.Stdout)), r.StdoutBytes)
		d.equal(what+": bytes of stderr", int64(len(stderr)), r.StderrBytes)
		d.equal(what+": truncated", r.StdoutTruncated || r.StderrTruncated, false)
		d.equal(what+": gaps", len(r.Gaps), 0)
		d.equal(what+": end of stdout", strings.HasSuffix(r.Stdout, "\n50000\n"), true)
		d.equal(what+": end of stderr", strings.HasSuffix(string(stderr), "\n40000\n\xff\xfe"), true)
	}
	whole("Exec", first)
	again, err := d.Exec(d.ctx, req)
	d.must(err)
	whole("Exec with the same key", again)
	read, err := d.process(first.Process).Result(d.ctx)
	d.must(err)
	whole("Result", read)
	for _, key := range []string{"k", "fresh"} {
		req.Key = key
		whole("ExecStream with key "+key, stream(d, req))
	}
	req.Key, req.OutputLimit = "limited", 10_000
	limited := stream(d, req)
	d.equal("bytes of limited stdout", len(limited.Stdout), 10_000)
	d.equal("limited stdout truncated", limited.StdoutTruncated, true)
	d.equal("gaps of a limited result", len(limited.Gaps), 0)
}

// Promises 10: a result says what the log has no more, and does not pretend.
func TestResultReportsWhatTheLogHasNoMore(t *testing.T) {
	d := newCaller(t, "w1")
	req := sh("seq 1 50000")
	req.Key = "k"
	r, err := d.Exec(d.ctx, req)
	d.must(err)
	// An update of LOG that keeps less drops what it has.
	conn, err := d.cell.conn()
	d.must(err)
	less := d.cell.topology
	less.LogBytes = 1 << 10
	d.must(conn.Ensure(d.ctx, less))
	for what, get := range map[string]func() (*schemas.Result, error){
		"Exec":       func() (*schemas.Result, error) { return d.Exec(d.ctx, req) },
		"Result":     func() (*schemas.Result, error) { return d.process(r.Process).Result(d.ctx) },
		"ExecStream": func() (*schemas.Result, error) { return stream(d, req), nil },
	} {
		got, err := get()
		d.must(err)
		d.equal(what+": stdout is the beginning", len(got.Stdout) > 1000 && strings.HasPrefix(r.Stdout, got.Stdout), true)
		d.equal(what+": truncated", got.StdoutTruncated, true)
		if len(got.Gaps) != 1 || got.Gaps[0].Stream != schemas.Stdout || got.Gaps[0].From != int64(len(got.Stdout)) || got.Gaps[0].To != r.StdoutBytes {
			t.Errorf("%s: gaps %+v, want one from %d to %d", what, got.Gaps, len(got.Stdout), r.StdoutBytes)
		}
	}
}

// stream is the result of a command whose output is followed.
func stream(d *caller, req client.Request) *schemas.Result {
	d.t.Helper()
	x, err := d.ExecStream(d.ctx, req)
	d.must(err)
	defer x.Close()
	for e, err := range x.Events(d.ctx) {
		d.must(err)
		if e.Result != nil {
			return e.Result
		}
	}
	d.t.Fatal("no result")
	return nil
}

// Promises 11: a process drops its own oldest output beyond its budget. A reader sees the gap, also at the beginning, and the result says
// what it lacks; the process is no failure for that.
func TestReaderSeesWhatWasDropped(t *testing.T) {
	cell, err := start()
	testkit.Must(t, err)
	t.Cleanup(cell.close)
	cell.topology.LogProcessBytes = 1 << 20
	testkit.Must(t, cell.worker("w1"))
	d := callerOf(t, cell)
	req := sh("yes 0123456789 | head -c 8000000; echo end >&2")
	req.Key = "k"
	r := stream(d, req)
	d.equal("success", r.Success, true)
	if n := int64(len(r.Stdout)); n != schemas.DefaultOutputLimit && len(r.Gaps) == 0 { // who follows too slowly sees what was dropped, too
		t.Errorf("a followed result has %d bytes of stdout and no gap, want %d", n, schemas.DefaultOutputLimit)
	}
	if r.Log == nil || r.Log.StdoutFrom < 6_000_000 || r.Log.StdoutFrom >= r.StdoutBytes || r.Log.StderrFrom != 0 {
		t.Fatalf("log = %+v, want stdout from 6 MB or more, and all of stderr", r.Log)
	}
	var gaps []schemas.LogGap
	var n int64
	d.must(d.Logs(d.ctx, client.LogQuery{Process: r.Process, Gap: func(g schemas.LogGap) error {
		gaps = append(gaps, g)
		return nil
	}}, func(k schemas.Chunk) error {
		if k.Stream == schemas.Stdout {
			n += int64(len(k.Data))
		}
		return nil
	}))
	if len(gaps) != 1 || gaps[0].Stream != schemas.Stdout || gaps[0].From != 0 || gaps[0].To != r.Log.StdoutFrom || n != r.StdoutBytes-r.Log.StdoutFrom {
		t.Errorf("%d bytes read with gaps %+v, want all from %d on and one gap before", n, gaps, r.Log.StdoutFrom)
	}
	again, err := d.Exec(d.ctx, req)
	d.must(err)
	d.equal("success of the replay", again.Success, true)
	d.equal("truncated", again.StdoutTruncated, true)
	if len(again.Gaps) != 1 || again.Gaps[0].From != int64(len(again.Stdout)) || again.Gaps[0].To != r.Log.StdoutFrom {
		t.Errorf("gaps = %+v, want one from %d to %d", again.Gaps, len(again.Stdout), r.Log.StdoutFrom)
	}
	gapEnd := int64(0)
	d.must(d.Events(d.ctx, client.EventQuery{Process: r.Process}, func(ev *schemas.Event) error {
		var g schemas.LogGap
		if ev.Type == schemas.TypeLogGap {
			d.must(ev.Decode(&g))
			d.equal("begin of the gap", g.From, gapEnd)
			gapEnd = g.To
		}
		return nil
	}))
	d.equal("end of the gaps in the events", gapEnd, r.Log.StdoutFrom)
}
