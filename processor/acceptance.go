package processor

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// accept writes the process's first record and starts the run. The record comes before the fork: were it the other way
// round, a second worker could fork as well.
func (w *Worker) accept(ctx context.Context, t *thread, d schemas.Delivery) schemas.Verdict {
	return w.acceptAfter(ctx, t, d, 0)
}

func (w *Worker) acceptAfter(ctx context.Context, t *thread, d schemas.Delivery, after uint64) schemas.Verdict {
	r := newRun(t, &d)
	a := w.begin(r)
	a.durable = d.Durable
	if s := admit(a); s != stepRun {
		return w.turnDown(&d, s, "", w.busy(&d, a))
	}
	acc := schemas.Accepted{
		Fingerprint: d.Fingerprint, Command: r.exec.Command, TimeoutMS: r.exec.TimeoutMS, Epoch: r.epoch, Retry: r.exec.Retry,
		OutputLimit: r.exec.OutputLimit, StdinOpen: r.exec.StdinOpen, StdinBytes: int64(len(r.exec.Stdin)),
	}
	acc.Args, acc.ArgsTruncated = r.args, r.cut
	if r.talk != nil {
		acc.Op, acc.User = schemas.OpMessage, r.talk.user
	}
	r.accepted = w.event(schemas.TypeProcessAccepted, d.Tenant, d.Thread, t.session.ID, r.process, acc)
	seq, err := w.cfg.Records.Append(ctx, r.accepted, after)
	if err != nil {
		w.end(r)
		if r.talk != nil {
			w.work.Go(r.talk.through)
		}
		w.work.Done()
		if errors.Is(err, schemas.ErrConflict) && after == 0 {
			return w.collided(ctx, t, &d, func(after uint64) schemas.Verdict {
				return w.acceptAfter(ctx, t, d, after)
			})
		}
		s := stepRefuse
		if d.Durable || errors.Is(err, schemas.ErrConflict) {
			s = stepDecline
		}
		return w.turnDown(&d, s, "", schemas.AsError(err))
	}
	w.sawSeq(seq)
	r.seq = seq
	w.answerAccepted(r, &d)
	go func() {
		defer w.work.Done()
		w.execute(r)
	}()
	return schemas.Verdict{Action: schemas.ActionDone}
}

// acceptedDelay is how long a caller may wait to hear that its command was accepted. A command that ends before is spared the
// message: its end says as much.
const acceptedDelay = 5 * time.Millisecond

// answerAccepted tells the caller of a command that does not end at once.
func (w *Worker) answerAccepted(r *run, d *schemas.Delivery) {
	switch {
	case d.Inbox == "":
	case d.Durable: // whoever queued it has waited long enough
		w.answer(d.Inbox, r.accepted)
	default:
		inbox := d.Inbox
		timer := time.AfterFunc(acceptedDelay, func() {
			if !r.isTold() {
				w.answer(inbox, r.accepted)
			}
		})
		r.mu.Lock()
		r.notice = timer
		r.mu.Unlock()
	}
}

func (r *run) isTold() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told
}

// begin enters a run, so that a signal and a second command of its id find it, or says what keeps it out. The room for it
// is taken in the same step: two threads' commands at once must not share the last place.
func (w *Worker) begin(r *run) admission {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := admission{
		leaving: w.leaving || w.isFenced(),
		// The session may have ended since it was looked up, or be about to; a later delivery makes a new one.
		unknown: w.threads[threadKey(r.thread.tenant, r.thread.thread)] != r.thread || r.thread.ends(),
		full:    len(w.runs) >= w.cfg.MaxProcesses,
	}
	if a != (admission{}) {
		return a
	}
	r.low = w.seq + 1
	w.runs[runKey(r.thread.tenant, r.process)] = r
	w.work.Add(1)
	r.thread.begin()
	if r.talk != nil {
		r.thread.lineUp(r.talk)
	}
	return a
}

func (w *Worker) end(r *run) {
	w.mu.Lock()
	delete(w.runs, runKey(r.thread.tenant, r.process))
	w.mu.Unlock()
	r.thread.end()
}

// busy says why there is no room now.
func (w *Worker) busy(d *schemas.Delivery, a admission) *schemas.Error {
	switch {
	case a.leaving:
		return schemas.Errorf(schemas.CodeUnavailable, "worker %s cannot take commands of thread %s now: try again", w.cfg.Worker, d.Thread)
	case a.full:
		return schemas.Errorf(schemas.CodePoolExhausted, "worker %s runs %d processes already: try again later, or raise --max-processes", w.cfg.Worker, w.cfg.MaxProcesses)
	default:
		return schemas.Errorf(schemas.CodeUnavailable, "thread %s changes hands: try again", d.Thread)
	}
}
