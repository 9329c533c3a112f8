package processor

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// kept is the beginning of a process's output, for its result, and how far the whole of it is stored.
type kept struct {
	limit          int64
	stdout, stderr []byte

	safeOut, safeErr atomic.Int64
}

func (k *kept) add(o sandbox.Output) {
	into := &k.stdout
	if o.Stream == schemas.Stderr {
		into = &k.stderr
	}
	if room := k.limit - int64(len(*into)); room > 0 {
		*into = append(*into, o.Data[:min(room, int64(len(o.Data)))]...)
	}
}

// stored keeps how far a stream is safe.
func (k *kept) stored(stream schemas.Stream, offset int64) {
	safe := &k.safeOut
	if stream == schemas.Stderr {
		safe = &k.safeErr
	}
	safe.Store(max(safe.Load(), offset))
}

// pump stores what a process prints until it prints no more. Output that cannot be stored ends the process: it must neither
// vanish in silence nor block the process for ever.
func (w *Worker) pump(r *run, proc sandbox.Process, result *schemas.Result) (*kept, error) {
	// What no record has room for would only fill the memory.
	keep := &kept{limit: min(r.exec.Limit(), w.cfg.MaxRecord)}
	ack := func(stream schemas.Stream, offset int64) {
		_ = proc.Ack(stream, offset) // it fails only where the supervisor is gone, which Wait tells
	}
	out := w.cfg.OpenOutput(r.thread.tenant, r.thread.thread, r.process, r.thread.session.Epoch, func(stream schemas.Stream, offset int64) {
		keep.stored(stream, offset)
		ack(stream, offset)
	})
	var failed error
	for {
		// The end of the output is the process's, never the worker's: without it nobody would know what was printed.
		o, err := proc.Read(context.WithoutCancel(w.bg))
		if err != nil {
			if !errors.Is(err, io.EOF) && failed == nil {
				failed = err
			}
			break
		}
		keep.add(o)
		if failed == nil {
			if failed = w.store(out, o); failed != nil {
				r.kill(0)
			}
		}
		if failed != nil {
			ack(o.Stream, o.Offset+int64(len(o.Data))) // dropped: the process must be able to come to its end
		}
	}
	rng, err := out.Close()
	result.Log = rng
	if failed == nil {
		failed = err
	}
	return keep, failed
}

// store hands a piece on. A worker whose lease is lost stores nothing more: another one tells how far the log goes.
func (w *Worker) store(out Output, o sandbox.Output) error {
	if w.isFenced() {
		return schemas.Errorf(schemas.CodeLost, "the lease of worker %s is lost", w.cfg.Worker)
	}
	return out.Write(o.Stream, o.Offset, o.Data)
}

// gaps tells which output is missing from the log.
func (w *Worker) gaps(r *run, keep *kept, exit sandbox.Exit, cause error) {
	for _, g := range []schemas.LogGap{
		{Stream: schemas.Stdout, From: keep.safeOut.Load(), To: exit.Stdout, Reason: cause.Error()},
		{Stream: schemas.Stderr, From: keep.safeErr.Load(), To: exit.Stderr, Reason: cause.Error()},
	} {
		if g.From < g.To {
			w.publish(w.bg, w.event(schemas.TypeLogGap, r.thread.tenant, r.thread.thread, r.thread.session.ID, r.process, g))
		}
	}
}
