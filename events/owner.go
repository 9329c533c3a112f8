package events

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// Own lets the fast path of a thread in: the subscription is what tells everybody who owns it. Errors: internal before Run,
// unavailable.
func (in *Inlet) Own(ctx context.Context, tenant, thread string) error {
	in.mu.Lock()
	if in.handler == nil {
		in.mu.Unlock()
		return schemas.Errorf(schemas.CodeInternal, "own thread %s: nothing handles its commands before Run", thread)
	}
	err := in.own(tenant, thread)
	in.mu.Unlock()
	if err == nil {
		// Not under the lock, and also for a thread that is owned already: it may be another's Own that waits here.
		err = flush(ctx, in.conn.nc)
	}
	return wrap(err, "own thread "+thread)
}

// own subscribes. mu is held.
func (in *Inlet) own(tenant, thread string) error {
	key := sessionKey(tenant, thread)
	if _, ok := in.owned[key]; ok {
		return nil
	}
	rpc, err := in.conn.nc.Subscribe(in.conn.Subjects.ThreadRPCs(tenant, thread), in.command)
	if err != nil {
		return err
	}
	ctl, err := in.conn.nc.Subscribe(in.conn.Subjects.ThreadControls(tenant, thread), in.control)
	if err != nil {
		_ = rpc.Unsubscribe() // should it fail, it ends with the connection
		return err
	}
	in.owned[key] = [2]*nats.Subscription{rpc, ctl}
	return nil
}

// Disown ends Own. What was sent before the server knows of it still reaches the handler: swallowed here, it would leave its
// sender waiting for an answer.
func (in *Inlet) Disown(tenant, thread string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	key := sessionKey(tenant, thread)
	for _, sub := range in.owned[key] {
		if sub != nil {
			_ = sub.Drain() // should it fail, it ends with the connection
		}
	}
	delete(in.owned, key)
}

func (in *Inlet) command(m *nats.Msg) {
	forwarded := m.Header.Get(headerForwarded) != ""
	inbox := m.Header.Get(headerInbox)
	if inbox == "" && !forwarded {
		inbox = m.Reply
	}
	d := in.delivery(m.Subject, m.Data, inbox)
	d.Attempt = 1
	handler, ctx := in.target()
	v := handler.HandleCommand(ctx, d)
	if !forwarded {
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
	if process == noProcess && in.sessionControl(m, tenant, thread, verb) {
		return
	}
	if err := schemas.CheckID("process", process); err != nil {
		reply(err)
		return
	}
	ctl := schemas.Control{Tenant: tenant, Thread: thread, Process: process}
	var err error
	switch verb {
	case VerbSignal:
		ctl.Signal, err = schemas.DecodeSignalRequest(m.Data)
	case VerbKill:
		// A misspelt grace must be refused: passed over, it would mean SIGKILL at once.
		ctl.Kill, err = schemas.DecodeKillRequest(m.Data)
	case VerbStdin:
		ctl.Stdin = &schemas.StdinPiece{Data: m.Data, End: m.Header.Get(headerStdinEnd) != ""}
		ctl.Stdin.Offset, err = strconv.ParseInt(m.Header.Get(headerOffset), 10, 64)
		if err == nil && (ctl.Stdin.Offset < 0 || ctl.Stdin.Offset > math.MaxInt64-int64(len(m.Data))) {
			err = fmt.Errorf("offset %d", ctl.Stdin.Offset)
		}
	default:
		reply(schemas.Errorf(schemas.CodeInvalidArgument, "unknown control verb %q", string(verb)))
		return
	}
	if err != nil {
		reply(schemas.Errorf(schemas.CodeInvalidArgument, "%s: unreadable control message: %w", verb, err))
		return
	}
	handler, ctx := in.target()
	handler.HandleControl(ctx, ctl, reply)
}
