package events

import (
	"context"
	"encoding/json"
	"net"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/sluice-dev/sluice/schemas"
)

// maxTunnels is how many forwarded connections a worker has at a time.
const maxTunnels = 1024

// handleConnect handles a request to connect to a port in the sandbox of a thread that this worker owns.
func (l *Listener) handleConnect(m *nats.Msg, tenant, thread string) {
	reply := func(err error) {
		r := schemas.ConnectReply{}
		if err != nil {
			r.Error = schemas.AsError(err)
		}
		if body, err := json.Marshal(r); err == nil { // it holds only strings
			l.inboxes.respond(tenant, m, nil, body)
		}
	}
	req, err := schemas.DecodeConnectRequest(m.Data)
	if err != nil {
		reply(err)
		return
	}
	if refused := l.tunnels.going.enter(func() { l.tunnels.open(tenant, thread, req, reply) }); refused != nil {
		reply(refused)
	}
}

// tunnels are the forwarded connections of a worker. One lives until it is closed, or the worker's connection to NATS is.
type tunnels struct {
	listener *Listener
	ctx      context.Context
	end      func()
	going    *gate
	openings sync.Map // by openingKey
}

// openingKey is the tenant, the thread and the id of a connection.
type openingKey [3]string

// opening is the outcome of a request to connect. The caller sends the request again while it has no answer.
type opening struct {
	ended chan struct{}
	err   error // is read once ended is closed
}

// newTunnels returns the tunnels of a listener. They end with ctx.
func newTunnels(ctx context.Context, l *Listener) *tunnels {
	full := schemas.Errorf(schemas.CodePoolExhausted, "worker %s has %d forwarded connections already: close some, or try again", l.worker, maxTunnels)
	t := &tunnels{listener: l, going: newGate(l.worker, maxTunnels, full)}
	t.ctx, t.end = context.WithCancel(ctx)
	return t
}

// close ends all connections, waits for their ends, and opens no more.
func (t *tunnels) close() {
	t.end()
	t.going.close()
}

// open connects, replies, and carries the bytes until the end.
func (t *tunnels) open(tenant, thread string, req *schemas.ConnectRequest, reply func(error)) {
	key, o := openingKey{tenant, thread, req.Connection}, &opening{ended: make(chan struct{})}
	if v, begun := t.openings.LoadOrStore(key, o); begun {
		before := v.(*opening)
		<-before.ended // the caller sends its first bytes once it has an answer
		reply(before.err)
		return
	}
	defer t.openings.Delete(key)
	one, conn, err := t.connect(tenant, thread, req)
	o.err = err
	close(o.ended)
	reply(err)
	if err == nil {
		_ = one.run(t.ctx, conn) // the other end gets the reason
	}
}

// connect connects to the port, and subscribes to what the caller sends to it. Errors: those of HandleConnect and openTunnel.
func (t *tunnels) connect(tenant, thread string, req *schemas.ConnectRequest) (*tunnel, net.Conn, error) {
	handler, _ := t.listener.target()
	conn, err := handler.HandleConnect(t.ctx, tenant, thread, *req)
	if err != nil {
		return nil, nil, err
	}
	c := t.listener.conn
	s := c.subjects
	one, err := openTunnel(t.ctx, c, s.Tunnel(tenant, thread, req.Connection, tunnelDown), s.Tunnel(tenant, thread, req.Connection, tunnelUp))
	if err != nil {
		_ = conn.Close()
	}
	return one, conn, err
}

// Connect connects conn to a TCP port in the sandbox of a thread, and copies in both directions until both have ended, or
// ctx ends. It closes conn. Errors: not_found when nothing listens there, or the thread has no session or no sandbox; ctx's;
// unavailable when the connection was cut.
func (c *Caller) Connect(ctx context.Context, tenant, thread string, port int64, conn net.Conn) error {
	req := schemas.ConnectRequest{Connection: nuid.Next(), Port: port}
	s := c.conn.subjects
	t, err := openTunnel(ctx, c.conn, s.Tunnel(tenant, thread, req.Connection, tunnelUp), s.Tunnel(tenant, thread, req.Connection, tunnelDown))
	var answer *schemas.ConnectReply
	if err == nil {
		operation := "connect to the sandbox of thread " + thread
		answer, err = requestOwner(ctx, c, ownerRequest{tenant, thread, VerbConnect, operation, req}, func(r *schemas.ConnectReply) bool {
			return r.Error != nil && isDeclined(r.Error)
		})
		if err == nil && answer.Error != nil {
			err = answer.Error
		}
		if err != nil {
			t.close()
		}
	}
	if err != nil {
		_ = conn.Close()
		return err
	}
	return t.run(ctx, conn)
}
