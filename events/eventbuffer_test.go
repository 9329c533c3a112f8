package events

import (
	"context"
	"fmt"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// storedIDs returns the ids of all events, in order.
func storedIDs(t testing.TB, c *peer) (ids []string) {
	t.Helper()
	_, err := c.ReadEvents(testkit.Context(t), Filter{}, 1, func(ev *schemas.Event) error {
		ids = append(ids, ev.ID)
		return nil
	})
	testkit.Must(t, err)
	return ids
}

func TestEventBufferKeepsTheOrder(t *testing.T) {
	n, c := connected(t, true)
	ctx, cancel := context.WithCancel(testkit.Context(t))
	r := c.NewEventBuffer(func(ev *schemas.Event, err error) { t.Errorf("event %s was not stored: %v", ev.ID, err) })
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	var want []string
	next := func() *schemas.Event {
		ev := record("t1", "", schemas.TypeHookStarted, fmt.Sprint("e", len(want)))
		want = append(want, ev.ID)
		return ev
	}
	for i := range 1000 {
		if i%300 == 299 {
			testkit.Must(t, c.Publish(ctx, next())) // stored after all recorded events
			testkit.Equal(t, "stored events", storedIDs(t, c), want)
		} else {
			r.Record(ctx, next())
		}
	}
	r.Record(ctx, next())
	cancel()
	wantIs(t, <-ended, context.Canceled)
	testkit.Equal(t, "stored events at the end", storedIDs(t, n.connect()), want)
}

func TestEventBufferSurvivesAServerRestart(t *testing.T) {
	n, c := connected(t, true)
	ctx, cancel := context.WithCancel(testkit.Context(t))
	r := c.NewEventBuffer(func(ev *schemas.Event, err error) { t.Errorf("event %s was not stored: %v", ev.ID, err) })
	n.server.Close()
	ended := make(chan error, 1)
	r.Record(ctx, record("t1", "", schemas.TypeHookStarted, "e1"))
	n.start()
	go func() { ended <- r.Run(ctx) }()
	for len(storedIDs(t, n.connect())) == 0 {
		if err := sleep(ctx, reconnectCheck/20); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	wantIs(t, <-ended, context.Canceled)
	testkit.Equal(t, "stored events", storedIDs(t, n.connect()), []string{"e1"})
}
