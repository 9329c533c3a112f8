package events

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// appendAsync is AppendAsync with the wait for its ack.
func (c *peer) appendAsync(ctx context.Context, ev *schemas.Event, after uint64) (uint64, error) {
	wait, err := c.AppendAsync(ev, after)
	if err != nil {
		return 0, err
	}
	return wait(ctx)
}

func TestRecordsAreWriteOnce(t *testing.T) {
	transports(t, func(t *testing.T, listen bool) {
		_, c := connected(t, listen)
		ctx := testkit.Context(t)
		first := c.append(t, record("t", "p", schemas.TypeProcessAccepted, "1"), 0)
		testkit.WantCode(t, errorOf(c.Append(ctx, record("t", "p", schemas.TypeProcessAccepted, "2"), 0)), schemas.CodeConflict)
		started, err := c.appendAsync(ctx, record("t", "p", schemas.TypeProcessStarted, "3"), first)
		testkit.Must(t, err)
		// Another worker records the process as lost: the records of the first worker are rejected from then on.
		lost := c.append(t, record("t", "p", schemas.TypeProcessLost, "4"), started)
		testkit.WantCode(t, errorOf(c.Append(ctx, record("t", "p", schemas.TypeProcessExited, "5"), started)), schemas.CodeConflict)
		testkit.WantCode(t, errorOf(c.appendAsync(ctx, record("t", "p", schemas.TypeProcessExited, "6"), started)), schemas.CodeConflict)
		for _, thread := range []string{"t", ""} {
			last, err := c.Last(ctx, schemas.DefaultTenant, thread, "p")
			testkit.Must(t, err)
			testkit.Equal(t, "id of the last record", last.ID, "4")
			testkit.Equal(t, "sequence of the last record", last.Seq, lost)
		}
		testkit.WantCode(t, errorOf(c.Last(ctx, schemas.DefaultTenant, "t", "other")), schemas.CodeNotFound)
		testkit.WantCode(t, errorOf(c.Last(ctx, "other", "t", "p")), schemas.CodeNotFound)
		testkit.WantCode(t, errorOf(c.Last(ctx, schemas.DefaultTenant, "other", "p")), schemas.CodeNotFound)
	})
}

func TestOneOfManyWritersWins(t *testing.T) {
	n, _ := connected(t, true)
	ctx := testkit.Context(t)
	const rivals = 8
	var wg sync.WaitGroup
	errs := make([]error, rivals)
	for i := range rivals {
		c := n.connect()
		wg.Go(func() {
			_, errs[i] = c.Append(ctx, record("t", "p", schemas.TypeProcessAccepted, fmt.Sprint(i)), 0)
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		testkit.WantCode(t, err, schemas.CodeConflict)
	}
	testkit.Equal(t, "accepted records", won, 1)
}

// After a lost ack the client library or its caller sends the record again, and it conflicts with itself. The time for the ack may
// also run out although the record is stored, which is not a failure.
func TestRecordSentTwiceIsStoredOnce(t *testing.T) {
	_, c := connected(t, false)
	ev := record("t", "p", schemas.TypeProcessAccepted, "1")
	seq := c.append(t, ev, 0)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, ctx := range map[string]context.Context{"live": testkit.Context(t), "ended": ended} {
		again, err := c.Append(ctx, ev, 0)
		testkit.Must(t, err)
		testkit.Equal(t, "sequence of Append, context "+name, again, seq)
		async, err := c.appendAsync(ctx, ev, 0)
		testkit.Must(t, err)
		testkit.Equal(t, "sequence of AppendAsync, context "+name, async, seq)
	}
}

func TestUnfinishedProcessesAreFound(t *testing.T) {
	_, c := connected(t, false)
	ctx := testkit.Context(t)
	none, err := c.Unfinished(ctx, "w1", 0)
	testkit.Must(t, err)
	testkit.Equal(t, "unfinished in an empty stream", len(none), 0)
	var middle uint64
	for i := range 20 {
		p := fmt.Sprintf("p%d", i)
		seq := c.append(t, record("t", p, schemas.TypeProcessAccepted, p), 0)
		if i == 10 {
			middle = seq
		}
		if i%2 == 0 {
			c.append(t, record("t", p, schemas.TypeProcessExited, p+"e"), seq)
		}
	}
	other := record("t", "foreign", schemas.TypeProcessAccepted, "f")
	other.Source = "w2"
	c.append(t, other, 0)
	for from, want := range map[uint64]int{0: 10, middle: 5, 10_000: 0} {
		found, err := c.Unfinished(ctx, "w1", from)
		testkit.Must(t, err)
		testkit.Equal(t, fmt.Sprintf("unfinished from %d", from), len(found), want)
	}
	last, err := c.LastSeq(ctx)
	testkit.Must(t, err)
	testkit.Equal(t, "last sequence", last, uint64(31))
}

func TestRecordsAreReadInOrder(t *testing.T) {
	_, c := connected(t, false)
	ctx := testkit.Context(t)
	a := c.append(t, record("t", "a", schemas.TypeProcessAccepted, "1"), 0)
	c.append(t, record("u", "b", schemas.TypeProcessAccepted, "2"), 0)
	testkit.Must(t, c.Publish(ctx, record("t", "", schemas.TypeSessionCreated, "s")))
	c.append(t, record("t", "a", schemas.TypeProcessExited, "3"), a)
	for thread, want := range map[string]string{"": "123", "t": "13", "none": ""} {
		got := ""
		testkit.Must(t, c.Reader.Records(ctx, Filter{Thread: thread}, 1, func(ev *schemas.Event) error { got += ev.ID; return nil }))
		testkit.Equal(t, fmt.Sprintf("records of thread %q", thread), got, want)
	}
}

func TestEventIsStoredOnce(t *testing.T) {
	_, c := connected(t, false)
	ctx := testkit.Context(t)
	ev := record("t", "", schemas.TypeSessionCreated, "s")
	testkit.Must(t, c.Publish(ctx, ev))
	testkit.Must(t, c.Publish(ctx, ev))
	n := 0
	_, err := c.ReadEvents(ctx, Filter{}, 0, func(*schemas.Event) error { n++; return nil })
	testkit.Must(t, err)
	testkit.Equal(t, "stored events", n, 1)
}

func TestReadsFailWithoutStreams(t *testing.T) {
	c := newNode(t, false).connect()
	ctx := testkit.Context(t)
	testkit.WantCode(t, errorOf(c.Last(ctx, schemas.DefaultTenant, "t", "p")), schemas.CodeUnavailable)
	testkit.WantCode(t, errorOf(c.LastSeq(ctx)), schemas.CodeUnavailable)
	_, _, err := c.Session(ctx, schemas.DefaultTenant, "t")
	testkit.WantCode(t, err, schemas.CodeUnavailable)
	testkit.WantCode(t, errorOf(c.ReadLog(ctx, ref("t", "p"), "", 0, 0, func(schemas.Chunk) error { return nil })), schemas.CodeUnavailable)
	testkit.WantCode(t, errorOf(c.Append(ctx, record("t", "p", schemas.TypeProcessAccepted, "1"), 0)), schemas.CodeUnavailable)
}
