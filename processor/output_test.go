package processor_test

import (
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

// smallStore stores room bytes and no more.
type smallStore struct {
	processor.Output
	mu     sync.Mutex
	room   int64
	stored func(schemas.Stream, int64)
	late   bool // it fails when it is closed, as with output that was still on its way
}

var errFull = schemas.Errorf(schemas.CodeLimitExceeded, "no space left")

func (s *smallStore) Write(stream schemas.Stream, offset int64, p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.room < int64(len(p)) {
		s.room = 0
		if s.late {
			return nil
		}
		return errFull
	}
	s.room -= int64(len(p))
	s.stored(stream, offset+int64(len(p)))
	return nil
}

// Close fails when something did not fit.
func (s *smallStore) Close() (*schemas.LogRange, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.room == 0 {
		return &schemas.LogRange{FirstSeq: 1, LastSeq: 1, Chunks: 1}, errFull
	}
	return nil, nil
}

func TestUnstorableOutputEndsTheProcessWithAnError(t *testing.T) {
	for _, late := range []bool{false, true} {
		c, w := newRig(t, func(cfg *processor.Config) {
			open := cfg.OpenOutput
			cfg.OpenOutput = func(p schemas.ProcessRef) processor.Opener {
				if p.Process != processOf(command("flood", schemas.Exec{})) {
					return open(p)
				}
				return func(stored func(schemas.Stream, int64), _ func(schemas.Stream, int64, int64)) processor.Output {
					return &smallStore{room: 100, stored: stored, late: late}
				}
			}
		})
		script := "while :; do echo 0123456789012345678901234567890123456789; done"
		if late {
			script = "head -c 300 /dev/zero"
		}
		r := c.exec(command("flood", sh(script)))
		wantFields(t, r, failed(schemas.CodeLimitExceeded))
		if !late && (r.Reason != schemas.ReasonKilled || r.StdoutBytes == 0 || r.Stdout == "") {
			t.Fatalf("reason = %s with %d bytes of output, %q kept; want killed with some", r.Reason, r.StdoutBytes, r.Stdout)
		}
		// Promises 14: it ended by itself with 0, and yet it is no success.
		if late && (r.Reason != schemas.ReasonExited || r.ExitCode != 0 || r.Success || len(r.Gaps) != 1) {
			t.Fatalf("reason %s, exit code %d, success %v, gaps %v; want exited, 0, no success and one gap", r.Reason, r.ExitCode, r.Success, r.Gaps)
		}
		var gap schemas.LogGap
		c.must(c.await(func(ev *schemas.Event) bool { return ev.Type == schemas.TypeLogGap }).Decode(&gap))
		if gap.Stream != schemas.Stdout || gap.From > 100 || gap.From < 0 || gap.To != r.StdoutBytes || gap.Reason == "" {
			t.Fatalf("gap = %+v, want one of stdout from at most 100 to %d with a reason", gap, r.StdoutBytes)
		}
		// Other processes are not affected.
		r = c.exec(command("after", sh("echo after")))
		equal(t, "stdout of another process", r.Stdout, "after\n")
		equal(t, "its error", r.Error, nil)
		if got := w.log.of("command_failed"); !late && (len(got) != 1 || got[0]["code"] != string(schemas.CodeLimitExceeded)) {
			t.Fatalf("command_failed lines are %v, want one with code limit_exceeded", got)
		}
	}
}
