package events

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// Timing of a call.
const (
	// acceptTimeout is how long an owner may take to accept a command before it is queued: a frozen worker keeps its subscription
	// until the server closes its connection.
	acceptTimeout = 5 * time.Second
	// watchAfter is when a call without an answer also watches the record: an owner that died does not answer.
	watchAfter = time.Second
	// recheckEvery is how often a watching call reads the record, in case the watch missed an event.
	recheckEvery = 3 * time.Second
	// placeTries bounds how often a thread is placed for one command: its owner may go between the two steps.
	placeTries = 3
)

// Call is one command of a caller. Next is for one goroutine; Ref and Queued are safe for concurrent use.
type Call struct {
	caller  *Caller
	cmd     *schemas.Command
	body    []byte
	ref     schemas.ProcessRef
	inbox   string
	answers <-chan *nats.Msg
	done    func()

	first  *schemas.Event // received and not yet delivered
	watch  *EventFeed
	queued atomic.Bool
	before uint64      // records up to this sequence are of an earlier run of the process; 0 for none
	owned  atomic.Bool // the process is known to be this command's
}

// NewCall prepares a command. Its process has an id before the command is sent. Close must be called. Errors: those of
// [schemas.EncodeCommand].
func (c *Caller) NewCall(tenant string, cmd *schemas.Command) (*Call, error) {
	body, err := schemas.EncodeCommand(cmd)
	if err != nil {
		return nil, err
	}
	k := &Call{
		caller: c, cmd: cmd, body: body,
		ref: schemas.ProcessRef{Tenant: tenant, Thread: cmd.Thread, Process: schemas.ProcessID(tenant, cmd.Thread, cmd.Key)},
	}
	k.inbox, k.answers, k.done = c.conn.inbox.open()
	return k, nil
}

// Send sends the command to the owner of its thread. It places a thread that has no owner, and queues the command in CMD when no
// worker can take it now. It returns once the command is accepted, answered or queued. Errors: pool_exhausted, session_expired,
// unavailable, deadline_exceeded, and the worker's own.
func (k *Call) Send(ctx context.Context) error {
	conn, cmd := k.caller.conn, k.cmd
	header := nats.Header{headerInbox: {k.inbox}}
	for range placeTries {
		m := &nats.Msg{Subject: conn.subjects.RPC(k.ref.Tenant, k.ref.Thread, cmd.Op), Reply: k.inbox, Header: header, Data: k.body}
		first, err := watched(ctx, conn.refusals, m.Subject, func(ctx context.Context) (*schemas.Event, error) {
			if err := conn.nc.PublishMsg(m); err != nil {
				return nil, wrap(err, "send the command")
			}
			return k.answer(ctx, acceptTimeout)
		})
		switch {
		case err == nil && !isShuttingDown(first):
			k.first = first
			k.note(first)
			return nil
		case err == nil, errors.Is(err, errNoAnswer):
			return k.queue(ctx, header)
		case !errors.Is(err, errNoResponder):
			return err
		}
		// A command that names its session creates no other session.
		_, err = k.caller.place(ctx, k.ref.Tenant, schemas.PlaceRequest{
			Thread: cmd.Thread, Provider: cmd.Provider, Image: cmd.Image, Template: cmd.Template,
			Existing: cmd.Session != "", Origin: cmd.Origin,
		}, true)
		if cmd.Session != "" && errors.Is(err, schemas.ErrNotFound) {
			return schemas.Errorf(schemas.CodeSessionExpired, "session %s of thread %s has ended: omit the session to get a new one", cmd.Session, cmd.Thread)
		}
		if errors.Is(err, errNoResponder) || isDeclined(err) {
			return k.queue(ctx, header)
		}
		if err != nil {
			return err
		}
	}
	return k.queue(ctx, header)
}

// isShuttingDown reports that an owner rejected the command without a record because it is shutting down.
func isShuttingDown(ev *schemas.Event) bool {
	r := rejection(ev)
	return r != nil && r.Error.Code == schemas.CodeUnavailable && r.Fingerprint == ""
}

// rejection is the result of a command that was rejected with an error; nil for any other event.
func rejection(ev *schemas.Event) *schemas.Result {
	var r schemas.Result
	if ev.Type == schemas.TypeProcessRejected && ev.Decode(&r) == nil && r.Error != nil {
		return &r
	}
	return nil
}

// isStale reports that a worker declined the command on the direct path after Send had ended: another worker has it, or the queue.
func isStale(ev *schemas.Event) bool {
	r := rejection(ev)
	return r != nil && isDeclined(r.Error)
}

// check reports whether a record is this command's. Workers check what they send to the inbox; a record that the call reads or
// watches by itself has had no such check. Errors: conflict, invalid_argument.
func (k *Call) check(ev *schemas.Event) error {
	var of struct {
		Fingerprint string `json:"fingerprint"`
	}
	if err := ev.Decode(&of); err != nil {
		return err
	}
	cmd, err := schemas.DecodeCommand(k.body) // the caller may have changed its own
	if err != nil {
		return err
	}
	if of.Fingerprint != cmd.Fingerprint() {
		return schemas.KeyConflict(k.ref.Thread)
	}
	k.owned.Store(true)
	return nil
}

// runsAfter reports whether the command runs although its process has this record: the record is no answer to it.
func (k *Call) runsAfter(ev *schemas.Event) bool {
	var r schemas.Result
	switch ev.Type {
	case schemas.TypeProcessRejected:
		return ev.Decode(&r) == nil && r.RunsAgain()
	case schemas.TypeProcessLost:
		return k.cmd.Exec != nil && k.cmd.Exec.Retry == schemas.RetrySafe
	default:
		return false
	}
}

// note takes an answer from the inbox. A rejection does not say whose process has this id, and a command that waits has no process.
func (k *Call) note(ev *schemas.Event) {
	if ev.Type != schemas.TypeProcessRejected && ev.Type != schemas.TypeCommandWaiting {
		k.owned.Store(true)
	}
}

// Verify reports whether the process with this call's id is the call's: another command may have used the key before. Nothing may be
// done to a process, or taken from it, before. It reads the record only while no worker has answered. Errors: conflict when it is
// another command's, not_found when it has no record, unavailable, deadline_exceeded.
func (k *Call) Verify(ctx context.Context) error {
	if k.owned.Load() {
		return nil
	}
	last, err := k.caller.Last(ctx, k.ref.Tenant, k.ref.Thread, k.ref.Process)
	if err != nil {
		return err
	}
	return k.check(last)
}

// answer waits for the next message in the inbox. Errors: errNoResponder, errNoAnswer, ctx's.
func (k *Call) answer(ctx context.Context, timeout time.Duration) (*schemas.Event, error) {
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case m := <-k.answers:
		if isNoResponders(m) {
			return nil, errNoResponder
		}
		return schemas.DecodeEvent(m.Data)
	case <-t.C:
		return nil, errNoAnswer
	case <-ctx.Done():
		return nil, wrap(ctx.Err(), "send the command")
	}
}

// Refused returns why the owner of the thread refused the command when it was sent; nil when it did not. Call it before Next.
func (k *Call) Refused() error {
	if k.first == nil {
		return nil
	}
	if r := rejection(k.first); r != nil {
		return r.Error
	}
	return nil
}

// Ref names the process.
func (k *Call) Ref() schemas.ProcessRef { return k.ref }

// Process returns the id of the process.
func (k *Call) Process() string { return k.ref.Process }

// Queued reports that no worker has accepted the command yet: it is in CMD.
func (k *Call) Queued() bool { return k.queued.Load() }

// Close stops receiving events. The process continues.
func (k *Call) Close() {
	k.done()
	if k.watch != nil {
		k.watch.Close()
	}
}

// Next returns the next event of the process: its acceptance, then its end, which is the last one. A queued command that no live worker
// serves has the event command.waiting before. Next may return an event twice.
// Errors: ctx's, unavailable, conflict when the key belongs to another command.
func (k *Call) Next(ctx context.Context) (*schemas.Event, error) {
	if ev := k.first; ev != nil {
		k.first = nil
		return k.deliver(ev)
	}
	for k.watch == nil {
		ev, err := k.answer(ctx, watchAfter)
		switch {
		case err == nil && isStale(ev):
			continue
		case err == nil:
			k.note(ev)
			return k.deliver(ev)
		case errors.Is(err, errNoAnswer):
			ev, err := k.startWatch(ctx)
			if err != nil {
				return nil, err
			}
			if ev != nil {
				return k.deliver(ev)
			}
		case errors.Is(err, errNoResponder):
			continue // a late answer to an earlier attempt of Send
		default:
			return nil, err
		}
	}
	for {
		if ev, err := k.watchNext(ctx); ev != nil || err != nil {
			return ev, err
		}
	}
}

func (k *Call) deliver(ev *schemas.Event) (*schemas.Event, error) {
	k.queued.Store(ev.Type == schemas.TypeCommandWaiting)
	return ev, nil
}

// startWatch subscribes to the record and then reads it, so that it sees the end whenever it is written.
func (k *Call) startWatch(ctx context.Context) (*schemas.Event, error) {
	feed, err := k.caller.FollowEvents(Filter{Tenant: k.ref.Tenant, Thread: k.ref.Thread, Process: k.ref.Process}, 0)
	if err != nil {
		return nil, err
	}
	k.watch = feed
	// Both fail while a server restarts: watchNext reads the record again.
	if err := k.caller.conn.Flush(ctx); err != nil {
		return nil, ctx.Err()
	}
	if ev, err := k.lastIfEnded(ctx); ev != nil || err != nil {
		return ev, err
	}
	return nil, ctx.Err()
}

// lastIfEnded reads the last record of a process that has ended. It returns nil while the process runs, when the record cannot be
// read, and for a rejection that this call supersedes. Errors: conflict.
func (k *Call) lastIfEnded(ctx context.Context) (*schemas.Event, error) {
	conn := k.caller.conn
	ev, err := conn.lastRecord(ctx, conn.directLast, k.ref.Tenant, k.ref.Thread, k.ref.Process)
	if err != nil {
		return nil, nil //nolint:nilerr // it is read again
	}
	if err := k.check(ev); err != nil {
		return nil, err
	}
	if !ev.Type.Terminal() || ev.Seq <= k.before {
		return nil, nil
	}
	return ev, nil
}

// watchNext waits for an answer, a watched event or the next check of the record. It returns nil when there is no event.
func (k *Call) watchNext(ctx context.Context) (*schemas.Event, error) {
	recheck := time.NewTimer(recheckEvery)
	defer recheck.Stop()
	type watched struct {
		ev  *schemas.Event
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan watched, 1)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			var got *schemas.Event
			err := k.watch.Next(ctx, func(ev *schemas.Event) error {
				if ev.Type.OfProcess() && ev.Seq > k.before { // a reconnect reads from the start
					got = ev
				}
				return nil
			})
			if err == nil && got == nil {
				continue
			}
			if errors.Is(err, schemas.ErrPermissionDenied) {
				return // this caller may not read events: the answers come to its inbox
			}
			if err == nil {
				err = k.check(got)
			}
			events <- watched{got, err}
			return
		}
	}()
	defer func() {
		cancel()
		<-stopped
		select {
		case w := <-events: // it came together with the event returned now
			if w.err == nil {
				k.first = w.ev
			}
		default:
		}
	}()
	select {
	case m := <-k.answers:
		if isNoResponders(m) {
			return nil, nil // a late answer to an earlier attempt of Send
		}
		ev, err := schemas.DecodeEvent(m.Data)
		if err != nil {
			return nil, err
		}
		if isStale(ev) {
			return nil, nil
		}
		k.note(ev)
		return k.deliver(ev)
	case <-recheck.C:
		// The end may have been published while this connection was down.
		ev, err := k.lastIfEnded(ctx)
		if ev == nil || err != nil {
			return nil, err
		}
		return k.deliver(ev)
	case w := <-events:
		if w.err != nil {
			return nil, w.err
		}
		return k.deliver(w.ev)
	}
}

// noResponders is the status with which NATS answers a request that has no subscriber.
const noResponders = "503"

func isNoResponders(m *nats.Msg) bool {
	return len(m.Data) == 0 && m.Header.Get("Status") == noResponders
}
