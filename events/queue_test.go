package events

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// onePartition is a cell in which all threads share one partition of CMD.
func onePartition(t *testing.T) (*node, *peer) {
	t.Helper()
	n := newNode(t, true)
	c := n.connect()
	testkit.Must(t, c.Ensure(t.Context(), Topology{Partitions: 1}))
	return n, c
}

// member starts a worker that is in the roster and has a lease.
func member(t *testing.T, n *node, id string, providers []string, configure func(*fakeWorker)) (*fakeWorker, func()) {
	t.Helper()
	c := n.connect()
	testkit.Must(t, c.Ensure(t.Context(), Topology{Partitions: 1}))
	_, err := c.AcquireLease(testkit.Context(t), id, "of "+id, nil, nil)
	testkit.Must(t, err)
	testkit.Must(t, c.Register(testkit.Context(t), schemas.WorkerInfo{ID: id, Incarnation: "of " + id, Providers: providers}))
	return startWorkerOn(t, c, id, configure)
}

func store(t *testing.T, c *peer, cmd *schemas.Command, inbox string) {
	t.Helper()
	body, err := schemas.EncodeCommand(cmd)
	testkit.Must(t, err)
	queueRaw(t, c, c.subjects.Command("default", cmd.Thread, cmd.Op), nats.Header{headerInbox: {inbox}}, body)
}

func full(owner string) schemas.Verdict {
	return schemas.Verdict{Action: schemas.ActionFull, To: owner}
}

// Promises 5: a thread that waits holds up no other one of its partition, however many commands it has.
func TestWaitingThreadHoldsUpNoOther(t *testing.T) {
	const waiting, others = 3 * pullMessages, 300
	n, c := onePartition(t)
	for i := range waiting {
		queue(t, c, command("waiting", fmt.Sprint(i)))
	}
	for i := range others {
		queue(t, c, command(fmt.Sprint("t", i), "k"))
	}
	w, _ := startWorker(t, n, "w1", func(w *fakeWorker) {
		w.room = new(atomic.Int64)
		w.onCommand = func(w *fakeWorker, d schemas.Delivery) schemas.Verdict {
			if d.Thread == "waiting" && w.room.Load() == 0 {
				return full("w1")
			}
			return schemas.Verdict{}
		}
	})
	for seen := map[string]bool{}; len(seen) < others; {
		if d := w.next(t); d.Thread != "waiting" {
			seen[d.Thread] = true
		}
	}
	// Then the thread goes on, in order.
	w.room.Store(1)
	w.listener.Freed()
	for i := range waiting {
		d := w.next(t)
		for d.Thread != "waiting" {
			d = w.next(t)
		}
		testkit.Equal(t, "attempt", d.Attempt, 1) // to wait for room is no failed attempt
		if d.Command.Key != strconv.Itoa(i) {
			t.Fatalf("command %s, want %d", d.Command.Key, i)
		}
	}
}

// ledger notes which commands were accepted, over all workers, and fails the test when one comes before an earlier one of its thread.
type ledger struct {
	t    *testing.T
	mu   sync.Mutex
	next map[string]int
	left int
	done chan struct{}
}

func (l *ledger) accept(d schemas.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, err := strconv.Atoi(d.Command.Key)
	switch next := l.next[d.Thread]; {
	case err != nil:
		l.t.Error(err)
	case i > next:
		l.t.Errorf("thread %s: command %d was accepted before %d", d.Thread, i, next)
	case i == next:
		l.next[d.Thread]++
		if l.left--; l.left == 0 {
			close(l.done)
		}
	}
}

// Promises 5: the order of a thread holds when the dispatcher is killed, stops, or misses deliveries with its connection.
func TestOrderHoldsOverChangesOfTheDispatcher(t *testing.T) {
	const threads, commands = 20, 40
	n, c := onePartition(t)
	l := &ledger{t: t, next: map[string]int{}, left: threads * commands, done: make(chan struct{})}
	var accepted atomic.Int64
	worker := func(id string) (*fakeWorker, func()) {
		return startWorker(t, n, id, func(w *fakeWorker) {
			w.onCommand = func(_ *fakeWorker, d schemas.Delivery) schemas.Verdict {
				switch rand.IntN(20) {
				case 0:
					return schemas.Verdict{Action: schemas.ActionRetry}
				case 1:
					return full(id)
				}
				l.accept(d)
				accepted.Add(1)
				return schemas.Verdict{}
			}
		})
	}
	first, _ := worker("first")
	var sending sync.WaitGroup
	sending.Go(func() {
		for i := range commands {
			for thread := range threads {
				queue(t, c, command(fmt.Sprint("t", thread), fmt.Sprint(i)))
			}
		}
	})
	await := func(part int64) {
		for accepted.Load() < threads*commands*part/5 && testkit.Context(t).Err() == nil {
			_ = c.Flush(t.Context()) // a round trip instead of a busy loop
		}
	}
	await(1)
	second, stopSecond := worker("second")
	testkit.Must(t, first.conn.nc.ForceReconnect())
	await(2)
	first.conn.Close() // killed
	await(3)
	worker("third")
	testkit.Must(t, second.conn.nc.ForceReconnect())
	await(4)
	stopSecond()
	sending.Wait()
	select {
	case <-l.done:
	case <-testkit.Context(t).Done():
		t.Fatalf("%d commands were not accepted", l.left)
	}
}

// Promises 5: a dispatcher that stops returns what waits, and another worker has it at once.
func TestStoppedDispatcherReturnsWhatWaits(t *testing.T) {
	n, c := onePartition(t)
	a, stop := startWorker(t, n, "a", func(w *fakeWorker) {
		w.room = new(atomic.Int64)
		w.onCommand = func(*fakeWorker, schemas.Delivery) schemas.Verdict { return full("a") }
	})
	const threads = 50
	for i := range threads {
		queue(t, c, command(fmt.Sprint("t", i), "k"))
	}
	for range threads {
		a.next(t)
	}
	b, _ := startWorker(t, n, "b", nil)
	stop()
	for range threads {
		b.next(t)
	}
}

// Promises 5: the same when it is killed, also for a command that it was deciding on.
func TestKilledDispatchersCommandsAreDeliveredAgain(t *testing.T) {
	n, c := onePartition(t)
	release := make(chan struct{})
	a, _ := startWorker(t, n, "a", func(w *fakeWorker) {
		w.onCommand = func(w *fakeWorker, d schemas.Delivery) schemas.Verdict {
			if d.Thread == "t0" {
				w.received <- d
				<-release
			}
			return full("another")
		}
	})
	const threads = 50
	for i := range threads {
		queue(t, c, command(fmt.Sprint("t", i), "k"))
	}
	for range threads {
		a.next(t)
	}
	a.conn.Close()
	defer close(release)
	b, _ := startWorker(t, n, "b", nil)
	for range threads {
		b.next(t)
	}
}

// Promises 6: a command that found no room is dispatched by a report of room, and by nothing else.
func TestFreedSlotIsFilledAtOnce(t *testing.T) {
	n, c := onePartition(t)
	w, _ := startWorker(t, n, "w1", func(w *fakeWorker) {
		w.room, w.asked = new(atomic.Int64), make(chan struct{}, 1000)
		w.onCommand = func(w *fakeWorker, _ schemas.Delivery) schemas.Verdict {
			if w.room.Add(-1) < 0 {
				w.room.Store(0)
				return full("w1")
			}
			return schemas.Verdict{}
		}
	})
	const threads = 20
	for i := range threads {
		queue(t, c, command(fmt.Sprint("t", i), "k"))
	}
	for range threads {
		w.next(t)
	}
	for range threads + 1 {
		<-w.asked // the listener asks as it starts, and for each command that was refused once that waits
	}
	for i := range threads {
		w.room.Store(1)
		w.listener.Freed()
		testkit.Equal(t, "the oldest command goes first", w.next(t).Thread, fmt.Sprint("t", i))
	}
}

// Promises 6: a full worker passes a command of a thread without an owner on to one with room, and waits when there is none.
func TestFullWorkerPassesThreadsOn(t *testing.T) {
	n, c := onePartition(t)
	noRoom := func(w *fakeWorker) {
		w.room = new(atomic.Int64)
		w.onCommand = func(w *fakeWorker, _ schemas.Delivery) schemas.Verdict {
			if w.room.Load() == 0 {
				return full("")
			}
			return schemas.Verdict{}
		}
	}
	a, _ := member(t, n, "a", nil, noRoom)
	b, _ := member(t, n, "b", nil, noRoom)
	queue(t, c, command("t", "k"))
	a.next(t)
	b.next(t)
	// The one that does not dispatch has room.
	b.room.Store(1)
	b.listener.Freed()
	a.room.Store(0)
	for d := b.next(t); d.Attempt != 1; d = b.next(t) {
		t.Errorf("attempt = %d, want 1: to wait for room is no failed attempt", d.Attempt)
	}
	for {
		info, err := c.js.Stream(testkit.Context(t), c.names.cmd)
		testkit.Must(t, err)
		if info.CachedInfo().State.Msgs == 0 {
			break
		}
	}
}

// Promises 3: a command that a worker declines goes to one that serves it. While there is none it waits, its caller learns so once, and
// no other thread waits.
func TestDeclinedCommandGoesToAWorkerThatServesIt(t *testing.T) {
	n, c := onePartition(t)
	received := make(chan schemas.Delivery, 4096) // by either worker
	declines := func(w *fakeWorker) {
		w.received = received
		w.onCommand = func(_ *fakeWorker, d schemas.Delivery) schemas.Verdict {
			if d.Command.Provider == "docker" {
				return schemas.Verdict{Action: schemas.ActionDecline, Reason: schemas.Errorf(schemas.CodePermissionDenied, "no docker here")}
			}
			return schemas.Verdict{}
		}
	}
	a, _ := member(t, n, "a", []string{"jail"}, declines)
	member(t, n, "b", []string{"docker"}, declines) // it says so, and declines for another reason
	cmd := command("t", "k")
	cmd.Provider = "docker"
	call, err := c.Send(testkit.Context(t), "default", cmd)
	testkit.Must(t, err)
	defer call.Close()
	if !call.Queued() {
		store(t, c, cmd, call.inbox)
	}
	ev, err := call.Next(testkit.Context(t))
	testkit.Must(t, err)
	testkit.Equal(t, "event", ev.Type, schemas.TypeCommandWaiting)
	testkit.Equal(t, "queued", call.Queued(), true)
	var why schemas.Error
	testkit.Must(t, ev.Decode(&why))
	testkit.WantCode(t, &why, schemas.CodePermissionDenied)
	for i := range 20 {
		queue(t, c, command(fmt.Sprint("other", i), "k"))
	}
	for i := 0; i < 20; {
		if d := a.next(t); d.Command.Provider == "" {
			i++
		}
	}
	d, _ := member(t, n, "d", []string{"docker"}, nil)
	testkit.Equal(t, "thread", d.next(t).Thread, "t")
	testkit.Equal(t, "events", eventsUntilEnd(t, call), "a-d e-d")
}

// The consumers of an earlier version are changed in place.
func TestEnsureUpdatesEarlierDispatchers(t *testing.T) {
	_, c := onePartition(t)
	earlier := c.dispatcherConfig(0)
	earlier.MaxAckPending, earlier.AckWait, earlier.PinnedTTL = 1, 10*pullExpiry, pullExpiry
	_, err := c.js.UpdateConsumer(testkit.Context(t), c.names.cmd, earlier)
	testkit.Must(t, err)
	testkit.Must(t, c.Ensure(testkit.Context(t), Topology{Partitions: 1}))
	cons, err := c.js.Consumer(testkit.Context(t), c.names.cmd, earlier.Durable)
	testkit.Must(t, err)
	got := cons.CachedInfo().Config
	testkit.Equal(t, "unacked commands", got.MaxAckPending, -1)
	testkit.Equal(t, "ack wait", got.AckWait, ackWait)
	testkit.Equal(t, "pin", got.PinnedTTL, pinTTL)
}

// Commands that are not in memory are read from CMD again; one that is gone ends.
func TestCommandsOverTheBoundAreReadAgain(t *testing.T) {
	_, c := onePartition(t)
	store(t, c, command("t", "k"), "_INBOX.x")
	l := c.NewListener("w1")
	d := newDispatcher(t.Context(), l)
	m, err := d.load(t.Context(), &unacked{seq: 1})
	testkit.Must(t, err)
	got := l.decode(m.subject, m.body, m.header)
	testkit.Equal(t, "key", got.Command.Key, "k")
	testkit.Equal(t, "inbox", got.Inbox, "_INBOX.x")
	_, err = d.load(context.Background(), &unacked{seq: 2})
	testkit.Equal(t, "error", fmt.Sprint(err), fmt.Sprint(jetstream.ErrMsgNotFound))
}
