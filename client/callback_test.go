package client_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// calls are what the callbacks of one request got.
type calls struct {
	output   map[schemas.Stream]string
	complete []*schemas.Result
	failed   []error
}

// watch sets the callbacks of a request.
func watch(req *client.Request) *calls {
	c := &calls{output: map[schemas.Stream]string{}}
	req.OnOutput = func(k schemas.Chunk) { c.output[k.Stream] += string(k.Data) }
	req.OnComplete = func(r *schemas.Result) { c.complete = append(c.complete, r) }
	req.OnError = func(err error) { c.failed = append(c.failed, err) }
	return c
}

func TestCallbacksChangeNothing(t *testing.T) {
	d := newCaller(t, "w1")
	req := sh("seq 200000; echo no >&2; exit 3")
	plain := d.exec(req)
	c := watch(&req)
	r := d.exec(req)
	d.equal("bytes of standard output", int64(len(c.output[schemas.Stdout])), r.StdoutBytes)
	d.equal("standard error", c.output[schemas.Stderr], "no\n")
	d.equal("results of OnComplete", c.complete, []*schemas.Result{r})
	d.equal("errors", len(c.failed), 0)
	d.equal("beginning of the output", r.Stdout, plain.Stdout)
	r.Process, r.Fingerprint, r.Log, r.Timestamp, r.DurationMS, r.UserMS, r.SystemMS, r.MaxRSSBytes = plain.Process, plain.Fingerprint, plain.Log, plain.Timestamp, plain.DurationMS, plain.UserMS, plain.SystemMS, plain.MaxRSSBytes
	d.equal("result", r, plain)

	bad := sh("true")
	bad.Session = "ended"
	c = watch(&bad)
	_, err := d.Exec(d.ctx, bad)
	d.wantCode("an ended session", err, schemas.CodeSessionExpired)
	d.equal("the error of OnError", len(c.failed) == 1 && c.failed[0] == err, true)
	d.equal("results", len(c.complete), 0)
}

// The end of the context kills the whole tree, and its error is not that of a timeout.
func TestCanceledExecWithCallbacksIsKilled(t *testing.T) {
	d := newCaller(t, "w1")
	ctx, cancel := context.WithCancel(d.ctx)
	req := sh("(echo on; exec sleep 300) & wait")
	req.Key = "k"
	c := watch(&req)
	req.OnOutput = func(schemas.Chunk) { cancel() }
	_, err := d.Exec(ctx, req)
	d.wantCode("a canceled command", err, schemas.CodeCanceled)
	d.equal("the error is the context's too", errors.Is(err, context.Canceled), true)
	d.equal("the error of OnError", len(c.failed) == 1 && c.failed[0] == err, true)
	r := d.waitForEnd(d.ProcessID("t", "k"))
	d.equal("reason", r.Reason, schemas.ReasonKilled)

	late := sh("(sleep 300) & wait")
	late.Timeout = 1
	r = d.exec(late)
	d.equal("reason of a timeout", r.Reason, schemas.ReasonTimedOut)
	d.equal("exit code of a timeout", r.ExitCode, schemas.ExitTimedOut)
}

func TestOutputHasTheEncodingOfTheRequest(t *testing.T) {
	d := newCaller(t, "w1")
	req := sh(`printf 'a\377b'; printf 'ok' >&2`)
	for encoding, want := range map[client.Encoding][3]string{
		client.EncodingAuto:   {"Yf9i", "base64", "ok"},
		client.EncodingText:   {"a\uFFFDb", "", "ok"},
		client.EncodingBase64: {"Yf9i", "base64", "b2s="},
		client.EncodingRaw:    {"a\xffb", "", "ok"},
	} {
		for _, stream := range []bool{false, true} {
			req.Encoding, req.OnOutput = encoding, nil
			if stream {
				watch(&req)
			}
			r := d.exec(req)
			d.equal("output as "+string(encoding), [3]string{r.Stdout, string(r.StdoutEncoding), r.Stderr}, want)
		}
	}
	req.Encoding = "latin-1"
	d.wantCode("an unknown encoding", errorOf(d.Exec(d.ctx, req)), schemas.CodeInvalidArgument)
}

func TestLogsAreAnIterator(t *testing.T) {
	d := newCaller(t, "w1")
	p := d.start(sh("echo one; sleep 0.2; echo two"))
	got := ""
	for k, err := range d.LogChunks(d.ctx, client.LogQuery{Process: p.ID(), Follow: true}) {
		d.must(err)
		got += string(k.Data)
	}
	d.equal("output", got, "one\ntwo\n")
	n := 0
	for _, err := range d.LogChunks(d.ctx, client.LogQuery{Process: p.ID()}) {
		d.must(err)
		n++
		break
	}
	d.equal("chunks before the loop was left", n, 1)
	for _, err := range d.LogChunks(d.ctx, client.LogQuery{Process: "p0"}) {
		d.wantCode("an unknown process", err, schemas.CodeNotFound)
	}
}
