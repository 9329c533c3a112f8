package events

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

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

// bufferTest is an event buffer of which a test counts the drops.
type bufferTest struct {
	*EventBuffer
	t       *testing.T
	n       *node
	c       *peer
	dropped chan error
	end     func() // ends Run and waits for it
}

func newBufferTest(t *testing.T) *bufferTest {
	b := &bufferTest{t: t, dropped: make(chan error, 2*bufferEvents)}
	b.n, b.c = connected(t, true)
	b.EventBuffer = b.c.NewEventBuffer(func(_ *schemas.Event, err error) { b.dropped <- err })
	ctx, cancel := context.WithCancel(testkit.Context(t))
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	b.end = sync.OnceFunc(func() {
		cancel()
		wantIs(t, <-ended, context.Canceled)
	})
	t.Cleanup(b.end)
	return b
}

// away takes EVT away: every try to store an event fails.
func (b *bufferTest) away() {
	b.t.Helper()
	testkit.Must(b.t, b.c.js.DeleteStream(testkit.Context(b.t), b.c.names.evt))
}

// back creates EVT again.
func (b *bufferTest) back() {
	b.t.Helper()
	_, err := b.c.js.CreateStream(testkit.Context(b.t), b.c.streamConfigs(b.c.topology)[1])
	testkit.Must(b.t, err)
}

// failed waits until an event has failed.
func (b *bufferTest) failed() {
	b.t.Helper()
	ctx := testkit.Context(b.t)
	for {
		b.mu.Lock()
		failing := b.failing
		b.mu.Unlock()
		if failing {
			return
		}
		testkit.Must(b.t, sleep(ctx, bufferDelay))
	}
}

// stores waits until all that was recorded is stored, and compares it.
func (b *bufferTest) stores(want []string) {
	b.t.Helper()
	ctx := testkit.Context(b.t)
	for len(storedIDs(b.t, b.n.connect())) < len(want) {
		testkit.Must(b.t, sleep(ctx, bufferRetry))
	}
	testkit.Equal(b.t, "stored events", storedIDs(b.t, b.n.connect()), want)
}

func (b *bufferTest) record(id string) {
	b.Record(testkit.Context(b.t), record("t1", "", schemas.TypeHookStarted, id))
}

// Promises 17: an event that failed twice was dropped. It waits for NATS, and those after it keep their order.
func TestEventsOfAnOutageAreStored(t *testing.T) {
	b := newBufferTest(t)
	b.away()
	b.record("1")
	b.failed()
	b.record("2")
	for range 2 { // as long as the buffer takes for its next tries
		testkit.WantCode(t, b.c.publish(testkit.Context(t), record("t1", "", schemas.TypeSessionCreated, "not stored")), schemas.CodeUnavailable)
	}
	testkit.Must(t, b.c.Publish(testkit.Context(t), record("t1", "", schemas.TypeSessionCreated, "3"))) // it waits behind the others
	b.record("4")
	b.back()
	b.stores([]string{"1", "2", "3", "4"})
	testkit.Equal(t, "dropped", len(b.dropped), 0)
}

// Promises 17: a worker without its lease publishes nothing. Its events wait for the next lease.
func TestEventsWaitForTheLease(t *testing.T) {
	b := newBufferTest(t)
	lost := &Lease{worker: "w1", expired: true}
	b.c.lease.Store(lost)
	b.record("1")
	b.failed()
	b.record("2")
	b.c.lease.CompareAndSwap(lost, nil)
	b.stores([]string{"1", "2"})
	testkit.Equal(t, "dropped", len(b.dropped), 0)
}

// Promises 17: what waits is bounded, and each event that is dropped is reported.
func TestDroppedEventsAreReported(t *testing.T) {
	b := newBufferTest(t)
	lost := &Lease{worker: "w1", expired: true}
	b.c.lease.Store(lost)
	const more = 3
	var want []string
	for i := range bufferEvents + more {
		if b.record(fmt.Sprint(i)); i < bufferEvents {
			want = append(want, fmt.Sprint(i))
		}
	}
	testkit.Equal(t, "dropped because too many wait", len(b.dropped), more)
	for range more {
		testkit.WantCode(t, <-b.dropped, schemas.CodeLimitExceeded)
	}
	b.record("one more")
	testkit.WantCode(t, <-b.dropped, schemas.CodeLimitExceeded)
	b.c.lease.CompareAndSwap(lost, nil)
	b.stores(want)
	b.c.lease.Store(lost)
	b.record("at the end")
	b.end()
	testkit.WantCode(t, <-b.dropped, schemas.CodeLost)
	b.c.lease.Store(nil)
}

// The id of an event prevents a second copy for a minute only, and an outage may last longer.
func TestEventWhoseAckWasLostIsStoredOnce(t *testing.T) {
	b := newBufferTest(t)
	ctx := testkit.Context(t)
	b.end() // the test stores what waits
	for _, id := range []string{"1", "2", "3"} {
		_, err := b.c.js.PublishMsg(ctx, mustMsg(t, b.c, record("t1", "", schemas.TypeHookStarted, id)))
		testkit.Must(t, err)
	}
	long := time.Now().Add(-2 * dedupeTrust)
	for id, after := range map[string]uint64{"2": 1, "4": 3} {
		testkit.Must(t, b.storeOne(ctx, &bufferedEvent{ev: record("t1", "", schemas.TypeHookStarted, id), tried: long, after: after}))
	}
	testkit.Equal(t, "stored events", storedIDs(t, b.c), []string{"1", "2", "3", "4"})
}

func mustMsg(t *testing.T, c *peer, ev *schemas.Event) *nats.Msg {
	t.Helper()
	m, err := c.eventMsg(ev)
	testkit.Must(t, err)
	return m
}
