package session

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/schemas"
)

func TestLifeEndsByItsDeadlines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		b := bounds{pending: time.Second, creating: time.Minute, ending: 30 * time.Second}
		lifetime := time.Duration(rapid.IntRange(0, 3600).Draw(t, "lifetime")) * time.Second
		if lifetime > 0 {
			b.running = now.Add(lifetime)
		}
		l := newLife(now, b)
		final := false
		for _, o := range rapid.SliceOf(rapid.IntRange(0, int(occurrences)-1)).Draw(t, "occurrences") {
			now = now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
			for !l.due.IsZero() && !now.Before(l.due) {
				if !l.apply(occurOverdue, now) {
					t.Fatalf("the deadline of state %s changed nothing, want a new state", l.state)
				}
			}
			before := l.state
			final = final || before.Final()
			if l.apply(occurrence(o), now) && final {
				t.Fatalf("final state %s became %s, want no change", before, l.state)
			}
		}
		// After any occurrences it can be terminated, and then ends by its deadline.
		if !l.state.Final() {
			asked := now
			if !l.apply(occurStop, now) && l.state != sandboxEnding {
				t.Fatalf("a stop changed nothing in state %s, want ending or a final state", l.state)
			}
			if !l.state.Final() {
				if l.due.IsZero() || l.due.After(asked.Add(b.ending)) {
					t.Fatalf("stop at %v has deadline %v, want at most %v", asked, l.due, asked.Add(b.ending))
				}
				l.apply(occurOverdue, l.due)
			}
			if l.state != schemas.SandboxTerminated {
				t.Fatalf("state after a stop = %s, want terminated", l.state)
			}
		}
		if !l.due.IsZero() {
			t.Fatalf("final state %s has a deadline, want none", l.state)
		}
	})
}

func TestLifeWithALifetimeEndsByItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		b := bounds{pending: time.Second, creating: time.Minute, ending: 30 * time.Second, running: now.Add(time.Hour)}
		l := newLife(now, b)
		for _, o := range rapid.SliceOf(rapid.IntRange(0, int(occurrences)-1)).Draw(t, "occurrences") {
			l.apply(occurrence(o), now)
		}
		for !l.state.Final() {
			if l.due.IsZero() {
				t.Fatalf("state %s has no deadline, want one", l.state)
			}
			l.apply(occurOverdue, l.due)
		}
	})
}

func TestTerminateIsLegalFromEveryState(t *testing.T) {
	for _, s := range append(schemas.SandboxStates(), sandboxEnding) {
		l := life{state: s, bounds: bounds{ending: time.Second}}
		l.apply(occurStop, time.Now())
		if !l.state.Final() && l.state != sandboxEnding {
			t.Errorf("a stop took %s to %s, want ending or a final state", s, l.state)
		}
		if s.Final() && l.state != s {
			t.Errorf("final state %s became %s, want no change", s, l.state)
		}
	}
}

func TestEveryReportedStateHasItsEvent(t *testing.T) {
	known := make(map[schemas.EventType]bool)
	for _, typ := range schemas.EventTypes() {
		known[typ] = true
	}
	for _, s := range schemas.SandboxStates() {
		if !known[eventOf(s)] {
			t.Errorf("%s is not an event type of schemas", eventOf(s))
		}
	}
}
