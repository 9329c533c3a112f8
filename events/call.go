package events

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// Timing of a call.
const (
	// acceptPatience is how long an owner may take to accept before the durable path is taken: a frozen worker keeps its
	// interest on the server until its connection is given up.
	acceptPatience = 5 * time.Second
	placePatience  = 10 * time.Second
	startPatience  = 10 * time.Minute // a sandbox may be made of an image that has to be fetched, and a cold start pull much
	// watchAfter is when a call that has had no answer begins to watch the record too: an owner that died answers nobody.
	watchAfter = time.Second
	// recheckEvery is how often a call that watches reads the record, should the watch have missed something.
	recheckEvery = 3 * time.Second
	// placeTries bounds how often a thread is placed for one command: an owner may go between the two steps.
	placeTries = 3
)

// Call is a command on its way. Next is for one goroutine; Process, Ref and Queued may be called from any.
type Call struct {
	conn    *Conn
	ref     schemas.ProcessRef
	answers <-chan *nats.Msg
	done    func()
	first   *schemas.Event // the answer that Send waited for
	watch   *Feed
	queued  atomic.Bool
	ended   bool
}

// Send gives a command to the worker that owns its thread, has the thread placed where it has no owner, and leaves the command in
// CMD where nobody can take it now. It returns once the command is accepted, answered, or durable. Errors: those of
// [schemas.EncodeCommand], pool_exhausted, unavailable, deadline_exceeded.
func (c *Conn) Send(ctx context.Context, tenant string, cmd *schemas.Command) (*Call, error) {
	body, err := schemas.EncodeCommand(cmd)
	if err != nil {
		return nil, err
	}
	subject, answers, done := c.inbox.open()
	call := &Call{
		conn: c, answers: answers, done: done,
		ref: schemas.ProcessRef{Tenant: tenant, Thread: cmd.Thread, Process: schemas.ProcessID(tenant, cmd.Thread, cmd.Key)},
	}
	if err := call.send(ctx, cmd, subject, body); err != nil {
		done()
		return nil, err
	}
	return call, nil
}

func (k *Call) send(ctx context.Context, cmd *schemas.Command, inbox string, body []byte) error {
	header := nats.Header{headerInbox: {inbox}}
	for range placeTries {
		m := &nats.Msg{Subject: k.conn.Subjects.RPC(k.ref.Tenant, k.ref.Thread, cmd.Op), Reply: inbox, Header: header, Data: body}
		if err := k.conn.nc.PublishMsg(m); err != nil {
			return wrap(err, "send the command")
		}
		first, err := k.answer(ctx, acceptPatience)
		switch {
		case err == nil && !declined(first):
			k.first = first
			return nil
		case err == nil, errors.Is(err, errSilent):
			return k.queue(ctx, cmd, header, body)
		case !errors.Is(err, errNobody):
			return err
		}
		// A command for a certain session makes no other.
		_, err = k.conn.Place(ctx, k.ref.Tenant, schemas.PlaceRequest{
			Thread: cmd.Thread, Provider: cmd.Provider, Image: cmd.Image, Template: cmd.Template, Existing: cmd.Session != "",
		})
		if cmd.Session != "" && errors.Is(err, schemas.ErrNotFound) {
			return schemas.Errorf(schemas.CodeSessionExpired, "session %s of thread %s has ended: leave the session out to get a new one", cmd.Session, cmd.Thread)
		}
		if errors.Is(err, errNobody) || isDeclined(err) {
			return k.queue(ctx, cmd, header, body)
		}
		if err != nil {
			return err
		}
	}
	return k.queue(ctx, cmd, header, body)
}

// declined says that an owner would not take the command now, and left no record: it is shutting down.
func declined(ev *schemas.Event) bool {
	if ev.Type != schemas.TypeProcessRejected {
		return false
	}
	var r schemas.Result
	return ev.Decode(&r) == nil && r.Error != nil && r.Error.Code == schemas.CodeUnavailable
}

// isDeclined says that a worker would not take the thread because it is about to go.
func isDeclined(err error) bool {
	e, ok := errors.AsType[*schemas.Error](err)
	return ok && e.Details[schemas.DetailDeclined] != ""
}

// queue leaves the command in CMD, from where it reaches a worker once there is one.
func (k *Call) queue(ctx context.Context, cmd *schemas.Command, header nats.Header, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	_, err := k.conn.js.PublishMsg(ctx, &nats.Msg{Subject: k.conn.Subjects.Command(k.ref.Tenant, k.ref.Thread, cmd.Op), Header: header, Data: body})
	k.queued.Store(err == nil)
	return wrap(err, "queue the command")
}

// Kinds of silence.
var (
	errNobody = errors.New("no worker listens")
	errSilent = errors.New("no answer in time")
)

func (k *Call) answer(ctx context.Context, patience time.Duration) (*schemas.Event, error) {
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case m := <-k.answers:
		if isNoResponders(m) {
			return nil, errNobody
		}
		return schemas.DecodeEvent(m.Data)
	case <-t.C:
		return nil, errSilent
	case <-ctx.Done():
		return nil, wrap(ctx.Err(), "send the command")
	}
}

// Place asks for an owner of a thread, and for its session, which is made where there is none. Errors: unavailable where there is
// no worker, the worker's own, deadline_exceeded. What was found out before an error is told too.
func (c *Conn) Place(ctx context.Context, tenant string, req schemas.PlaceRequest) (*schemas.PlaceReply, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "encode a place request: %w", err)
	}
	patience := placePatience
	if req.Start {
		patience = startPatience
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, err := c.nc.RequestWithContext(ctx, c.Subjects.API(tenant, placeVerb), body)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "place thread %s: %w: start one with `sluice up`, or `sluice worker`", req.Thread, errNobody)
	}
	if err != nil {
		return nil, wrap(err, "place thread "+req.Thread)
	}
	var r schemas.PlaceReply
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "place thread %s: unreadable answer: %w", req.Thread, err)
	}
	if r.Error != nil {
		return &r, r.Error
	}
	return &r, nil
}

// Process is the process's id, known before it runs.
func (k *Call) Process() string { return k.ref.Process }

// Queued says that no worker has accepted the command yet: it waits in CMD.
func (k *Call) Queued() bool { return k.queued.Load() }

// Next is the process's next event: accepted, then its end, after which there is none. An event may be told again. Errors:
// ctx's, unavailable.
func (k *Call) Next(ctx context.Context) (*schemas.Event, error) {
	if ev := k.first; ev != nil {
		k.first = nil
		return k.deliver(ev)
	}
	for k.watch == nil {
		ev, err := k.answer(ctx, watchAfter)
		switch {
		case err == nil:
			return k.deliver(ev)
		case errors.Is(err, errSilent):
			ev, err := k.startWatch(ctx)
			if err != nil {
				return nil, err
			}
			if ev != nil {
				return k.deliver(ev)
			}
		case errors.Is(err, errNobody):
			continue // the answer to a fast path that was given up since
		default:
			return nil, err
		}
	}
	for {
		// A look at the record that brought nothing is no event.
		if ev, err := k.watchNext(ctx); ev != nil || err != nil {
			return ev, err
		}
	}
}

func (k *Call) deliver(ev *schemas.Event) (*schemas.Event, error) {
	k.queued.Store(false)
	k.ended = k.ended || ev.Type.Terminal() // what the watch tells late is older
	return ev, nil
}

// startWatch listens to the record, then reads it: whichever order the two happen in, the end is seen.
func (k *Call) startWatch(ctx context.Context) (*schemas.Event, error) {
	feed, err := k.conn.Listen(Filter{Tenant: k.ref.Tenant, Thread: k.ref.Thread, Process: k.ref.Process}, 0)
	if err != nil {
		return nil, err
	}
	k.watch = feed
	// A server that is being started anew fails both: watchNext reads the record again, and again.
	if err := k.conn.Flush(ctx); err != nil {
		return nil, ctx.Err()
	}
	ev, err := k.conn.Last(ctx, k.ref.Tenant, k.ref.Thread, k.ref.Process)
	if err != nil || !ev.Type.Terminal() {
		return nil, ctx.Err()
	}
	return ev, nil
}

func (k *Call) watchNext(ctx context.Context) (*schemas.Event, error) {
	recheck := time.NewTimer(recheckEvery)
	defer recheck.Stop()
	type seen struct {
		ev  *schemas.Event
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	live := make(chan seen, 1)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			var got *schemas.Event
			err := k.watch.Next(ctx, func(ev *schemas.Event) error { got = ev; return nil })
			if err != nil || (got != nil && got.Type.OfProcess()) {
				live <- seen{got, err}
				return
			}
		}
	}()
	defer func() {
		cancel()
		<-stopped
		select {
		case s := <-live: // both came at once: this one is told next
			if s.err == nil {
				k.first = s.ev
			}
		default:
		}
	}()
	select {
	case m := <-k.answers:
		if isNoResponders(m) {
			return nil, nil // the answer to a fast path that was given up since
		}
		ev, err := schemas.DecodeEvent(m.Data)
		if err != nil {
			return nil, err
		}
		return k.deliver(ev)
	case <-recheck.C:
		// The end may have been told while this connection was down.
		ev, err := k.conn.Last(ctx, k.ref.Tenant, k.ref.Thread, k.ref.Process)
		if err != nil || !ev.Type.Terminal() {
			return nil, nil
		}
		return k.deliver(ev)
	case s := <-live:
		if s.err != nil {
			return nil, s.err
		}
		return k.deliver(s.ev)
	}
}

// Ended says whether the process's end was told.
func (k *Call) Ended() bool { return k.ended }

// Ref names the process.
func (k *Call) Ref() schemas.ProcessRef { return k.ref }

// Close stops listening. The process goes on.
func (k *Call) Close() {
	k.done()
	if k.watch != nil {
		k.watch.Close()
	}
}
