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

// Promises 10: the record of an end is small whatever the process printed, and EVT keeps room for it.
func TestEndRecordsAreSmall(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		all := map[schemas.Stream][]byte{schemas.Stdout: printed(r, r.IntN(8<<10)), schemas.Stderr: printed(r, r.IntN(8<<10))}
		more := int64(r.IntN(3)) * 1000
		res := &schemas.Result{Process: strings.Repeat("p", 26), Thread: strings.Repeat("t", 128), Command: "true"}
		for _, s := range schemas.Streams() {
			setOutput(res, s, all[s], int64(len(all[s]))+more)
		}
		p := (&publisher.Publisher{Worker: strings.Repeat("w", 128)})
		body, jerr := json.Marshal(p.Event(schemas.TypeProcessExited, publisher.About{
			Tenant: strings.Repeat("x", 128), Thread: res.Thread, Session: "s", Process: res.Process, Template: strings.Repeat("t", 128),
		}, res))
		if limit := 2*schemas.MaxRecordOutput + 2<<10; jerr != nil || len(body) > limit {
			t.Fatalf("record of %d bytes, error %v; want at most %d", len(body), jerr, limit)
		}
		for _, s := range schemas.Streams() {
			kept, derr := res.Output(s)
			if derr != nil || !strings.HasPrefix(string(all[s]), string(kept)) || (len(kept) < schemas.MaxRecordOutput/8 && len(kept) < len(all[s])-3) {
				t.Fatalf("%s: %d bytes kept of %d, error %v; want the beginning of the output", s, len(kept), len(all[s]), derr)
			}
			total, truncated := res.StdoutBytes, res.StdoutTruncated
			if s == schemas.Stderr {
				total, truncated = res.StderrBytes, res.StderrTruncated
			}
			if want := int64(len(all[s])) + more; total != want || truncated != (int64(len(kept)) < want) {
				t.Fatalf("%s: total %d, truncated %v, with %d kept; want total %d", s, total, truncated, len(kept), want)
			}
			if utf8.Valid(all[s]) && !utf8.Valid(kept) {
				t.Fatalf("%s was cut inside a character, want whole characters", s)
			}
		}
	}
}

func TestOutputThatFitsIsInTheRecord(t *testing.T) {
	res := &schemas.Result{}
	setOutput(res, schemas.Stdout, []byte("hello"), 5)
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
