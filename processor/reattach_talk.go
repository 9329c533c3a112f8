package processor

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// finishTalk does what follows an answer whose end is on record: an earlier incarnation ended before it was through with that. A
// process that is no message's is forgotten. Errors: unavailable.
func (f *reattachment) finishTalk(ctx context.Context, t *thread, sb sandbox.Attached, h sandbox.Held, last *schemas.Event) error {
	w := f.w
	accepted, err := w.cfg.History.Accepted(ctx, t.tenant, t.thread, h.ID)
	aged := errors.Is(err, schemas.ErrNotFound)
	if err != nil && !aged {
		return err
	}
	var a schemas.Accepted
	var result schemas.Result
	known := !aged && accepted.Decode(&a) == nil && last.Decode(&result) == nil
	if !known || a.Op != schemas.OpMessage {
		f.later(func() { w.discard(sb, h) })
		return nil
	}
	r := newResumed(t, accepted, &a, last, h)
	t.begin()
	t.lineUp(r.talk)
	f.later(func() {
		defer t.end()
		defer r.talk.through()
		if w.rehear(r) == nil {
			w.concludeTalk(r, &result)
			w.discard(sb, h)
		}
	})
	return nil
}

// rehear takes an answer from the log, which is read as long as it takes. The error is that of the worker's end.
func (w *Worker) rehear(r *run) error {
	policy := backoff.WithContext(backoff.NewExponentialBackOff(backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0)), w.bg)
	return backoff.Retry(func() error {
		r.talk.again()
		_, err := w.cfg.Replay(w.bg, r.ref(), func(stream schemas.Stream, _ int64, p []byte) { r.talk.hear(stream, p) })
		return err
	}, policy)
}
