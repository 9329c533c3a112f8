package service

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Processes 4: the documented clocks are the defaults, and a service sets its own.
func TestClocks(t *testing.T) {
	c := clocksOf(&schemas.ServiceSpec{})
	testkit.Equal(t, "defaults", fmt.Sprint(c), fmt.Sprint(clocks{
		start: 30 * time.Second, first: 150 * time.Millisecond, poll: 500 * time.Millisecond, probe: 2 * time.Second,
		monitor: 10 * time.Second, failures: 3, backoff: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, attempts: 3,
		grace: 5 * time.Second,
	}))
	c = clocksOf(&schemas.ServiceSpec{StartTimeoutMS: 1, GraceMS: 2, Health: &schemas.HealthCheck{IntervalMS: 3, TimeoutMS: 4}})
	testkit.Equal(t, "its own", []time.Duration{c.start, c.grace, c.monitor, c.probe}, []time.Duration{
		time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 4 * time.Millisecond,
	})
}

// Processes 4: whatever occurs in whatever order, the machine ends what it has started, starts only what has ended, and has somewhere to
// go on from.
func FuzzMachine(f *testing.F) {
	f.Add([]byte{0, 2, 4, 5, 5, 5, 6, 3, 2, 7, 6}, true)
	f.Add([]byte{0, 6, 3, 6, 3, 6, 3}, false)
	f.Fuzz(func(t *testing.T, occurrences []byte, checked bool) {
		m := machine{clocks: defaultClocks(), checked: checked}
		now := time.Unix(0, 0)
		m.next(occurStart, now)
		alive := true
		for _, b := range occurrences {
			o := occurrence(b % 8)
			if o <= occurAdopt || (!alive && o != occurWake && o != occurStop) {
				continue // they cannot occur then
			}
			now = now.Add(time.Duration(b) * 100 * time.Millisecond)
			next := m.next(o, now)
			alive = alive && o != occurEnd
			switch next.do {
			case doLaunch:
				if alive {
					t.Fatal("it is launched twice")
				}
				alive = true
			case doKill:
				if !alive {
					t.Fatal("what does not run is killed")
				}
			case doProbe:
				if !alive || !checked {
					t.Fatal("there is nothing to probe")
				}
			}
			if m.state.Ended() && alive {
				t.Fatalf("it is %s and runs", m.state)
			}
			if !m.state.Ended() && !alive && next.wake.IsZero() {
				t.Fatalf("nothing will happen after %v in state %s", o, m.state)
			}
			if m.starts > m.clocks.attempts {
				t.Fatalf("%d starts in a row", m.starts)
			}
		}
	})
}
