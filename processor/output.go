package processor

import (
	"errors"
	"io"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// kept is the beginning of a process's output, for its result.
type kept struct {
	limit          int64
	stdout, stderr []byte
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

// pump stores what a process prints until it prints no more. Output that cannot be stored ends the process: it must neither
// vanish in silence nor block the process for ever.
func (w *Worker) pump(r *run, proc sandbox.Process, result *schemas.Result) (*kept, error) {
	keep := &kept{limit: r.exec.Limit()}
	ack := func(stream schemas.Stream, offset int64) {
		_ = proc.Ack(stream, offset) // it fails only where the supervisor is gone, which Wait tells
	}
	out := w.cfg.OpenOutput(r.thread.tenant, r.thread.thread, r.process, r.thread.session.Epoch, ack)
	var failed error
	for {
		o, err := proc.Read(w.bg)
		if err != nil {
			if !errors.Is(err, io.EOF) && failed == nil {
				failed = err
			}
			break
		}
		keep.add(o)
		if failed == nil {
			if failed = out.Write(o.Stream, o.Offset, o.Data); failed != nil {
				w.gap(r, o, failed)
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

// gap tells that output is missing from here on.
func (w *Worker) gap(r *run, o sandbox.Output, cause error) {
	w.publish(w.bg, w.event(schemas.TypeLogGap, r.thread.tenant, r.thread.thread, r.thread.session.ID, r.process,
		schemas.LogGap{Stream: o.Stream, From: o.Offset, To: -1, Reason: cause.Error()}))
}
