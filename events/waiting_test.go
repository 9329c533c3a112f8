package events

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 3: commands that a limit of the cell keeps waiting hold up no others, have no failed attempt, and all run when it has room.
func TestCommandsWaitForALimitOfTheCell(t *testing.T) {
	const threads = 200
	n, c := onePartition(t)
	var room atomic.Bool
	tried := make(chan string, 1<<16)
	w, _ := startWorker(t, n, "w1", func(w *fakeWorker) {
		w.onCommand = func(_ *fakeWorker, d schemas.Delivery) schemas.Verdict {
			testkit.Equal(t, "attempt", d.Attempt, 1)
			if d.Thread != "small" && !room.Load() {
				tried <- d.Thread
				return schemas.Verdict{Action: schemas.ActionLimit, Reason: schemas.Errorf(schemas.CodeLimitExceeded, "EVT is full")}
			}
			return schemas.Verdict{}
		}
	})
	for i := range threads {
		queue(t, c, command(fmt.Sprint("t", i), "k"))
	}
	for seen := map[string]int{}; len(seen) < threads || seen["again"] == 0; {
		thread := <-tried
		if seen[thread]++; seen[thread] > 1 {
			seen["again"]++ // more than its first delivery
		}
	}
	queue(t, c, command("small", "k"))
	for w.next(t).Thread != "small" {
	}
	room.Store(true)
	for seen := map[string]bool{}; len(seen) < threads; {
		seen[w.next(t).Thread] = true
	}
}

// Promises 3: the same when the command is forwarded to the owner of its thread. Its caller receives the reason once.
func TestForwardedCommandWaitsForALimitOfTheCell(t *testing.T) {
	n, c := onePartition(t)
	startWorker(t, n, "dispatcher", func(w *fakeWorker) {
		w.onCommand = func(*fakeWorker, schemas.Delivery) schemas.Verdict {
			return schemas.Verdict{Action: schemas.ActionForward, To: "owner"}
		}
	})
	queue(t, c, command("first", "k")) // it is pinned
	owner, _ := startWorker(t, n, "owner", func(w *fakeWorker) {
		tries := 0
		w.onCommand = func(_ *fakeWorker, d schemas.Delivery) schemas.Verdict {
			if tries++; d.Thread == "first" || tries > 5 {
				return schemas.Verdict{}
			}
			return schemas.Verdict{Action: schemas.ActionLimit, Reason: schemas.Errorf(schemas.CodeLimitExceeded, "EVT holds %d MiB", tries)}
		}
	})
	for owner.next(t).Thread != "first" {
	}
	call, err := c.NewCall(schemas.DefaultTenant, command("t", "k"))
	testkit.Must(t, err)
	defer call.Close()
	store(t, c, call.cmd, call.inbox)
	ev, err := call.Next(testkit.Context(t))
	testkit.Must(t, err)
	testkit.Equal(t, "event", ev.Type, schemas.TypeCommandWaiting)
	var why schemas.Error
	testkit.Must(t, ev.Decode(&why))
	testkit.WantCode(t, &why, schemas.CodeLimitExceeded)
	testkit.Equal(t, "events", eventsUntilEnd(t, call), "a-owner e-owner")
	for range 4 {
		testkit.Equal(t, "attempt", owner.next(t).Attempt, 1)
	}
}

func TestLimitedTriesGrowWithSuccess(t *testing.T) {
	var l limited
	for range 100 {
		l.add(&threadQueue{})
	}
	taken := func() (n []int) {
		for range 3 {
			n = append(n, len(l.take()))
		}
		return n
	}
	testkit.Equal(t, "tries", taken(), []int{4, 8, 16})
	l.add(&threadQueue{})
	testkit.Equal(t, "tries after a failure", taken(), []int{4, 8, 16})
	testkit.Equal(t, "tries of the rest", taken(), []int{32, 13, 0})
}
