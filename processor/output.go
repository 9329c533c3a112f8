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
type kept struct{ stdout, stderr head }

// head is what is kept of a stream.
type head struct {
	limit int64
	b     []byte
	came  int64        // the bytes that were added, kept or not
	safe  atomic.Int64 // the bytes that are stored
}

func newKept(limit int64) *kept {
	k := &kept{}
	k.stdout.limit, k.stderr.limit = limit, limit
	return k
}

func (k *kept) of(stream schemas.Stream) *head {
	if stream == schemas.Stderr {
		return &k.stderr
	}
	return &k.stdout
}

func (k *kept) add(o sandbox.Output) { k.of(o.Stream).add(o.Offset, o.Data) }

// add keeps as much of what comes as there is room for. Behind a hole nothing more is: it would look like what was printed.
func (h *head) add(offset int64, p []byte) {
	if offset > h.came {
		h.limit = min(h.limit, int64(len(h.b)))
	}
	h.came = offset + int64(len(p))
	if room := h.limit - int64(len(h.b)); room > 0 {
		h.b = append(h.b, p[:min(room, int64(len(p)))]...)
	}
}

// stored keeps how far a stream is safe.
func (k *kept) stored(stream schemas.Stream, offset int64) {
	safe := &k.of(stream).safe
	safe.Store(max(safe.Load(), offset))
}

// pump stores what a process prints until it prints no more. Output that cannot be stored ends the process: it must neither
// vanish in silence nor block the process for ever. after is where what is kept already stands in the log.
func (w *Worker) pump(r *run, proc sandbox.Process, keep *kept, after *schemas.LogRange, result *schemas.Result) error {
	ack := func(stream schemas.Stream, offset int64) {
		_ = proc.Ack(stream, offset) // it fails only where the supervisor is gone, which Wait tells
	}
	out := w.cfg.OpenOutput(r.ref(), after, func(stream schemas.Stream, offset int64) {
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
		r.talk.hear(o.Stream, o.Data)
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
	return failed
}

func (r *run) ref() schemas.ProcessRef {
	return schemas.ProcessRef{Tenant: r.thread.tenant, Thread: r.thread.thread, Process: r.process, Epoch: r.epoch}
}

// newKept is empty. What no record has room for would only fill the memory.
func (w *Worker) newKept(r *run) *kept { return newKept(min(r.exec.Limit(), w.cfg.MaxRecord)) }

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
		{Stream: schemas.Stdout, From: keep.stdout.safe.Load(), To: exit.Stdout, Reason: cause.Error()},
		{Stream: schemas.Stderr, From: keep.stderr.safe.Load(), To: exit.Stderr, Reason: cause.Error()},
	} {
		if g.From < g.To {
			w.publish(w.bg, w.event(schemas.TypeLogGap, r.thread.tenant, r.thread.thread, r.thread.session.ID, r.process, g))
		}
	}
}
