package events

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/schemas"
)

// Handler is what a worker does with what comes in. All of its methods may be called at the same time, and must return
// soon: a command is accepted or refused at once, and runs on its own.
type Handler interface {
	// HandleCommand accepts, answers or refuses a command. Commands of one thread come one at a time, in order.
	HandleCommand(ctx context.Context, d schemas.Delivery) schemas.Verdict
	// HandleControl carries out a control message and calls done, once, with what became of it, now or later.
	HandleControl(ctx context.Context, ctl schemas.Control, done func(error))
	// HandleSession carries out a request about a session and calls done, at most once, now or later.
	HandleSession(ctx context.Context, req schemas.SessionControl, done func(schemas.SessionReply))
	// HandlePlace takes a thread, or says who owns it.
	HandlePlace(ctx context.Context, tenant string, req schemas.PlaceRequest) schemas.PlaceReply
}

// Timing of the durable path. The pin moves to another worker after pinTTL; a command that a worker took and died with
// comes again after ackWait.
const (
	pinTTL       = 3 * time.Second
	ackWait      = 10 * time.Second
	retryDelay   = 500 * time.Millisecond
	forwardGrace = 5 * time.Second
	placeAtOnce  = 1024 // placements under way in one worker: each is a goroutine that waits for KV, or for a sandbox
	dispatchName = "dispatch-"
	pinGroup     = "workers"
	placeVerb    = "place"
)

// Inlet is where commands reach a worker: the durable stream, the fast path of the threads it owns, and requests to take a thread.
type Inlet struct {
	conn   *Conn
	worker string

	mu      sync.Mutex
	handler Handler
	ctx     context.Context
	owned   map[string][2]*nats.Subscription // by tenant.thread: commands, controls
	waiting map[string]threadName            // by tenant.thread: to be owned as soon as Run has begun
}

// threadName names a thread.
type threadName struct{ tenant, thread string }

// NewInlet is for a worker of this id. It receives nothing before Run.
func (c *Conn) NewInlet(worker string) *Inlet {
	return &Inlet{conn: c, worker: worker, owned: make(map[string][2]*nats.Subscription), waiting: make(map[string]threadName)}
}

// Run lets commands in until ctx ends. What was let in is the handler's to bring to an end; threads stay owned until Disown. ready is
// called when everything that comes is seen. Errors: unavailable when the streams are not there.
func (in *Inlet) Run(ctx context.Context, h Handler, ready func()) error {
	in.mu.Lock()
	// Handlers outlive Run for as long as the connection does: a signal must reach a process during the shutdown too.
	in.handler, in.ctx = h, context.WithoutCancel(ctx)
	err := in.ownWaiting()
	in.mu.Unlock()
	if err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	places := newGate(placeAtOnce)
	place, err := in.conn.nc.QueueSubscribe(in.conn.Subjects.AnyAPI(placeVerb), "workers", func(m *nats.Msg) {
		if !places.enter() {
			in.replyPlace(m, schemas.PlaceReply{Error: schemas.Errorf(schemas.CodePoolExhausted, "worker %s takes no more threads now: try again", in.worker)})
			return
		}
		go func() {
			defer places.leave()
			in.place(m)
		}()
	})
	if err != nil {
		return wrap(err, "listen for threads to take")
	}
	defer places.close()
	// Should it fail, the subscription ends with the connection.
	defer func() { _ = place.Unsubscribe() }()
	consumers, err := in.consumeAll(ctx)
	if err == nil {
		err = in.conn.Flush(ctx)
	}
	if err != nil {
		drainAll(consumers)
		return err
	}
	ready()
	for p, cc := range consumers {
		group.Go(func() error { return in.keepConsuming(ctx, p, cc) })
	}
	return group.Wait()
}

// keepConsuming begins anew where a consumer ends by itself, as one does that was deleted or lost with its stream's files.
func (in *Inlet) keepConsuming(ctx context.Context, partition int, cc jetstream.ConsumeContext) error {
	for {
		if cc != nil {
			select {
			case <-ctx.Done():
				drainAll([]jetstream.ConsumeContext{cc})
				return nil
			case <-cc.Closed():
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryDelay):
		}
		// nil where it failed: the next turn may find the server back.
		cc, _ = in.consume(ctx, partition)
	}
}

// drainAll stops consumers. What one has received already is still handled, if only to be given back at once: otherwise it
// would wait out ackWait.
func drainAll(consumers []jetstream.ConsumeContext) {
	for _, c := range consumers {
		c.Drain()
	}
	for _, c := range consumers {
		<-c.Closed()
	}
}

// consumeAll begins to read every partition. What it returns with an error has to be drained as well.
func (in *Inlet) consumeAll(ctx context.Context) ([]jetstream.ConsumeContext, error) {
	all := make([]jetstream.ConsumeContext, in.conn.partitions)
	var group errgroup.Group
	for p := range all {
		group.Go(func() (err error) {
			all[p], err = in.consume(ctx, p)
			return err
		})
	}
	err := group.Wait()
	return slices.DeleteFunc(all, func(c jetstream.ConsumeContext) bool { return c == nil }), err
}

// consume reads one partition of CMD. The ack comes with the acceptance, so that a long run holds nothing up.
func (in *Inlet) consume(ctx context.Context, partition int) (jetstream.ConsumeContext, error) {
	cons, err := in.conn.dispatcher(ctx, partition)
	if err != nil {
		return nil, wrap(err, "consume commands of partition "+strconv.Itoa(partition))
	}
	cc, err := cons.Consume(func(m jetstream.Msg) { in.dispatch(ctx, m) },
		jetstream.PullPriorityGroup(pinGroup), jetstream.PullMaxMessages(1),
		// A missed heartbeat or a leader change is retried by the library; what matters shows in commands not accepted.
		jetstream.ConsumeErrHandler(func(jetstream.ConsumeContext, error) {}))
	if err != nil {
		return nil, wrap(err, "consume commands of partition "+strconv.Itoa(partition))
	}
	return cc, nil
}

func (in *Inlet) dispatch(ctx context.Context, m jetstream.Msg) {
	d := in.delivery(m.Subject(), m.Data(), m.Headers().Get(headerInbox))
	d.Durable = true
	d.Attempt = 1
	if meta, err := m.Metadata(); err == nil {
		d.Attempt = int(min(meta.NumDelivered, 1<<20))
	}
	handler, own := in.target()
	v := handler.HandleCommand(own, d)
	if v.Action == schemas.ActionForward {
		v = in.forward(ctx, v.To, m)
	}
	// An ack that does not arrive means another delivery, which the process's record answers.
	switch v.Action {
	case schemas.ActionRetry:
		_ = m.NakWithDelay(retryDelay)
	case schemas.ActionDead:
		reason := v.Reason
		if reason == nil {
			reason = schemas.Errorf(schemas.CodeInternal, "the worker gave no reason")
		}
		reason = shorten(reason)
		if err := in.conn.bury(own, d, m, reason); err != nil {
			_ = m.NakWithDelay(retryDelay)
			return
		}
		_ = m.TermWithReason(reason.Message)
	default:
		_ = m.Ack()
	}
}

// delivery decodes and validates what came on a subject. The thread and the op in the body must be the subject's, since the
// subject is what permissions are given on.
func (in *Inlet) delivery(subject string, body []byte, inbox string) schemas.Delivery {
	d := schemas.Delivery{Inbox: inbox}
	var ok bool
	d.Tenant, d.Thread, d.Op, ok = in.conn.Subjects.ParseCommand(subject)
	if !ok || !schemas.ValidID(d.Tenant) || !schemas.ValidID(d.Thread) {
		d.Invalid = schemas.Errorf(schemas.CodeInvalidArgument, "thread: the subject's thread is not an id: use 1 to %d of the characters A-Z a-z 0-9 _ -", schemas.MaxIDLength).With("path", "thread")
		return d
	}
	cmd, err := schemas.DecodeCommand(body)
	switch {
	case err != nil:
		d.Invalid = shorten(schemas.AsError(err))
	case cmd.Thread != d.Thread:
		d.Invalid = schemas.Errorf(schemas.CodeInvalidArgument, "thread: %q in the command, %q in the subject", cmd.Thread, d.Thread).With("path", "thread")
	case cmd.Op != d.Op:
		d.Invalid = schemas.Errorf(schemas.CodeInvalidArgument, "op: %q in the command, %q in the subject", cmd.Op, d.Op).With("path", "op")
	default:
		d.SetCommand(cmd)
	}
	return d
}

// maxReason is how much of an error's text travels, in bytes. It may quote the command, which is as large as a message may
// be: an error that does not fit would be retried for ever.
const maxReason = 1 << 10

func shorten(e *schemas.Error) *schemas.Error {
	if len(e.Message) <= maxReason {
		return e
	}
	short := *e
	short.Message = strings.ToValidUTF8(e.Message[:maxReason], "") + "…"
	return &short
}

// target is the handler, and the context for what it is called with.
func (in *Inlet) target() (Handler, context.Context) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.handler, in.ctx
}

// forward gives a durable command to the worker that owns its thread, by the fast path, and waits until it is accepted there.
func (in *Inlet) forward(ctx context.Context, to string, m jetstream.Msg) schemas.Verdict {
	tenant, thread, op, _ := in.conn.Subjects.ParseCommand(m.Subject())
	ctx, cancel := context.WithTimeout(ctx, forwardGrace)
	defer cancel()
	reply, err := in.conn.nc.RequestMsgWithContext(ctx, &nats.Msg{
		Subject: in.conn.Subjects.RPC(tenant, thread, op), Data: m.Data(),
		Header: nats.Header{headerInbox: {m.Headers().Get(headerInbox)}, headerForwarded: {in.worker}},
	})
	if err != nil || isNoResponders(reply) || reply.Header.Get(headerType) == "" {
		return schemas.Verdict{Action: schemas.ActionRetry, To: to}
	}
	return schemas.Verdict{Action: schemas.ActionDone}
}

func (in *Inlet) place(m *nats.Msg) {
	tenant, _, _ := in.conn.Subjects.tokens(m.Subject)
	req, err := schemas.DecodePlaceRequest(m.Data)
	if err == nil {
		err = schemas.CheckID("tenant", tenant)
	}
	if err != nil {
		in.replyPlace(m, schemas.PlaceReply{Error: schemas.AsError(err)})
		return
	}
	handler, ctx := in.target()
	in.replyPlace(m, handler.HandlePlace(ctx, tenant, *req))
}

func (in *Inlet) replyPlace(m *nats.Msg, r schemas.PlaceReply) {
	body, err := json.Marshal(r)
	if err != nil {
		return // strings alone: it cannot fail
	}
	_ = m.Respond(body) // a caller that has gone asks again
}
