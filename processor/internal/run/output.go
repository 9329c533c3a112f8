package run

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// capture holds the beginning of a process's output, for its result, and how far all of it is stored.
type capture struct{ stdout, stderr streamCapture }

type streamCapture struct {
	limit  int64
	kept   []byte
	read   int64        // bytes that were added, kept or not
	stored atomic.Int64 // bytes that are in the log
}

// newCapture is empty. Output that no record has room for would only fill the memory.
func (rs *Runs) newCapture(run *Run) *capture {
	out, limit := &capture{}, min(run.exec.Limit(), rs.cfg.MaxRecord)
	out.stdout.limit, out.stderr.limit = limit, limit
	return out
}

func (out *capture) of(stream schemas.Stream) *streamCapture {
	if stream == schemas.Stderr {
		return &out.stderr
	}
	return &out.stdout
}

// add keeps what fits into the limit. After a gap it keeps nothing more: the rest would look like what was printed.
func (s *streamCapture) add(offset int64, p []byte) {
	if offset > s.read {
		s.limit = min(s.limit, int64(len(s.kept)))
	}
	s.read = offset + int64(len(p))
	if room := s.limit - int64(len(s.kept)); room > 0 {
		s.kept = append(s.kept, p[:min(room, int64(len(p)))]...)
	}
}

// pump stores what a process prints until it prints no more. Output that cannot be stored ends the process: it must neither
// vanish in silence nor block the process for ever. after is the end of the output that is in the log already.
func (rs *Runs) pump(run *Run, proc sandbox.Process, out *capture, after *schemas.LogRange, result *schemas.Result) error {
	ack := func(stream schemas.Stream, offset int64) {
		_ = proc.Ack(stream, offset) // it fails only when the supervisor is gone, which Wait reports
	}
	log := rs.cfg.OpenOutput(run.ref(), after, func(stream schemas.Stream, offset int64) {
		stored := &out.of(stream).stored
		stored.Store(max(stored.Load(), offset))
		ack(stream, offset)
	})
	var failed error
	for {
		// The process ends its output; the end of the worker must not: what was printed would be unknown.
		o, err := proc.Read(context.WithoutCancel(rs.background.Context()))
		if err != nil {
			if !errors.Is(err, io.EOF) && failed == nil {
				failed = err
			}
			break
		}
		out.of(o.Stream).add(o.Offset, o.Data)
		if run.turn != nil {
			run.turn.Write(o.Stream, o.Data)
		}
		if failed == nil {
			// A fenced worker stores nothing more: another one reports how far the log goes.
			if failed = rs.publisher.CheckLease(); failed == nil {
				failed = log.Write(o.Stream, o.Offset, o.Data)
			}
			if failed != nil {
				run.Kill(0)
			}
		}
		if failed != nil {
			ack(o.Stream, o.Offset+int64(len(o.Data))) // dropped, so that the process can end
		}
	}
	rng, err := log.Close()
	result.Log = rng
	if failed == nil {
		failed = err
	}
	return failed
}

// reportGap reports output that is missing from the log, if any is.
func (rs *Runs) reportGap(run *Run, stream schemas.Stream, from, to int64, reason string) {
	if from < to {
		gap := schemas.LogGap{Stream: stream, From: from, To: to, Reason: reason}
		rs.publisher.Publish(rs.background.Context(), rs.event(run, schemas.TypeLogGap, gap))
	}
}
