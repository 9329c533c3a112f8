package events

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/schemas"
)

// Handler handles what a [Listener] receives. Its methods are called concurrently and must return soon: a command is accepted or
// rejected at once, and runs in the background.
type Handler interface {
	// HandleCommand accepts, answers or rejects a command. The commands of one thread arrive one at a time, in order.
	HandleCommand(ctx context.Context, d schemas.Delivery) schemas.Verdict
	// HandleCancel keeps a command from being accepted. runs says that it was accepted before, and its process has not ended. With an
	// error, the command may still be accepted.
	HandleCancel(ctx context.Context, c schemas.Cancel) (runs bool, err error)
	// HandleControl handles a control message and calls done at most once with the outcome, now or later.
	HandleControl(ctx context.Context, ctl schemas.Control, done func(error))
	// HandleSession handles a request about a session and calls done at most once, now or later.
	HandleSession(ctx context.Context, req schemas.SessionControl, done func(schemas.SessionReply))
	// HandlePlace takes a thread, or returns its owner.
	HandlePlace(ctx context.Context, tenant string, req schemas.PlaceRequest) schemas.PlaceReply
	// HandleWorkspace removes a workspace that no session uses.
	HandleWorkspace(ctx context.Context, tenant string, req schemas.WorkspaceRemoval) error
	// HandleProcesses lists processes that the worker runs.
	HandleProcesses(ctx context.Context, tenant string, req schemas.ProcessesRequest) schemas.ProcessesReply
	// HandleCleaned records that ended processes of a thread are cleaned up.
	HandleCleaned(ctx context.Context, tenant, thread string, done schemas.ProcessesCleaned) error
	// Room returns how many more commands the worker has room for now. It calls Listener.Freed each time that there is more.
	Room() int
}

// Settings of a listener.
const (
	placeVerb   = "place"
	roomVerb    = "room"
	maxPlaces   = 1024 // concurrent placements in one worker: each is a goroutine that waits for KV or for a sandbox
	maxForwards = 1024 // the same for what other workers pass on: commands and placements
)

// Listener receives the commands of a worker: those of the durable stream, those that callers send to the threads it is subscribed
// to, those that other workers forward to it, and requests to take a thread.
type Listener struct {
	// OnRefusedInbox is called with the subject of each message that asks for answers on a subject that is no inbox, with that
	// subject, and with their number so far. Set it before Run. Default: none.
	OnRefusedInbox func(subject, inbox string, total uint64)

	conn    *Conn
	worker  string
	refused atomic.Uint64
	wanted  atomic.Bool // a command waits for room in this worker
	owing   atomic.Bool // another worker waits for a report of room

	dispatcher *dispatcher // set by Run

	mu      sync.Mutex
	handler Handler
	ctx     context.Context
	subs    map[threadName][2]*nats.Subscription // commands, controls
	waiting map[threadName]bool                  // to subscribe to when Run begins
}

type threadName struct{ tenant, thread string }

// NewListener returns the listener of a worker. It receives nothing before Run.
func (w *Worker) NewListener(worker string) *Listener {
	return &Listener{conn: w.conn, worker: worker, subs: make(map[threadName][2]*nats.Subscription), waiting: make(map[threadName]bool)}
}

// Run delivers to h until ctx ends. It calls ready when everything that arrives is received. Work that h has begun continues after
// Run, and threads stay subscribed until Unsubscribe. Errors: unavailable when the streams do not exist.
func (l *Listener) Run(ctx context.Context, h Handler, ready func()) error {
	l.mu.Lock()
	// Handlers are called for as long as the connection is open: a signal must reach a process during the shutdown too.
	l.handler, l.ctx = h, context.WithoutCancel(ctx)
	err := l.subscribeWaiting()
	l.mu.Unlock()
	if err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	l.dispatcher = newDispatcher(ctx, l)
	places, forwards := make(gate, maxPlaces), make(gate, maxForwards)
	place, err := l.conn.nc.QueueSubscribe(l.conn.subjects.AnyAPI(placeVerb), "workers", func(m *nats.Msg) {
		if !places.enter(func() { l.handlePlace(m) }) {
			l.replyPlace(m, schemas.PlaceReply{Error: schemas.Errorf(schemas.CodePoolExhausted, "worker %s cannot take more threads now: try again", l.worker)})
		}
	})
	if err != nil {
		return wrap(err, "subscribe to place requests")
	}
	defer places.close()
	// On failure a subscription ends with the connection.
	defer func() { _ = place.Unsubscribe() }()
	forward, err := l.conn.nc.Subscribe(l.conn.subjects.WorkerForwards(l.worker), func(m *nats.Msg) {
		if !forwards.enter(func() { l.handleForward(m) }) {
			tenant, _, _ := l.conn.subjects.tokens(m.Subject)
			l.replyVerdict(tenant, m, schemas.Verdict{Action: schemas.ActionRetry})
		}
	})
	if err != nil {
		return wrap(err, "subscribe to forwarded commands")
	}
	defer forwards.close()
	defer func() { l.end(forward) }()
	endWorkspaces, err := subscribeWorkspaces(l)
	if err != nil {
		return err
	}
	defer endWorkspaces()
	endProcesses, err := subscribeProcesses(l)
	if err != nil {
		return err
	}
	defer endProcesses()
	endCleans, err := subscribeCleans(l)
	if err != nil {
		return err
	}
	defer endCleans()
	room, err := l.conn.nc.Subscribe(l.conn.subjects.Room("*"), l.handleRoom)
	if err != nil {
		return wrap(err, "subscribe to reports of room")
	}
	defer func() { _ = room.Unsubscribe() }()
	consumers, err := l.consumeAll(ctx)
	if err == nil {
		err = l.conn.Flush(ctx)
	}
	if err != nil {
		l.endConsumers(consumers)
		for _, p := range l.dispatcher.partitions {
			p.stopReading()
		}
		return err
	}
	ready()
	l.owe() // commands may wait for room in a new worker
	for n, cc := range consumers {
		group.Go(func() error { return l.dispatcher.partitions[n].keepConsuming(ctx, cc) })
	}
	group.Go(func() error { return l.dispatcher.run(ctx) })
	defer l.dispatcher.close(ctx)
	return group.Wait()
}

// target returns the handler and the context to call it with.
func (l *Listener) target() (Handler, context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.handler, l.ctx
}

// Subscribe receives the commands and controls of a thread from now on; callers see from it that the thread has an owner. Before
// Run it only notes the thread. A second call changes nothing. Errors: unavailable.
func (l *Listener) Subscribe(ctx context.Context, tenant, thread string) error {
	l.mu.Lock()
	if l.handler == nil {
		l.waiting[threadName{tenant, thread}] = true
		l.mu.Unlock()
		return nil
	}
	err := l.conn.leased() // after abandon nothing is added
	if err == nil {
		err = l.subscribe(threadName{tenant, thread})
	}
	l.mu.Unlock()
	if err == nil {
		// Outside the lock, and also when the thread is subscribed already: a concurrent call may not have flushed yet.
		err = flush(ctx, l.conn.nc)
	}
	return wrap(err, "subscribe to thread "+thread)
}

// subscribeWaiting subscribes to the threads noted before Run. mu is held.
func (l *Listener) subscribeWaiting() error {
	for name := range l.waiting {
		if err := l.subscribe(name); err != nil {
			return wrap(err, "subscribe to thread "+name.thread)
		}
	}
	clear(l.waiting)
	return nil
}

// subscribe subscribes unless it has. mu is held.
func (l *Listener) subscribe(name threadName) error {
	if _, ok := l.subs[name]; ok {
		return nil
	}
	rpc, err := l.conn.nc.Subscribe(l.conn.subjects.ThreadRPCs(name.tenant, name.thread), l.handleRPC)
	if err != nil {
		return err
	}
	ctl, err := l.conn.nc.Subscribe(l.conn.subjects.ThreadControls(name.tenant, name.thread), l.handleControl)
	if err != nil {
		_ = rpc.Unsubscribe() // on failure it ends with the connection
		return err
	}
	l.subs[name] = [2]*nats.Subscription{rpc, ctl}
	return nil
}

// Unsubscribe ends Subscribe. Messages that the server delivered before still reach the handler: a dropped one would leave its
// sender without an answer.
func (l *Listener) Unsubscribe(tenant, thread string) {
	name := threadName{tenant, thread}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, name)
	for _, sub := range l.subs[name] {
		l.end(sub)
	}
	delete(l.subs, name)
}

// end ends a subscription. While the lease holds, what has arrived is still handled: a dropped command would keep its sender waiting.
// Without the lease there is no connection to wait for, perhaps, and it must not subscribe again. On failure a subscription ends with
// the connection.
func (l *Listener) end(sub *nats.Subscription) {
	if l.conn.leased() == nil {
		_ = sub.Drain()
		return
	}
	_ = sub.Unsubscribe()
}

// abandon ends the subscriptions to threads: the lease is lost, and the next incarnation subscribes to them.
func (l *Listener) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, subs := range l.subs {
		for _, sub := range subs {
			l.end(sub)
		}
		delete(l.subs, name)
	}
	clear(l.waiting)
}

// consumeAll starts to consume every partition. The consumers returned with an error have to be drained as well.
func (l *Listener) consumeAll(ctx context.Context) ([]jetstream.ConsumeContext, error) {
	all := make([]jetstream.ConsumeContext, len(l.dispatcher.partitions))
	var group errgroup.Group
	for n, p := range l.dispatcher.partitions {
		group.Go(func() (err error) {
			all[n], err = p.consume(ctx)
			return err
		})
	}
	err := group.Wait()
	return slices.DeleteFunc(all, func(c jetstream.ConsumeContext) bool { return c == nil }), err
}

// endConsumers stops consumers. While the lease holds, what one has received is still returned at once: otherwise it would wait for
// ackWait.
func (l *Listener) endConsumers(consumers []jetstream.ConsumeContext) {
	held := l.conn.leased() == nil
	for _, c := range consumers {
		if held {
			c.Drain()
		} else {
			c.Stop()
		}
	}
	for _, c := range consumers {
		<-c.Closed()
	}
}
