package processor

import (
	"context"

	"github.com/sluice-dev/sluice/schemas"
)

// note is something to tell of a thread: an event, a change of its session in KV, or both.
type note struct {
	event *schemas.Event
	edit  func(*schemas.Session)
}

// note has something told, in the order of the calls, without waiting for it: no command waits for what only informs.
func (w *Worker) note(t *thread, n note) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.noteLocked(t, n)
}

// noteLocked is note with t.mu held.
func (w *Worker) noteLocked(t *thread, n note) {
	if t.noting == nil {
		noting := make(chan struct{})
		if !w.errands.do(func() { w.tellNotes(t, noting) }) {
			return // the worker has ended
		}
		t.noting = noting
	}
	t.notes = append(t.notes, n)
}

// tellNotes publishes what is to be told, until there is no more. The changes that come together are one write.
func (w *Worker) tellNotes(t *thread, told chan struct{}) {
	defer close(told)
	for {
		t.mu.Lock()
		notes := t.notes
		t.notes = nil
		if len(notes) == 0 {
			t.noting = nil
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		changed := false
		for _, n := range notes {
			if n.event != nil {
				w.publish(w.bg, n.event)
			}
			changed = changed || n.edit != nil
		}
		if !changed {
			continue
		}
		if _, err := w.change(w.bg, t, func(s *schemas.Session) {
			for _, n := range notes {
				if n.edit != nil {
					n.edit(s)
				}
			}
		}); err != nil && !w.isFenced() {
			w.cfg.Log.Warn().Err(err).Str("thread", t.thread).Str("session_id", t.session.ID).Msg("session not saved")
		}
	}
}

// settleNotes waits until all that was noted is told, or ctx ends.
func (t *thread) settleNotes(ctx context.Context) {
	for {
		t.mu.Lock()
		noting := t.noting
		t.mu.Unlock()
		if noting == nil {
			return
		}
		select {
		case <-noting:
		case <-ctx.Done():
			return
		}
	}
}
