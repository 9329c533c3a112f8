package events

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

func TestRecordsAreWriteOnce(t *testing.T) {
	transports(t, func(t *testing.T, listen bool) {
		_, c := connected(t, listen)
		ctx := patient(t)
		first, err := c.Append(ctx, record("t", "p", schemas.TypeProcessAccepted, "1"), 0)
		must(t, err)
		_, err = c.Append(ctx, record("t", "p", schemas.TypeProcessAccepted, "2"), 0)
		if !errors.Is(err, schemas.ErrConflict) {
			t.Fatalf("%v is not ErrConflict", err)
		}
		wait, err := c.AppendAsync(record("t", "p", schemas.TypeProcessStarted, "3"), first)
		must(t, err)
		started, err := wait(ctx)
		must(t, err)
		// A reaper takes the process for lost: the worker that comes back is refused, whatever it believes.
		lost, err := c.Append(ctx, record("t", "p", schemas.TypeProcessLost, "4"), started)
		must(t, err)
		_, err = c.Append(ctx, record("t", "p", schemas.TypeProcessExited, "5"), started)
		wantCode(t, err, schemas.CodeConflict)
		wait, err = c.AppendAsync(record("t", "p", schemas.TypeProcessExited, "6"), started)
		must(t, err)
		_, err = wait(ctx)
		wantCode(t, err, schemas.CodeConflict)
		for _, thread := range []string{"t", ""} {
			last, err := c.Last(ctx, schemas.DefaultTenant, thread, "p")
			must(t, err)
			if last.ID != "4" || last.Seq != lost {
				t.Errorf("last by thread %q is %s at %d, want 4 at %d", thread, last.ID, last.Seq, lost)
			}
		}
		_, err = c.Last(ctx, schemas.DefaultTenant, "t", "other")
		wantCode(t, err, schemas.CodeNotFound)
		_, err = c.Last(ctx, "other", "t", "p")
		wantCode(t, err, schemas.CodeNotFound)
		_, err = c.Last(ctx, schemas.DefaultTenant, "other", "p")
		wantCode(t, err, schemas.CodeNotFound)
	})
}

func TestOneOfManyIsAccepted(t *testing.T) {
	n, _ := connected(t, true)
	ctx := patient(t)
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
		wantCode(t, err, schemas.CodeConflict)
	}
	if won != 1 {
		t.Fatalf("%d were accepted", won)
	}
}

// An ack that is lost makes the client library, or its caller, send the record again: what it then conflicts with is itself.
func TestRecordSentTwiceIsItself(t *testing.T) {
	_, c := connected(t, false)
	ctx := patient(t)
	ev := record("t", "p", schemas.TypeProcessAccepted, "1")
	seq, err := c.Append(ctx, ev, 0)
	must(t, err)
	again, err := c.Append(ctx, ev, 0)
	must(t, err)
	wait, err := c.AppendAsync(ev, 0)
	must(t, err)
	async, err := wait(ctx)
	must(t, err)
	if again != seq || async != seq {
		t.Fatalf("sequences %d, %d, %d are one record's", seq, again, async)
	}
}

// The time for the ack may run out although the record is there: that must not be told as a failure.
func TestRecordIsFoundAfterItsContextEnded(t *testing.T) {
	_, c := connected(t, false)
	ev := record("t", "p", schemas.TypeProcessAccepted, "1")
	want, err := c.Append(patient(t), ev, 0)
	must(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := c.Append(ended, ev, 0)
	must(t, err)
	wait, err := c.AppendAsync(ev, 0)
	must(t, err)
	async, err := wait(ended)
	must(t, err)
	if got != want || async != want {
		t.Fatalf("sequences %d, %d, want %d", got, async, want)
	}
}

func TestUnfinished(t *testing.T) {
	_, c := connected(t, false)
	ctx := patient(t)
	none, err := c.Unfinished(ctx, "w1", 0)
	must(t, err)
	if len(none) != 0 {
		t.Fatalf("%d unfinished in an empty stream", len(none))
	}
	var low uint64
	for i := range 20 {
		p := fmt.Sprintf("p%d", i)
		seq, err := c.Append(ctx, record("t", p, schemas.TypeProcessAccepted, p), 0)
		must(t, err)
		if i == 10 {
			low = seq
		}
		if i%2 == 0 {
			_, err = c.Append(ctx, record("t", p, schemas.TypeProcessExited, p+"e"), seq)
			must(t, err)
		}
	}
	other := record("t", "foreign", schemas.TypeProcessAccepted, "f")
	other.Source = "w2"
	_, err = c.Append(ctx, other, 0)
	must(t, err)
	for from, want := range map[uint64]int{0: 10, low: 5, 10_000: 0} {
		found, err := c.Unfinished(ctx, "w1", from)
		must(t, err)
		if len(found) != want {
			t.Errorf("%d unfinished from %d, want %d", len(found), from, want)
		}
	}
	last, err := c.LastSeq(ctx)
	must(t, err)
	if last != 31 {
		t.Fatalf("last sequence %d", last)
	}
}

func TestProcessesTellsEachRecordInOrder(t *testing.T) {
	_, c := connected(t, false)
	ctx := patient(t)
	a, err := c.Append(ctx, record("t", "a", schemas.TypeProcessAccepted, "1"), 0)
	must(t, err)
	_, err = c.Append(ctx, record("u", "b", schemas.TypeProcessAccepted, "2"), 0)
	must(t, err)
	must(t, c.Publish(ctx, record("t", "", schemas.TypeSessionCreated, "s")))
	_, err = c.Append(ctx, record("t", "a", schemas.TypeProcessExited, "3"), a)
	must(t, err)
	for thread, want := range map[string]string{"": "123", "t": "13", "none": ""} {
		got := ""
		must(t, c.Processes(ctx, Filter{Thread: thread}, func(ev *schemas.Event) error { got += ev.ID; return nil }))
		if got != want {
			t.Errorf("thread %q: records %q, want %q", thread, got, want)
		}
	}
}

func TestEventIsStoredOnce(t *testing.T) {
	_, c := connected(t, false)
	ctx := patient(t)
	ev := record("t", "", schemas.TypeSessionCreated, "s")
	must(t, c.Publish(ctx, ev))
	must(t, c.Publish(ctx, ev))
	n := 0
	_, err := c.ReadEvents(ctx, Filter{}, 0, func(*schemas.Event) error { n++; return nil })
	must(t, err)
	if n != 1 {
		t.Fatalf("%d events", n)
	}
}

func TestWithoutStreamsNothingIsKnown(t *testing.T) {
	c := newNode(t, false).connect()
	ctx := patient(t)
	_, err := c.Last(ctx, schemas.DefaultTenant, "t", "p")
	wantCode(t, err, schemas.CodeUnavailable)
	_, err = c.LastSeq(ctx)
	wantCode(t, err, schemas.CodeUnavailable)
	_, _, err = c.Session(ctx, schemas.DefaultTenant, "t")
	wantCode(t, err, schemas.CodeUnavailable)
	_, err = c.ReadLog(ctx, c.Subjects.ProcessLog("default", "t", "p"), 0, 0, func(schemas.Chunk) error { return nil })
	wantCode(t, err, schemas.CodeUnavailable)
	_, err = c.Append(ctx, record("t", "p", schemas.TypeProcessAccepted, "1"), 0)
	wantCode(t, err, schemas.CodeUnavailable)
}
