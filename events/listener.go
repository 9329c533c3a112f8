package events

import (
	"context"
	"net"
	"slices"
	"sync"

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
	// HandleService handles a request about a service and calls done at most once, now or later.
	HandleService(ctx context.Context, req schemas.ServiceControl, done func(schemas.ServiceReply))
	// HandleConnect connects to a port in the sandbox of a thread.
	HandleConnect(ctx context.Context, tenant, thread string, req schemas.ConnectRequest) (net.Conn, error)
	// HandleFile carries out a message about files and calls reply at most once, now or later.
	HandleFile(m schemas.FileMessage, reply func(schemas.FileAnswer))
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
	// RoomFor is Room for the commands of one thread, and for those of a tenant when the thread is empty.
	RoomFor(tenant, thread string) int
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

	// Threads are those that it receives the commands of.
	Threads *Threads

	conn    *Conn
	worker  string
	inboxes *inboxes
	room    *ownRoom

	// Set by Run.
	dispatcher *dispatcher
	places     *placements
	tunnels    *tunnels

	mu      sync.Mutex
	handler Handler
	ctx     context.Context
}

// NewListener returns the listener of a worker. It receives nothing before Run.
func (w *Worker) NewListener(worker string) *Listener {
	l := &Listener{conn: w.conn, worker: worker}
	l.inboxes = &inboxes{conn: w.conn, onRefused: func(subject, inbox string, total uint64) {
		if l.OnRefusedInbox != nil {
			l.OnRefusedInbox(subject, inbox, total)
		}
	}}
	l.Threads = newThreads(w.conn, l.handleRPC, l.handleControl)
	l.room = &ownRoom{conn: w.conn, worker: worker, owed: make(map[threadName]bool), free: func() int {
		handler, _ := l.target()
		return handler.Room()
	}, freeFor: func(tenant, thread string) int {
		handler, _ := l.target()
		return handler.RoomFor(tenant, thread)
	}}
	return l
}

// Run delivers to h until ctx ends. It calls ready when everything that arrives is received. Work that h has begun continues after
// Run, and threads stay subscribed until Unsubscribe. Errors: unavailable when the streams do not exist.
func (l *Listener) Run(ctx context.Context, h Handler, ready func()) error {
	l.mu.Lock()
	// Handlers are called for as long as the connection is open: a signal must reach a process during the shutdown too.
	l.handler, l.ctx = h, context.WithoutCancel(ctx)
	l.mu.Unlock()
	l.tunnels = newTunnels(ctx, l)
	defer l.tunnels.close()
	if err := l.Threads.begin(); err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	l.dispatcher = newDispatcher(ctx, l)
	full := schemas.Errorf(schemas.CodePoolExhausted, "worker %s cannot take more threads now: try again", l.worker).With(schemas.DetailDeclined, schemas.DeclinedFull)
	l.places = &placements{listener: l, roster: l.dispatcher.roster, going: newGate(l.worker, maxPlaces, full)}
	place, err := l.conn.nc.QueueSubscribe(l.conn.subjects.AnyAPI(placeVerb), "workers", l.places.receive)
	if err != nil {
		return wrap(err, "subscribe to place requests")
	}
	defer l.places.going.close()
	defer drain(l.conn, place)
	forwards := newGate(l.worker, maxForwards, full)
	forward, err := l.conn.nc.Subscribe(l.conn.subjects.WorkerForwards(l.worker), func(m *nats.Msg) {
		if forwards.enter(func() { l.handleForward(m) }) != nil {
			tenant, _, _ := l.conn.subjects.tokens(m.Subject)
			l.replyVerdict(tenant, m, schemas.Verdict{Action: schemas.ActionRetry})
		}
	})
	if err != nil {
		return wrap(err, "subscribe to forwarded commands")
	}
	defer forwards.close()
	defer drain(l.conn, forward)
	for _, subscribe := range []func(*Listener) (func(), error){subscribeWorkspaces, subscribeProcesses, subscribeCleans} {
		end, err := subscribe(l)
		if err != nil {
			return err
		}
		defer end()
	}
	room, err := l.conn.nc.Subscribe(l.conn.subjects.Room("*"), l.dispatcher.handleRoom)
	if err != nil {
		return wrap(err, "subscribe to reports of room")
	}
	defer func() { _ = room.Unsubscribe() }() // on failure it ends with the connection
	consumers, err := l.consumeAll(ctx)
	if err == nil {
		err = wrap(flushSubscriptions(ctx, l.conn.nc), "subscribe to requests")
	}
	if err != nil {
		l.endConsumers(consumers)
		for _, p := range l.dispatcher.partitions {
			p.stopReading()
		}
		return err
	}
	ready()
	l.room.announce() // commands may wait for room in a new worker
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
