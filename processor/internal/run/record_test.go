package run

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/schemas"
)

// printed is output of n bytes, of one of the kinds that JSON encodes differently.
func printed(r *rand.Rand, n int) []byte {
	p := make([]byte, n)
	switch r.IntN(5) {
	case 0: // text
		for i := range p {
			p[i] = byte('a' + r.IntN(26))
		}
	case 1: // six bytes for one
		for i := range p {
			p[i] = byte(1 + r.IntN(7))
		}
	case 2: // base64
		for i := range p {
			p[i] = byte(r.Uint32())
		}
	case 3: // characters of several bytes, cut anywhere
		copy(p, strings.Repeat("€𝄞ü<&", n/4+1))
	case 4: // control characters that one byte at the end makes base64: cut, they grow
		for i := range p {
			p[i] = 1
		}
		if n > 0 {
			p[n-1] = 0xff
		}
	}
	return p
}

func TestFitKeepsRecordsUnderTheLimit(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 10 {
		limit := int64(64<<10 + r.IntN(256<<10))
		out, err := printed(r, r.IntN(150<<10)), printed(r, r.IntN(150<<10))
		more := int64(r.IntN(3)) * 1000
		res := &schemas.Result{
			Process: strings.Repeat("p", 26), Thread: strings.Repeat("t", 128), Command: strings.Repeat("\x01", schemas.MaxPathBytes),
			Args: []string{strings.Repeat("\x02", 3000)}, Error: schemas.Errorf(schemas.CodeLost, "%s", strings.Repeat("<", 1000)),
		}
		res.SetOutput(schemas.Stdout, out, int64(len(out))+more)
		res.SetOutput(schemas.Stderr, err, int64(len(err)))
		fit(res, limit)
		p := (&publisher.Publisher{Worker: strings.Repeat("w", 128)})
		body, jerr := json.Marshal(p.Event(schemas.TypeProcessExited, strings.Repeat("x", 128), res.Thread, "s", res.Process, res))
		if jerr != nil || int64(len(body)) > limit {
			t.Fatalf("record of %d bytes, error %v; want at most %d", len(body), jerr, limit)
		}
		for _, s := range []struct {
			of        schemas.Stream
			all       []byte
			total     int64
			gotTotal  int64
			truncated bool
		}{
			{schemas.Stdout, out, int64(len(out)) + more, res.StdoutBytes, res.StdoutTruncated},
			{schemas.Stderr, err, int64(len(err)), res.StderrBytes, res.StderrTruncated},
		} {
			kept, derr := res.Output(s.of)
			if derr != nil || !strings.HasPrefix(string(s.all), string(kept)) {
				t.Fatalf("%s in the result is not the beginning of the output, error %v", s.of, derr)
			}
			if s.gotTotal != s.total || s.truncated != (int64(len(kept)) < s.total) {
				t.Fatalf("%s: total %d, truncated %v, with %d kept; want total %d", s.of, s.gotTotal, s.truncated, len(kept), s.total)
			}
			if utf8.Valid(s.all) && !utf8.Valid(kept) {
				t.Fatalf("%s was cut inside a character, want whole characters", s.of)
			}
		}
	}
}

func TestFitKeepsOutputThatFits(t *testing.T) {
	res := &schemas.Result{}
	res.SetOutput(schemas.Stdout, []byte("hello"), 5)
	fit(res, 64<<10)
	if res.Stdout != "hello" || res.StdoutTruncated {
		t.Fatalf("stdout = %q, truncated %v; want %q and false", res.Stdout, res.StdoutTruncated, "hello")
	}
}

// Promises 12: a process that has started is never rejected, because a rejected command runs again.
func TestStartedProcessIsNeverRejected(t *testing.T) {
	for _, code := range schemas.Codes() {
		for _, started := range []bool{false, true} {
			var r schemas.Result
			typ := fillError(&r, schemas.Errorf(code, "no"), started)
			if lost := started || code == schemas.CodeLost; (typ == schemas.TypeProcessLost) != lost || (r.Reason == schemas.ReasonLost) != lost {
				t.Errorf("%s, started %v: %s with reason %s, want lost: %v", code, started, typ, r.Reason, lost)
			}
			if r.RunsAgain() && started {
				t.Errorf("%s: it runs again", code)
			}
		}
	}
}
