package processor

import (
	"errors"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// smallStore stores this many bytes and no more.
type smallStore struct {
	Output
	mu     sync.Mutex
	room   int64
	stored func(schemas.Stream, int64)
	late   bool // it fails when it is closed, as output does that was still on its way
}

var errFull = schemas.Errorf(schemas.CodeLimitExceeded, "no space left")

// Write stores what fits.
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

// Close tells of what did not fit.
func (s *smallStore) Close() (*schemas.LogRange, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.room == 0 {
		return &schemas.LogRange{FirstSeq: 1, LastSeq: 1, Chunks: 1}, errFull
	}
	return nil, nil
}

func TestOutputThatCannotBeStoredEndsTheProcessAndSaysSo(t *testing.T) {
	for _, late := range []bool{false, true} {
		c := newCell(t)
		w := c.worker("w1", func(cfg *Config) {
			open := cfg.OpenOutput
			cfg.OpenOutput = func(p schemas.ProcessRef, after *schemas.LogRange, stored func(schemas.Stream, int64)) Output {
				if p.Process != processOf(command("flood", schemas.Exec{})) {
					return open(p, after, stored)
				}
				return &smallStore{room: 100, stored: stored, late: late}
			}
		})
		script := "while :; do echo 0123456789012345678901234567890123456789; done"
		if late {
			script = "head -c 300 /dev/zero"
		}
		r := c.exec(command("flood", sh(script)))
		if r.Error == nil || r.Error.Code != schemas.CodeLimitExceeded {
			t.Fatalf("late %v: %+v", late, r)
		}
		if !late && (r.Reason != schemas.ReasonKilled || r.StdoutBytes == 0 || r.Stdout == "") {
			t.Fatalf("%+v", r)
		}
		var gap schemas.LogGap
		c.must(c.await(func(ev *schemas.Event) bool { return ev.Type == schemas.TypeLogGap }).Decode(&gap))
		if gap.Stream != schemas.Stdout || gap.From > 100 || gap.From < 0 || gap.To != r.StdoutBytes || gap.Reason == "" {
			t.Fatalf("%+v of %d bytes", gap, r.StdoutBytes)
		}
		// The worker lives, and others lose nothing.
		if r := c.exec(command("after", sh("echo after"))); r.Stdout != "after\n" || r.Error != nil {
			t.Fatalf("%+v", r)
		}
		if got := w.log.of("command_failed"); !late && (len(got) != 1 || got[0]["code"] != string(schemas.CodeLimitExceeded)) {
			t.Fatalf("%v", got)
		}
	}
}

func TestOfAGigabyteOnlyTheLimitIsHeld(t *testing.T) {
	piece := make([]byte, 256<<10)
	k := newKept(schemas.DefaultOutputLimit)
	for i := range int64(4096) {
		k.add(sandbox.Output{Stream: schemas.Stdout, Offset: i * int64(len(piece)), Data: piece})
	}
	if got := k.stdout.b; int64(len(got)) != k.stdout.limit || int64(cap(got)) > 2*k.stdout.limit || k.stderr.b != nil {
		t.Fatalf("%d bytes in %d", len(got), cap(got))
	}
}

func TestAFencedWorkerStoresNoOutput(t *testing.T) {
	w := &Worker{}
	w.fenced.Store(true)
	if err := w.store(nil, sandbox.Output{}); !errors.Is(err, schemas.ErrLost) {
		t.Fatal(err)
	}
}
