package events

import (
	"context"
	"encoding/json"
	"strconv"
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
	placeAtOnce  = 64 // placements under way in one worker
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
}

// NewInlet is for a worker of this id. It receives nothing before Run.
func (c *Conn) NewInlet(worker string) *Inlet {
	return &Inlet{conn: c, worker: worker, owned: make(map[string][2]*nats.Subscription)}
}

// Run lets commands in until ctx ends. What was let in is the handler's to bring to an end; threads stay owned until Disown. ready is
// called when everything that comes is seen. Errors: unavailable when the streams are not there.
func (in *Inlet) Run(ctx context.Context, h Handler, ready func()) error {
	in.mu.Lock()
	// Handlers outlive Run for as long as the connection does: a signal must reach a process during the shutdown too.
	in.handler, in.ctx = h, context.WithoutCancel(ctx)
	in.mu.Unlock()

	group, ctx := errgroup.WithContext(ctx)
	places := make(chan struct{}, placeAtOnce)
	place, err := in.conn.nc.QueueSubscribe(in.conn.Subjects.AnyAPI(placeVerb), "workers", func(m *nats.Msg) {
		select {
		case places <- struct{}{}:
		default:
			in.replyPlace(m, schemas.PlaceReply{Error: schemas.Errorf(schemas.CodePoolExhausted, "worker %s is taking %d threads already: try again", in.worker, placeAtOnce)})
			return
		}
		group.Go(func() error {
			defer func() { <-places }()
			in.place(m)
			return nil
		})
	})
	if err != nil {
		return wrap(err, "listen for threads to take")
	}
	var consumers []jetstream.ConsumeContext
	for p := range in.conn.partitions {
		cc, err := in.consume(ctx, p)
		if err != nil {
			stopAll(consumers)
			return err
		}
		consumers = append(consumers, cc)
	}
	if err := in.conn.Flush(ctx); err != nil {
		stopAll(consumers)
		return err
	}
	ready()
	<-ctx.Done()
	_ = place.Unsubscribe() // should it fail, it ends with the connection
	stopAll(consumers)
	return group.Wait()
}

func stopAll(consumers []jetstream.ConsumeContext) {
	for _, c := range consumers {
		c.Stop()
	}
	for _, c := range consumers {
		<-c.Closed()
	}
}

// consume reads one partition of CMD. One unacked command at a time and one pinned worker keep the order of a thread's
// commands; the ack comes with the acceptance, so that a long run holds nothing up.
func (in *Inlet) consume(ctx context.Context, partition int) (jetstream.ConsumeContext, error) {
	cons, err := in.conn.js.CreateOrUpdateConsumer(ctx, in.conn.names.cmd, jetstream.ConsumerConfig{
		Durable:       dispatchName + strconv.Itoa(partition),
		FilterSubject: in.conn.Subjects.PartitionCommands(partition),
		AckPolicy:     jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: 1, MaxDeliver: -1,
		PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{pinGroup}, PinnedTTL: pinTTL,
	})
	if err != nil {
		return nil, wrap(err, "consume commands of partition "+strconv.Itoa(partition))
	}
	cc, err := cons.Consume(func(m jetstream.Msg) { in.dispatch(ctx, m) },
		jetstream.PullPriorityGroup(pinGroup), jetstream.PullMaxMessages(1),
		// A missed heartbeat or a leader change is retried by the library; what matters shows in commands not accepted.
		jetstream.ConsumeErrHandler(func(jetstream.ConsumeContext, error) {}))
	return cc, wrap(err, "consume commands of partition "+strconv.Itoa(partition))
}

func (in *Inlet) dispatch(ctx context.Context, m jetstream.Msg) {
	d := in.delivery(m.Subject(), m.Data(), m.Headers().Get(headerInbox))
	d.Durable = true
	d.Attempt = 1
	if meta, err := m.Metadata(); err == nil {
		d.Attempt = int(min(meta.NumDelivered, 1<<20))
	}
	v := in.handler.HandleCommand(ctx, d)
	if v.Action == schemas.ActionForward {
		v = in.forward(ctx, v.To, m)
	}
	// An ack that does not arrive means another delivery, which the process's record answers.
	switch v.Action {
	case schemas.ActionRetry:
		_ = m.NakWithDelay(retryDelay)
	case schemas.ActionDead:
		if err := in.bury(ctx, d, m, v.Reason); err != nil {
			_ = m.NakWithDelay(retryDelay)
			return
		}
		_ = m.TermWithReason(v.Reason.Message)
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
		d.Invalid = schemas.AsError(err)
	case cmd.Thread != d.Thread:
		d.Invalid = schemas.Errorf(schemas.CodeInvalidArgument, "thread: %q in the command, %q in the subject", cmd.Thread, d.Thread).With("path", "thread")
	case cmd.Op != d.Op:
		d.Invalid = schemas.Errorf(schemas.CodeInvalidArgument, "op: %q in the command, %q in the subject", cmd.Op, d.Op).With("path", "op")
	default:
		d.Command = cmd
	}
	return d
}

// forward gives a durable command to the worker that owns its thread, by the fast path, and waits until it is accepted there.
func (in *Inlet) forward(ctx context.Context, to string, m jetstream.Msg) schemas.Verdict {
	tenant, thread, op, _ := in.conn.Subjects.ParseCommand(m.Subject())
	ctx, cancel := context.WithTimeout(ctx, forwardGrace)
	defer cancel()
	reply, err := in.conn.nc.RequestMsgWithContext(ctx, &nats.Msg{
		Subject: in.conn.Subjects.RPC(tenant, thread, op), Data: m.Data(),
		Header: nats.Header{headerInbox: {m.Headers().Get(headerInbox)}},
	})
	if err != nil || isNoResponders(reply) || reply.Header.Get(headerType) == "" {
		return schemas.Verdict{Action: schemas.ActionRetry, To: to}
	}
	return schemas.Verdict{Action: schemas.ActionDone}
}

// bury keeps a command that can never be accepted, with the reason, before it is taken out of CMD.
func (in *Inlet) bury(ctx context.Context, d schemas.Delivery, m jetstream.Msg, reason *schemas.Error) error {
	thread := d.Thread
	if !schemas.ValidID(thread) {
		thread = noProcess
	}
	tenant := d.Tenant
	if !schemas.ValidID(tenant) {
		tenant = schemas.DefaultTenant
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	_, err := in.conn.js.PublishMsg(ctx, &nats.Msg{
		Subject: in.conn.Subjects.DeadLetter(tenant, thread), Data: m.Data(),
		Header: nats.Header{headerReason: {reason.Message}, headerInbox: {d.Inbox}},
	})
	return wrap(err, "keep a dead letter")
}

func (in *Inlet) place(m *nats.Msg) {
	tenant, _, _ := in.conn.Subjects.tokens(m.Subject)
	var req schemas.PlaceRequest
	if err := json.Unmarshal(m.Data, &req); err != nil {
		in.replyPlace(m, schemas.PlaceReply{Error: schemas.Errorf(schemas.CodeInvalidArgument, "not a place request: %w", err)})
		return
	}
	if err := schemas.CheckID("thread", req.Thread); err != nil || !schemas.ValidID(tenant) {
		in.replyPlace(m, schemas.PlaceReply{Error: schemas.AsError(err)})
		return
	}
	in.replyPlace(m, in.handler.HandlePlace(in.ctx, tenant, req))
}

func (in *Inlet) replyPlace(m *nats.Msg, r schemas.PlaceReply) {
	body, err := json.Marshal(r)
	if err != nil {
		return // strings alone: it cannot fail
	}
	_ = m.Respond(body) // a caller that has gone asks again
}

// Own lets the fast path of a thread in: the subscription is what tells everybody who owns it. Errors: unavailable.
func (in *Inlet) Own(ctx context.Context, tenant, thread string) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	key := sessionKey(tenant, thread)
	if _, ok := in.owned[key]; ok {
		return nil
	}
	rpc, err := in.conn.nc.Subscribe(in.conn.Subjects.ThreadRPCs(tenant, thread), in.command)
	if err != nil {
		return wrap(err, "own thread "+thread)
	}
	ctl, err := in.conn.nc.Subscribe(in.conn.Subjects.ThreadControls(tenant, thread), in.control)
	if err != nil {
		_ = rpc.Unsubscribe()
		return wrap(err, "own thread "+thread)
	}
	in.owned[key] = [2]*nats.Subscription{rpc, ctl}
	return wrap(flush(ctx, in.conn.nc), "own thread "+thread)
}

// Disown ends Own.
func (in *Inlet) Disown(tenant, thread string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	key := sessionKey(tenant, thread)
	for _, sub := range in.owned[key] {
		if sub != nil {
			_ = sub.Unsubscribe() // should it fail, it ends with the connection
		}
	}
	delete(in.owned, key)
}

func (in *Inlet) command(m *nats.Msg) {
	inbox := m.Header.Get(headerInbox)
	if inbox == "" {
		inbox = m.Reply
	}
	d := in.delivery(m.Subject, m.Data, inbox)
	d.Attempt = 1
	v := in.handler.HandleCommand(in.ctx, d)
	if m.Reply == "" || m.Reply == inbox {
		return
	}
	// Somebody forwarded it and waits for the acceptance alone; the events went to the inbox.
	answer := nats.NewMsg(m.Reply)
	if v.Action == schemas.ActionDone || v.Action == schemas.ActionDead {
		answer.Header.Set(headerType, string(schemas.TypeProcessAccepted))
	}
	_ = m.RespondMsg(answer) // without it the command is delivered again, which its record answers
}

func (in *Inlet) control(m *nats.Msg) {
	reply := func(err error) {
		var body []byte
		if err != nil {
			// An Error holds strings alone: encoding it cannot fail.
			body, _ = json.Marshal(schemas.AsError(err))
		}
		_ = m.Respond(body) // a caller that has gone asks again
	}
	tenant, thread, process, verb, ok := in.conn.Subjects.parseControl(m.Subject)
	if !ok {
		return
	}
	ctl := schemas.Control{Tenant: tenant, Thread: thread, Process: process}
	var err error
	switch verb {
	case VerbSignal:
		ctl.Signal = new(schemas.SignalRequest)
		err = json.Unmarshal(m.Data, ctl.Signal)
	case VerbKill:
		ctl.Kill = new(schemas.KillRequest)
		err = json.Unmarshal(m.Data, ctl.Kill)
	case VerbStdin:
		ctl.Stdin = &schemas.StdinPiece{Data: m.Data, End: m.Header.Get(headerStdinEnd) != ""}
		ctl.Stdin.Offset, err = strconv.ParseInt(m.Header.Get(headerOffset), 10, 64)
	default:
		reply(schemas.Errorf(schemas.CodeInvalidArgument, "unknown control verb %q", string(verb)))
		return
	}
	if err != nil {
		reply(schemas.Errorf(schemas.CodeInvalidArgument, "%s: unreadable control message: %w", verb, err))
		return
	}
	in.handler.HandleControl(in.ctx, ctl, reply)
}
