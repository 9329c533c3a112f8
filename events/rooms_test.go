package events

import (
	"sync/atomic"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 6: a report of room is not spent on a queue whose commands another worker has by now.
func TestReportOfRoomSkipsQueuesThatAreGivenUp(t *testing.T) {
	r := newRooms()
	live := func() *threadQueue { return &threadQueue{items: []*unacked{{}}} }
	first, second := live(), live()
	r.waiting[""] = []waiter{{queue: &threadQueue{}, seq: 1}, {queue: first, seq: 2}, {queue: &threadQueue{}, seq: 3}, {queue: second, seq: 4}}
	testkit.Equal(t, "queues", len(r.take("w2", 1)), 1)
	if got := r.take("w2", 2); len(got) != 1 || got[0] != second {
		t.Errorf("queues = %v, want the second", got)
	}
	testkit.Equal(t, "lists that are left", len(r.waiting), 0)
}

// Promises 6: a command whose dispatch finds no room while a slot of this worker is filled waits, and does not race for that slot.
func TestFilledSlotIsOfferedToNoOther(t *testing.T) {
	n, c := onePartition(t)
	began, release := make(chan struct{}), make(chan struct{})
	var late atomic.Int64 // dispatches of the thread "late"
	w, _ := startWorker(t, n, "w1", func(w *fakeWorker) {
		w.room, w.asked = new(atomic.Int64), make(chan struct{}, 1000)
		w.onCommand = func(w *fakeWorker, d schemas.Delivery) schemas.Verdict {
			if d.Thread == "late" && late.Add(1) == 1 {
				close(began)
				<-release
				return full("")
			}
			if w.room.Add(-1) < 0 {
				w.room.Store(0)
				return full("")
			}
			return schemas.Verdict{}
		}
	})
	queue(t, c, command("early", "k"))
	w.next(t)
	for range 2 {
		<-w.asked // the listener asks as it starts, and for the command that waits
	}
	queue(t, c, command("late", "k"))
	<-began
	w.room.Store(1)
	w.listener.Freed()
	testkit.Equal(t, "the slot goes to the one that waits", w.next(t).Thread, "early")
	for len(w.asked) > 0 {
		<-w.asked
	}
	close(release)
	w.next(t)
	<-w.asked // it waits now
	w.room.Store(1)
	w.listener.Freed()
	testkit.Equal(t, "the slot goes to the other one", w.next(t).Thread, "late")
	testkit.Equal(t, "dispatches of it", late.Load(), int64(2))
}
