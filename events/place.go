package events

import (
	"context"
	"encoding/json"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// placements answers requests to take a thread: those of callers, and those that other workers pass on.
type placements struct {
	listener *Listener
	roster   *liveRoster
	going    *gate
}

// receive answers a request of a caller in the background.
func (p *placements) receive(m *nats.Msg) {
	if refused := p.going.enter(func() { p.handle(m) }); refused != nil {
		p.reply(m, schemas.PlaceReply{Error: refused})
	}
}

// handle answers a request of a caller. The owner of a thread answers for it: one that has restarted takes the thread up again by that.
func (p *placements) handle(m *nats.Msg) {
	tenant, _, _ := p.listener.conn.subjects.tokens(m.Subject)
	req, err := schemas.DecodePlaceRequest(m.Data)
	if err == nil {
		req.Origin = withTrace(req.Origin, m.Header)
		err = schemas.CheckID("tenant", tenant)
	}
	if err != nil {
		p.reply(m, schemas.PlaceReply{Error: schemas.AsError(err)})
		return
	}
	reply := p.place(tenant, *req)
	if reply.Error != nil && isDeclined(reply.Error) && m.Header.Get(headerRoom) == "" {
		req.WithoutRoom = true // a session without a process is of use, too
		reply = p.place(tenant, *req)
	}
	p.reply(m, reply)
}

func (p *placements) place(tenant string, req schemas.PlaceRequest) schemas.PlaceReply {
	handler, ctx := p.listener.target()
	reply := handler.HandlePlace(ctx, tenant, req)
	switch {
	case reply.Error == nil && reply.Worker != p.listener.worker:
		return p.forward(ctx, tenant, req, reply)
	case reply.Error != nil && isDeclined(reply.Error):
		return p.offer(ctx, tenant, req, reply)
	default:
		return reply
	}
}

func (p *placements) reply(m *nats.Msg, r schemas.PlaceReply) {
	body, err := json.Marshal(r)
	if err != nil {
		return // cannot happen: it holds only strings
	}
	tenant, _, _ := p.listener.conn.subjects.tokens(m.Subject)
	p.listener.inboxes.respond(tenant, m, nil, body)
}

// forward passes a request on to the thread's owner, and returns the owner's reply, or found when the owner does not take it now. It
// starts no sandbox: the caller asks the owner for that.
func (p *placements) forward(ctx context.Context, tenant string, req schemas.PlaceRequest, found schemas.PlaceReply) schemas.PlaceReply {
	req.Start = false
	body, err := json.Marshal(req)
	if err != nil {
		return found // cannot happen: it was decoded from JSON
	}
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	c := p.listener.conn
	m, err := askWorker(ctx, c, placeMsg(c.subjects.Forward(tenant, found.Worker, req.Thread, placeVerb), body, !req.WithoutRoom))
	var reply schemas.PlaceReply
	if err != nil || json.Unmarshal(m.Data, &reply) != nil || (reply.Error != nil && !reply.Error.Code.Final()) {
		return found
	}
	return reply
}

// handleForwarded answers a request that another worker passes on.
func (p *placements) handleForwarded(m *nats.Msg, tenant string) {
	req, err := schemas.DecodePlaceRequest(m.Data)
	if err != nil {
		p.reply(m, schemas.PlaceReply{Error: schemas.AsError(err)})
		return
	}
	req.WithoutRoom = m.Header.Get(headerRoom) == ""
	handler, ctx := p.listener.target()
	p.reply(m, handler.HandlePlace(ctx, tenant, *req))
}

// offer passes a request for a thread without an owner on to the other live workers: this one declined it. It returns the first reply
// without an error, else found. One that has no room for it declines, too.
func (p *placements) offer(ctx context.Context, tenant string, req schemas.PlaceRequest, found schemas.PlaceReply) schemas.PlaceReply {
	workers, err := p.roster.live(ctx)
	if err != nil {
		return found
	}
	want := &schemas.Command{Provider: req.Provider, Template: req.Template}
	for _, w := range workers {
		if w.ID == p.listener.worker || !mayServe(&w, want) {
			continue
		}
		if reply := p.forward(ctx, tenant, req, schemas.PlaceReply{Worker: w.ID, Error: found.Error}); reply.Error == nil {
			return reply
		}
	}
	return found
}

// placeMsg is a request to take a thread, which needs room for a command, or not.
func placeMsg(subject string, body []byte, room bool) *nats.Msg {
	m := &nats.Msg{Subject: subject, Data: body}
	if room {
		m.Header = nats.Header{headerRoom: {"needed"}}
	}
	return m
}
