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

func TestExecReturnsResultsAndErrors(t *testing.T) {
	d := newCaller(t, "w1")
	r := d.exec(sh("echo out; echo err >&2; exit 3"))
	d.equal("stdout", r.Stdout, "out\n")
	d.equal("stderr", r.Stderr, "err\n")
	d.equal("exit code", r.ExitCode, 3)

	r = d.exec(client.Request{Thread: "t", Command: "no-such-program"}) // a program that is not found is a result
	d.equal("exit code of a missing program", r.ExitCode, 127)
	if r.Error == nil {
		t.Error("result of a missing program: error = nil, want one")
	}

	r, err := d.Exec(d.ctx, sh("kill -9 $PPID; sleep 300"))
	d.wantCode("exec of a lost process", err, schemas.CodeLost)
	if r == nil {
		t.Fatal("result of a lost process = nil, want one")
	}
	d.equal("reason of a lost process", r.Reason, schemas.ReasonLost)

	keyed := sh("echo $$")
	keyed.Key = "k"
	one := d.exec(keyed)
	two := d.exec(keyed)
	d.equal("stdout of the second call with a key", two.Stdout, one.Stdout)
	keyed.Args = []string{"-c", "echo other"}
	large := strings.Repeat("x", 10<<20)
	for name, k := range map[string]struct {
		req  client.Request
		code schemas.Code
	}{
		"an invalid thread":             {client.Request{Thread: "a b", Command: "true"}, schemas.CodeInvalidArgument},
		"no command":                    {client.Request{Thread: "t"}, schemas.CodeInvalidArgument},
		"a negative timeout":            {client.Request{Thread: "t", Command: "true", Timeout: -time.Nanosecond}, schemas.CodeInvalidArgument},
		"a negative grace":              {client.Request{Thread: "t", Command: "true", Grace: -time.Hour}, schemas.CodeInvalidArgument},
		"an invalid provider":           {client.Request{Thread: "t", Command: "true", Provider: "a b"}, schemas.CodeInvalidArgument},
		"another command with the key":  {keyed, schemas.CodeConflict},
		"a command of 10 MiB":           {client.Request{Thread: "t", Command: "true", Args: []string{large}}, schemas.CodeTooLarge},
		"another provider in a session": {client.Request{Thread: "t", Command: "true", Provider: "docker"}, schemas.CodeConflict},
	} {
		d.wantCode(name, errorOf(d.Exec(d.ctx, k.req)), k.code)
	}
}

// Promises 3: a command that no live worker serves waits, and its client receives what is missing.
func TestClientReceivesWhatIsMissing(t *testing.T) {
	d := newCaller(t, "w1")
	x, err := d.ExecStream(d.ctx, client.Request{Thread: "new", Command: "true", Provider: "docker"})
	d.must(err)
	defer x.Close()
	d.equal("queued", x.Queued(), true)
	for e, err := range x.Events(d.ctx) {
		d.must(err)
		if e.Waiting == nil {
			t.Fatalf("event = %+v, want what is missing", e)
		}
		d.wantCode("what is missing", e.Waiting, schemas.CodePermissionDenied)
		d.equal("the message names the provider", strings.Contains(e.Waiting.Message, "docker"), true)
		break
	}
	d.equal("queued", x.Queued(), true)
}

func TestExecReadsLargeOutputFromTheLog(t *testing.T) {
	d := newCaller(t, "w1")
	req := sh("seq 1 300000; seq 1 200000 >&2")
	req.OutputLimit = 4 << 20
	r := d.exec(req)
	d.equal("bytes of stdout", int64(len(r.Stdout)), r.StdoutBytes)
	d.equal("bytes of stderr", int64(len(r.Stderr)), r.StderrBytes)
	d.equal("stdout truncated", r.StdoutTruncated, false)
	d.equal("stdout ends with the last line", strings.HasSuffix(r.Stdout, "\n300000\n"), true)
	d.equal("stderr ends with the last line", strings.HasSuffix(r.Stderr, "\n200000\n"), true)

	req.OutputLimit = 1500000
	r = d.exec(req)
	d.equal("bytes of limited stdout", len(r.Stdout), 1500000)
	d.equal("limited stdout truncated", r.StdoutTruncated, true)
	d.equal("stderr below the limit truncated", r.StderrTruncated, false)

	req.OutputLimit = -1
	r = d.exec(req)
	d.equal("stdout without output", r.Stdout, "")
	d.equal("stdout without output truncated", r.StdoutTruncated, true)
	if r.StdoutBytes < 1500000 {
		t.Errorf("stdout_bytes = %d, want at least 1500000", r.StdoutBytes)
	}
}

func TestExecKillsTheProcessWhenItsContextEnds(t *testing.T) {
	d := newCaller(t, "w1")
	req := sh("echo on; exec sleep 300")
	req.Key = "k"
	ctx, cancel := context.WithCancel(d.ctx)
	done := make(chan error, 1)
	go func() {
		_, err := d.Exec(ctx, req)
		done <- err
	}()
	process := schemas.ProcessID(schemas.DefaultTenant, "t", "k")
	d.waitForEvent(process, schemas.TypeProcessStarted)
	d.waitForOutput(process, "on")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("Exec: error = %v, want %v", err, context.Canceled)
	}
	r := d.waitForEnd(process)
	d.equal("reason", r.Reason, schemas.ReasonKilled)
}

func TestExecStreamYieldsOutputInOrderAndTheResultLast(t *testing.T) {
	d := newCaller(t, "w1")
	x := d.stream(sh("seq 1 200000; echo end >&2; exit 4"))
	var out, errs bytes.Buffer
	var result *schemas.Result
	var last uint64
	for e, err := range x.Events(d.ctx) {
		d.must(err)
		if result != nil {
			t.Fatalf("event after the result: %+v", e)
		}
		if e.Result != nil {
			result = e.Result
			continue
		}
		if e.Chunk.Seq <= last {
			t.Fatalf("chunk sequence = %d, want more than %d", e.Chunk.Seq, last)
		}
		last = e.Chunk.Seq
		into := &out
		if e.Chunk.Stream == schemas.Stderr {
			into = &errs
		}
		if e.Chunk.Offset != int64(into.Len()) {
			t.Fatalf("%s: offset = %d, want %d", e.Chunk.Stream, e.Chunk.Offset, into.Len())
		}
		into.Write(e.Chunk.Data)
	}
	if result == nil {
		t.Fatal("the stream ended without a result")
	}
	d.equal("exit code", result.ExitCode, 4)
	d.equal("bytes of stdout", int64(out.Len()), result.StdoutBytes)
	d.equal("stdout ends with the last line", strings.HasSuffix(out.String(), "\n200000\n"), true)
	d.equal("stderr", errs.String(), "end\n")
}

func TestProcessContinuesAfterItsStreamIsLeft(t *testing.T) {
	d := newCaller(t, "w1")
	for _, canceled := range []bool{false, true} {
		ctx, cancel := context.WithCancel(d.ctx)
		req := sh("echo on; read line; echo $line")
		in, input := io.Pipe()
		req.Stdin = in
		x, err := d.ExecStream(ctx, req)
		d.must(err)
		for e, err := range x.Events(ctx) {
			if canceled && errors.Is(err, context.Canceled) {
				break
			}
			d.must(err)
			if e.Chunk == nil || string(e.Chunk.Data) != "on\n" {
				t.Fatalf("event = %+v, want a chunk with %q", e, "on\n")
			}
			if !canceled {
				break
			}
			cancel()
		}
		cancel()
		d.wantCode("result of a running process", errorOf(d.process(x.Process()).Result(d.ctx)), schemas.CodeUnavailable)
		// Only Close ends the copy of standard input.
		_, err = input.Write([]byte("still here\n"))
		d.must(err)
		r := d.waitForEnd(x.Process())
		d.equal("stdout", r.Stdout, "on\nstill here\n")
		x.Close()
		d.must(input.Close())
	}
}

func TestStdinOfAnySizeArrives(t *testing.T) {
	d := newCaller(t, "w1")
	big := strings.Repeat("0123456789abcdef", 100<<10)
	r := d.exec(client.Request{Thread: "t", Command: "wc", Args: []string{"-c"}, Stdin: strings.NewReader(big)})
	d.equal("bytes that arrived", strings.TrimSpace(r.Stdout), "1638400")
	// A process that ends without reading ends the copy too.
	r = d.exec(client.Request{Thread: "t", Command: "true", Stdin: strings.NewReader(big)})
	d.equal("success of a process that does not read", r.Success, true)
	// An empty input is an end of file.
	r = d.exec(client.Request{Thread: "t", Command: "cat", Stdin: strings.NewReader("")})
	d.equal("stdout with an empty input", r.Stdout, "")
	d.equal("success with an empty input", r.Success, true)
}

// A reader that fails has not ended: the process does not take what came before for all.
func TestStdinThatFailsIsAnError(t *testing.T) {
	d := newCaller(t, "w1")
	broken := errors.New("broken")
	for what, size := range map[string]*schemas.TerminalSize{"pipe": nil, "terminal": {Rows: 24, Cols: 80}} {
		for _, before := range []string{"", "abc"} {
			in := io.MultiReader(strings.NewReader(before), errorReader{broken})
			r, err := d.Exec(d.ctx, client.Request{Thread: "t", Command: "cat", Stdin: in, Terminal: size})
			if !errors.Is(err, broken) || !strings.Contains(err.Error(), "read the standard input") {
				t.Errorf("%s that fails after %q: error = %v, want the reader's", what, before, err)
			}
			if r == nil || r.Reason != schemas.ReasonKilled {
				t.Errorf("%s that fails after %q: result = %+v, want that of a killed process", what, before, r)
			}
		}
	}
	// A reader's own code is no answer of the worker's.
	_, err := d.Exec(d.ctx, client.Request{Thread: "t", Command: "cat", Stdin: errorReader{schemas.Errorf(schemas.CodeConflict, "mine")}})
	d.wantCode("a reader that fails with conflict", err, schemas.CodeConflict)
}

// A command whose input fails while it is queued does not run.
func TestStdinThatFailsBeforeAWorkerIsFree(t *testing.T) {
	d := newCaller(t)
	x := d.stream(client.Request{Thread: "t", Command: "cat", Stdin: errorReader{errors.New("broken")}})
	d.equal("queued without a worker", x.Queued(), true)
	var all sync.WaitGroup
	all.Go(func() {
		if err := d.cell.worker("w1"); err != nil {
			t.Error(err)
		}
	})
	var failed error
	for _, err := range x.Events(d.ctx) {
		failed = err
	}
	all.Wait()
	if failed == nil || !strings.Contains(failed.Error(), "broken") {
		t.Errorf("error = %v, want the reader's", failed)
	}
}

func TestCommandWaitsForAWorker(t *testing.T) {
	d := newCaller(t)
	x := d.stream(client.Request{Thread: "t", Command: "cat", Stdin: strings.NewReader("from before")})
	d.equal("queued without a worker", x.Queued(), true)
	var all sync.WaitGroup
	all.Go(func() {
		if err := d.cell.worker("w1"); err != nil {
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
	d.equal("stdout", out.String(), "from before")
	d.equal("queued after its end", x.Queued(), false)
}

// waitForEvent waits for an event of a process.
func (d *caller) waitForEvent(process string, typ schemas.EventType) {
	d.t.Helper()
	err := d.Events(d.ctx, client.EventQuery{Process: process, Follow: true}, func(ev *schemas.Event) error {
		if ev.Type == typ {
			return errStop
		}
		return nil
	})
	if !errors.Is(err, errStop) {
		d.t.Fatalf("wait for %s of process %s: %v", typ, process, err)
	}
}

// Promises 7: a command that uses another one's key neither feeds, signals nor kills that one's process, nor gets its output.
func TestConflictLeavesTheOtherProcessAlone(t *testing.T) {
	d := newCaller(t, "w1")
	first := sh("echo on; read line; echo got $line")
	first.Key = "k"
	in, input := io.Pipe()
	first.Stdin = in
	x := d.stream(first)
	d.waitForOutput(x.Process(), "on")
	second := sh("cat")
	second.Key, second.Stdin = "k", strings.NewReader("wrong\n")
	y := d.stream(second)
	d.wantCode("kill", y.Kill(d.ctx, 0), schemas.CodeConflict)
	d.wantCode("signal", y.Signal(d.ctx, "SIGTERM"), schemas.CodeConflict)
	for e, err := range y.Events(d.ctx) {
		if e.Chunk != nil {
			t.Errorf("output = %q, want none", e.Chunk.Data)
		}
		if err != nil {
			d.wantCode("the second command", err, schemas.CodeConflict)
		}
	}
	y.Close()
	_, err := input.Write([]byte("right\n"))
	d.must(err)
	r := d.waitForEnd(x.Process())
	d.equal("stdout", r.Stdout, "on\ngot right\n")
	d.must(input.Close())
}
