package history

import (
	"cmp"
	"slices"
	"time"
)

// Span is a time during which something was away, from From to To.
type Span struct {
	From, To time.Time
	// Back is when it was started again, or went on; it may need until To to be of use.
	Back time.Time
}

// Wait is how long a queued command waited.
type Wait struct {
	Process string
	Time    time.Duration
}

// Waits are how long queued commands waited for their first record, shortest first, by what was away meanwhile.
type Waits struct {
	// Calm are the waits during which nothing was away: since the ack of CMD.
	Calm []Wait
	// Restarted are those during which a worker came back: since the last one was started again, or since a later ack.
	Restarted []Wait
	// Failover are those during which a worker was away that did not come back before: since the ack.
	Failover []Wait
	// Broken are those during which NATS was not whole, with or without a worker away. Mended are the same waits, since NATS was whole again, and
	// since the last worker came back meanwhile.
	Broken, Mended []Wait
}

// QueueWaits measures the commands that CMD acked at once. Its times are CMD's ack by the client's clock, and EVT's by the server's, which
// are the same clock in a history of one machine.
func (h *History) QueueWaits() (w Waits) {
	for _, p := range h.processes() {
		if len(p.ops) == 1 && p.ops[0].Durable && p.ops[0].Canceled.IsZero() && p.ops[0].Queued > 0 && len(p.records) > 0 {
			w.add(h, p.id, p.ops[0].Acked, p.records[0].Stored)
		}
	}
	for _, all := range [][]Wait{w.Calm, w.Restarted, w.Failover, w.Broken, w.Mended} {
		slices.SortFunc(all, func(a, b Wait) int { return cmp.Compare(a.Time, b.Time) })
	}
	return w
}

func (w *Waits) add(h *History, process string, acked, accepted time.Time) {
	since := func(t time.Time) Wait { return Wait{process, max(0, accepted.Sub(t))} }
	mended, broken := lastBack(h.Broken, acked, accepted)
	back, ok := lastBack(h.Away, acked, accepted)
	switch {
	case broken:
		if back.After(mended) && !back.After(accepted) {
			mended = back
		}
		w.Broken, w.Mended = append(w.Broken, since(acked)), append(w.Mended, since(mended))
	case !ok:
		w.Calm = append(w.Calm, since(acked))
	case back.After(accepted):
		w.Failover = append(w.Failover, since(acked))
	default:
		w.Restarted = append(w.Restarted, since(back))
	}
}

// lastBack returns when the last of the spans that overlap a wait was over, but not before the wait began. ok is false when none overlaps.
func lastBack(spans []Span, from, to time.Time) (back time.Time, ok bool) {
	back = from
	for _, s := range spans {
		if s.From.Before(to) && s.To.After(from) {
			ok = true
			if s.Back.After(back) {
				back = s.Back
			}
		}
	}
	return back, ok
}
