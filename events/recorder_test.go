package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

// stored are the ids of all events, in their order.
func stored(t testing.TB, c *Conn) (ids []string) {
	t.Helper()
	_, err := c.ReadEvents(patient(t), Filter{}, 1, func(ev *schemas.Event) error {
		ids = append(ids, ev.ID)
		return nil
	})
	must(t, err)
	return ids
}

func TestRecordedEventsKeepTheirOrder(t *testing.T) {
	n, c := connected(t, true)
	ctx, cancel := context.WithCancel(patient(t))
	r := c.NewRecorder(func(ev *schemas.Event, err error) { t.Errorf("%s: %v", ev.ID, err) })
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
			must(t, c.Publish(ctx, next())) // stored after all that was recorded
			if got := stored(t, c); !slices.Equal(got, want) {
				t.Fatalf("%d events are stored, want %d in their order", len(got), len(want))
			}
		} else {
			r.Record(ctx, next())
		}
	}
	r.Record(ctx, next())
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := stored(t, n.connect()); !slices.Equal(got, want) {
		t.Errorf("%d events are stored at the end, want %d in their order", len(got), len(want))
	}
}

func TestRecordedEventsSurviveAServersRestart(t *testing.T) {
	n, c := connected(t, true)
	ctx, cancel := context.WithCancel(patient(t))
	r := c.NewRecorder(func(ev *schemas.Event, err error) { t.Errorf("%s: %v", ev.ID, err) })
	n.server.Close()
	ended := make(chan error, 1)
	r.Record(ctx, record("t1", "", schemas.TypeHookStarted, "e1"))
	n.start()
	go func() { ended <- r.Run(ctx) }()
	for len(stored(t, n.connect())) == 0 {
		if err := pause(ctx, lineCheck/20); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := stored(t, n.connect()); !slices.Equal(got, []string{"e1"}) {
		t.Errorf("%q", got)
	}
}
