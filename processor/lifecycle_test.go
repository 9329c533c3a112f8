package processor

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/schemas"
)

func TestEverySequenceOfOccurrencesEndsByItsDeadline(t *testing.T) {
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
				if !l.occur(occurOverdue, now) {
					t.Fatalf("a deadline passes in state %s and changes nothing", l.state)
				}
			}
			before := l.state
			final = final || before.Final()
			if l.occur(occurrence(o), now) && final {
				t.Fatalf("%s became %s", before, l.state)
			}
		}
		// Whatever came before: it can be terminated, and is gone in time without anybody's help.
		if !l.state.Final() {
			asked := now
			if !l.occur(occurWish, now) && l.state != sandboxEnding {
				t.Fatalf("cannot be terminated in state %s", l.state)
			}
			if !l.state.Final() {
				if l.due.IsZero() || l.due.After(asked.Add(b.ending)) {
					t.Fatalf("asked to end at %v, and may take until %v", asked, l.due)
				}
				l.occur(occurOverdue, l.due)
			}
			if l.state != schemas.SandboxTerminated {
				t.Fatalf("terminated, it is %s", l.state)
			}
		}
		if !l.due.IsZero() {
			t.Fatalf("%s still has a deadline", l.state)
		}
	})
}

func TestWithoutAnybodysHelpASandboxWithALifetimeEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		b := bounds{pending: time.Second, creating: time.Minute, ending: 30 * time.Second, running: now.Add(time.Hour)}
		l := newLife(now, b)
		for _, o := range rapid.SliceOf(rapid.IntRange(0, int(occurrences)-1)).Draw(t, "occurrences") {
			l.occur(occurrence(o), now)
		}
		for !l.state.Final() {
			if l.due.IsZero() {
				t.Fatalf("%s has no deadline", l.state)
			}
			l.occur(occurOverdue, l.due)
		}
	})
}

func TestTerminateIsLegalFromEveryState(t *testing.T) {
	for _, s := range append(schemas.SandboxStates(), sandboxEnding) {
		l := life{state: s, bounds: bounds{ending: time.Second}}
		l.occur(occurWish, time.Now())
		if !l.state.Final() && l.state != sandboxEnding {
			t.Errorf("from %s to %s", s, l.state)
		}
		if s.Final() && l.state != s {
			t.Errorf("the final state %s became %s", s, l.state)
		}
	}
}

func TestEveryStateThatIsToldHasItsEvent(t *testing.T) {
	known := make(map[schemas.EventType]bool)
	for _, typ := range schemas.EventTypes() {
		known[typ] = true
	}
	for _, s := range schemas.SandboxStates() {
		if !known[eventOf(s)] {
			t.Errorf("%s is no event", eventOf(s))
		}
	}
}
