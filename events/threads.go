package events

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

type threadName struct{ tenant, thread string }

// Threads are the threads whose commands and controls a [Listener] receives. Methods are safe for concurrent use.
type Threads struct {
	conn             *Conn
	command, control nats.MsgHandler

	mu      sync.Mutex
	begun   bool
	subs    map[threadName][2]*nats.Subscription   // commands, controls
	waiting map[threadName]bool                    // to subscribe to when Run begins
	ending  map[*nats.Subscription]<-chan struct{} // closed, and removed, once the handler has got the last message
}

func newThreads(c *Conn, command, control nats.MsgHandler) *Threads {
	return &Threads{
		conn: c, command: command, control: control,
		subs: make(map[threadName][2]*nats.Subscription), waiting: make(map[threadName]bool),
		ending: make(map[*nats.Subscription]<-chan struct{}),
	}
}

// begin subscribes to the threads noted before Run.
func (t *Threads) begin() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun = true
	for name := range t.waiting {
		if err := t.subscribe(name); err != nil {
			return wrap(err, "subscribe to thread "+name.thread)
		}
	}
	clear(t.waiting)
	return nil
}

// Subscribe receives the commands and controls of a thread from now on; callers see from it that the thread has an owner. Before
// Run it only notes the thread. A second call changes nothing. Errors: unavailable.
func (t *Threads) Subscribe(ctx context.Context, tenant, thread string) error {
	t.mu.Lock()
	if !t.begun {
		t.waiting[threadName{tenant, thread}] = true
		t.mu.Unlock()
		return nil
	}
	err := t.conn.leased() // after abandon nothing is added
	if err == nil {
		err = t.subscribe(threadName{tenant, thread})
	}
	t.mu.Unlock()
	if err == nil {
		// Outside the lock, and also when the thread is subscribed already: a concurrent call may not have flushed yet.
		err = flushSubscriptions(ctx, t.conn.nc)
	}
	return wrap(err, "subscribe to thread "+thread)
}

// subscribe subscribes unless it has. mu is held.
func (t *Threads) subscribe(name threadName) error {
	if _, ok := t.subs[name]; ok {
		return nil
	}
	rpc, err := t.conn.nc.Subscribe(t.conn.subjects.ThreadRPCs(name.tenant, name.thread), t.command)
	if err != nil {
		return err
	}
	ctl, err := t.conn.nc.Subscribe(t.conn.subjects.ThreadControls(name.tenant, name.thread), t.control)
	if err != nil {
		_ = rpc.Unsubscribe() // on failure it ends with the connection
		return err
	}
	t.subs[name] = [2]*nats.Subscription{rpc, ctl}
	return nil
}

// Unsubscribe ends Subscribe. Messages that the server delivered before still reach the handler: a dropped one would leave its
// sender without an answer.
func (t *Threads) Unsubscribe(tenant, thread string) {
	name := threadName{tenant, thread}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, name)
	t.end(name)
}

// abandon ends all subscriptions: the lease is lost, and the next incarnation subscribes to the threads.
func (t *Threads) abandon() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endAll()
}

// close ends all subscriptions, and returns once their handlers have got what the server sent before: the connection, which drops the
// rest when it is closed, may be closed next.
func (t *Threads) close() {
	t.mu.Lock()
	t.endAll()
	ending := slices.Collect(maps.Values(t.ending))
	t.mu.Unlock()
	awaitDrained(t.conn, ending...)
}

// endAll ends all subscriptions. mu is held.
func (t *Threads) endAll() {
	for name := range t.subs {
		t.end(name)
	}
	clear(t.waiting)
}

// end ends the subscriptions of a thread, if it has some, and notes them for close. mu is held.
func (t *Threads) end(name threadName) {
	subs, ok := t.subs[name]
	if !ok {
		return
	}
	delete(t.subs, name)
	for _, sub := range subs {
		t.ending[sub] = startDrain(t.conn, sub, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			delete(t.ending, sub)
		})
	}
}

// endSubscription ends a subscription. While the lease holds, what has arrived is still handled: a dropped command would keep its sender
// waiting. Without the lease there is no connection to wait for, perhaps, and it must not subscribe again. On failure a subscription ends
// with the connection.
func endSubscription(c *Conn, sub *nats.Subscription) {
	if c.leased() == nil {
		_ = sub.Drain()
		return
	}
	_ = sub.Unsubscribe()
}

// drainWait bounds how long the end of a subscription waits for its server.
const drainWait = time.Second

// drain ends a subscription, and returns once its handler has got what the server sent before: a request that is dropped keeps its
// sender waiting, where the server answers at once when there is no subscription.
func drain(c *Conn, sub *nats.Subscription) {
	awaitDrained(c, startDrain(c, sub, func() {}))
}

// startDrain ends a subscription. It calls done, and closes the channel, once the handler has got what the server sent before.
func startDrain(c *Conn, sub *nats.Subscription, done func()) <-chan struct{} {
	drained := make(chan struct{})
	sub.SetClosedHandler(func(string) {
		done()
		close(drained)
	})
	endSubscription(c, sub)
	return drained
}

// awaitDrained returns once the subscriptions of these channels have ended, and at the latest after drainWait. Without a connection
// there is nothing to wait for.
func awaitDrained(c *Conn, drained ...<-chan struct{}) {
	if !c.nc.IsConnected() {
		return
	}
	timeout := time.NewTimer(drainWait)
	defer timeout.Stop()
	for _, ended := range drained {
		select {
		case <-ended:
		case <-timeout.C:
			return
		}
	}
}
