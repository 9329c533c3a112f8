package events

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 6: a report of room is not spent on a queue whose commands another worker has by now.
func TestReportOfRoomSkipsQueuesThatAreGivenUp(t *testing.T) {
	r, seq := newRooms(), uint64(0)
	wait := func(thread string) *threadQueue {
		seq++
		q := &threadQueue{name: threadName{"a", thread}, items: []*unacked{{seq: seq}}}
		r.add("", q, time.Now())
		return q
	}
	gone := func(q *threadQueue) { q.items = nil }
	any := func(string, string) bool { return true }
	gone(wait("t1"))
	first := wait("t2")
	gone(wait("t3"))
	second := wait("t4")
	for _, want := range []*threadQueue{first, second, nil} {
		if got := r.take("w2", any); got != want {
			t.Errorf("queue = %v, want %v", got, want)
		}
	}
	testkit.Equal(t, "tenants that are left", len(r.tenants)+len(r.order)+len(r.byWorker), 0)
}

// Issue 14, 4: room goes to the tenants in turn, and to the threads of a tenant in turn, however many commands one of them has and for
// whose room they wait. A tenant without room of its own holds up no other one.
func TestRoomGoesToTenantsAndThreadsInTurn(t *testing.T) {
	t.Parallel()
	r, seq := newRooms(), uint64(0)
	wait := func(tenant, thread, worker string) {
		seq++
		r.add(worker, &threadQueue{name: threadName{tenant, thread}, items: []*unacked{{seq: seq}}}, time.Now())
	}
	wait("a", "own", "w1")
	for i := range 3 {
		wait("a", fmt.Sprint("t", i), "")
	}
	wait("b", "t", "")
	wait("c", "elsewhere", "w9")
	var got []string
	room := func(tenant, thread string) bool { return tenant != "full" && thread != "t0" }
	for q := r.take("w1", room); q != nil; q = r.take("w1", room) {
		got = append(got, q.name.tenant+"."+q.name.thread)
		if len(got) == 1 { // the thread has another command, as old as it may be
			r.add("w1", &threadQueue{name: q.name, items: []*unacked{{seq: 0}}}, time.Now())
			wait("full", "t", "")
		}
	}
	testkit.Equal(t, "order", strings.Join(got, " "), "a.own b.t a.t1 a.t2 a.own")
	// One that found no room in its turn keeps its turn.
	refused := &threadQueue{name: threadName{"a", "refused"}, items: []*unacked{{seq: 1 << 40, round: 1}}}
	r.add("w1", refused, time.Now())
	testkit.Equal(t, "the next queue", r.take("w1", func(tenant, _ string) bool { return tenant == "a" }).name.thread, "t0")
	if got := r.take("w1", room); got != refused {
		t.Errorf("the one after it = %v, want the one that was refused", got)
	}
}

// Issue 14, 4: commands are decided on for the tenants in turn.
func TestTenantsAreDispatchedInTurn(t *testing.T) {
	t.Parallel()
	all := newTurns()
	for _, name := range []threadName{{"a", "1"}, {"a", "2"}, {"a", "3"}, {"b", "1"}, {"c", "1"}, {"b", "2"}} {
		all.push(&threadQueue{name: name})
	}
	var got []string
	for q := all.pop(); q != nil; q = all.pop() {
		got = append(got, q.name.tenant+q.name.thread)
	}
	testkit.Equal(t, "order", strings.Join(got, " "), "a1 b1 c1 a2 b2 a3")
	testkit.Equal(t, "tenants that are left", len(all.order)+len(all.waiting), 0)
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

// Issue 14, 4: workers that have room, and none for one tenant, serve the others meanwhile, and dispatch that tenant's command again once they
// have some for it.
func TestTenantBeyondItsShareWaits(t *testing.T) {
	t.Parallel()
	n, c := onePartition(t)
	share := make(map[string]*atomic.Int64)
	beyondShare := func(w *fakeWorker) {
		mine := new(atomic.Int64)
		share[w.id], w.room = mine, new(atomic.Int64)
		w.room.Store(5)
		w.roomFor = func(tenant, _ string) int {
			if tenant == "default" {
				return int(mine.Load())
			}
			return 5
		}
		w.onCommand = func(_ *fakeWorker, d schemas.Delivery) schemas.Verdict {
			if d.Tenant == "default" && mine.Load() == 0 {
				return full("")
			}
			return schemas.Verdict{}
		}
	}
	a, _ := member(t, n, "a", nil, beyondShare)
	b, _ := member(t, n, "b", nil, beyondShare)
	queue(t, c, command("t", "k"))
	a.next(t)
	b.next(t) // a offers it
	for range 10 {
		a.listener.Freed()
		b.listener.Freed()
	}
	body, err := schemas.EncodeCommand(command("t", "k"))
	testkit.Must(t, err)
	queueRaw(t, c, c.subjects.Command("other", "t", schemas.OpExec), nil, body)
	for d := a.next(t); d.Tenant != "other"; d = a.next(t) { // it decided again when b had just started, and reported its room
		b.next(t)
	}
	share["b"].Store(1)
	b.listener.Freed()
	for {
		info, err := c.js.Stream(testkit.Context(t), c.names.cmd)
		testkit.Must(t, err)
		if info.CachedInfo().State.Msgs == 0 {
			break
		}
	}
	if again := len(a.received) + len(b.received); again > 4 {
		t.Errorf("the workers decided on the command %d times more, want once each, or twice", again)
	}
}
