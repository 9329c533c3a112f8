package events

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// Settings of a tunnel. Both ends have the same.
const (
	tunnelChunk    = 128 << 10
	tunnelWindow   = 4 << 20  // bytes that may be on their way in one direction
	tunnelsWindow  = 32 << 20 // bytes that the tunnels of a connection to NATS share, down to two chunks for each
	tunnelMessages = 512      // messages that may be on their way in one direction
	tunnelPing     = 5 * time.Second
	tunnelSilence  = 20 * time.Second // without a message, or without the bytes that are missing, the other end is gone
)

// tunnel carries the bytes of one connection over two subjects of core NATS, in both directions. Each message has the offset of its first
// byte; the other end acknowledges what it has written to its own connection. The end of a direction counts as one byte. What is lost, as when
// a connection to NATS breaks, is sent again: a hole in the offsets shows it, or the ping of an end, which says how much that end has sent.
type tunnel struct {
	nc        *nats.Conn
	subject   string // of what this end sends
	sub       *nats.Subscription
	out       outgoing
	in        incoming
	lastHeard atomic.Int64 // nanoseconds since 1970
	leave     func()

	isDone    atomic.Bool   // both directions have ended here
	otherDone chan struct{} // has a value once they have ended at the other end

	once   sync.Once
	failed chan struct{} // closed by fail
	why    error         // is read once failed is closed
}

// openTunnel subscribes, so that nothing is missed once it returns. Errors: unavailable, deadline_exceeded.
func openTunnel(ctx context.Context, c *Conn, send, receive string) (*tunnel, error) {
	t := &tunnel{nc: c.bulk, subject: send, failed: make(chan struct{}), otherDone: make(chan struct{}, 1)}
	c.tunnels.Add(1)
	t.leave = sync.OnceFunc(func() { c.tunnels.Add(-1) })
	t.out = outgoing{publish: t.publish, acknowledged: make(chan struct{}, 1), window: c.tunnels.window}
	t.in = incoming{queue: make(chan *nats.Msg, 2*tunnelMessages), askFrom: t.ping, asked: -1}
	t.lastHeard.Store(time.Now().UnixNano())
	var err error
	if t.sub, err = c.bulk.Subscribe(receive, t.receive); err == nil {
		err = flushSubscriptions(ctx, c.bulk)
	}
	if err != nil {
		t.close()
	}
	return t, wrap(err, "subscribe to the bytes of a connection")
}

// openTunnels counts the open tunnels of a connection to NATS.
type openTunnels struct{ atomic.Int64 }

// window is how much one direction of a tunnel may have on its way, in bytes.
func (o *openTunnels) window() int64 {
	return min(max(tunnelsWindow/max(o.Load(), 1), 2*tunnelChunk), tunnelWindow)
}

// close ends the subscription.
func (t *tunnel) close() {
	t.leave()
	if t.sub != nil {
		_ = t.sub.Unsubscribe() // on failure it ends with the connection
	}
}

// fail ends the tunnel with its first error.
func (t *tunnel) fail(err error) {
	t.once.Do(func() {
		t.why = err
		close(t.failed)
	})
}

// failure returns the error of the tunnel, nil when it has not failed.
func (t *tunnel) failure() error {
	select {
	case <-t.failed:
		return t.why
	default:
		return nil
	}
}

// receive takes a message of the other end, which is not trusted.
func (t *tunnel) receive(m *nats.Msg) {
	t.lastHeard.Store(time.Now().UnixNano())
	if reason := m.Header.Get(headerReset); reason != "" {
		t.fail(schemas.Errorf(schemas.CodeUnavailable, "the other end closed the connection: %.200s", reason))
		return
	}
	numbers, err := readTunnelNumbers(m.Header)
	switch {
	case err != nil:
	case numbers.ack < 0:
		err = t.in.arrive(m, numbers.offset)
	default:
		err = t.out.acknowledge(numbers.ack)
		t.in.expect(numbers.offset)
		t.out.repeat(numbers.repeat)
	}
	switch {
	case err != nil:
		t.fail(err)
	case m.Header.Get(headerDone) != "":
		select {
		case t.otherDone <- struct{}{}:
		default: // it said so before
		}
	case t.isDone.Load(): // it has not heard that all has arrived
		t.ping(-1)
	}
}

// run copies until both directions have ended, or ctx ends. It closes conn. Errors: why the connection was cut, ctx's.
func (t *tunnel) run(ctx context.Context, conn net.Conn) error {
	defer t.close()
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { t.fail(ctx.Err()) })()
	var both sync.WaitGroup
	both.Go(func() { t.copyOut(conn) })
	both.Go(func() { t.copyIn(conn) })
	done := make(chan struct{})
	go func() {
		both.Wait()
		close(done)
	}()
	ping := time.NewTicker(tunnelPing)
	defer ping.Stop()
	connected := t.nc.StatusChanged(nats.CONNECTED)
	defer t.nc.RemoveStatusListener(connected)
	for {
		select {
		case <-done:
			err := t.failure()
			if err == nil {
				_ = conn.Close() // all has arrived
				t.await(ctx, connected)
			}
			return err
		case <-t.failed:
			t.publish(nats.Header{headerReset: {t.why.Error()}}, nil) // the other end may be the one that failed
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // the end is no orderly one
			}
			_ = conn.Close()
			<-done
			return t.why
		case <-ping.C:
			switch {
			case time.Since(time.Unix(0, t.lastHeard.Load())) > tunnelSilence:
				t.fail(schemas.Errorf(schemas.CodeUnavailable, "the other end of the connection is gone"))
			case t.in.missingFor() > tunnelSilence:
				t.fail(schemas.Errorf(schemas.CodeUnavailable, "bytes of the connection were lost after %d", t.in.arrived.Load()))
			default:
				t.ping(-1)
			}
		case <-connected: // again: what was on its way may be lost
			t.ping(t.in.arrived.Load())
		}
	}
}

// await stays, once both directions have ended, until they have ended at the other end too: its last acknowledgment may be lost. It waits for
// another end of an earlier version, which does not say so, until that is silent.
func (t *tunnel) await(ctx context.Context, connected <-chan nats.Status) {
	t.isDone.Store(true)
	t.ping(-1)
	silent := time.NewTimer(2 * tunnelPing) // the other end asks again until it has heard
	defer silent.Stop()
	for {
		select {
		case <-t.otherDone:
			return
		case <-connected:
			t.ping(-1)
		case <-silent.C:
			if time.Since(time.Unix(0, t.lastHeard.Load())) >= 2*tunnelPing {
				return
			}
			silent.Reset(2 * tunnelPing)
		case <-t.failed:
			return
		case <-ctx.Done():
			return
		}
	}
}

// ping says that this end is there, what it has sent, and what it has passed on; and asks for what comes from an offset on, unless that is
// negative.
func (t *tunnel) ping(repeat int64) {
	h := nats.Header{headerAck: {strconv.FormatInt(t.in.passedOn.Load(), 10)}}
	if repeat >= 0 {
		h[headerRepeat] = []string{strconv.FormatInt(repeat, 10)}
	}
	if t.isDone.Load() {
		h[headerDone] = []string{"true"}
	}
	t.out.ping(h)
}

// publish sends a message. One that is lost, as the connection is broken, is sent again later. Any other error ends the tunnel.
func (t *tunnel) publish(h nats.Header, p []byte) {
	err := t.nc.PublishMsg(&nats.Msg{Subject: t.subject, Header: h, Data: p})
	if err != nil && (t.nc.IsClosed() || errors.Is(err, nats.ErrMaxPayload)) {
		t.fail(wrap(err, "send"))
	}
}

// copyOut sends what conn reads, at most a window ahead of the other end.
func (t *tunnel) copyOut(conn net.Conn) {
	await := func(enough func() bool) bool {
		for !enough() {
			select {
			case <-t.out.acknowledged:
			case <-t.failed:
				return false
			}
		}
		return true
	}
	buf := make([]byte, tunnelChunk)
	for await(t.out.hasRoom) {
		n, err := conn.Read(buf)
		if n > 0 {
			buf = t.out.sendFrom(buf, n)
		}
		switch {
		case errors.Is(err, io.EOF):
			t.out.send(nil, true)
			await(t.out.isEmpty)
			return
		case err != nil:
			t.fail(schemas.Errorf(schemas.CodeUnavailable, "read: %w", err))
			return
		}
	}
}

// copyIn writes what the other end sends to conn, and acknowledges it.
func (t *tunnel) copyIn(conn net.Conn) {
	var got, acked int64
	for {
		var m *nats.Msg
		select {
		case m = <-t.in.queue:
		case <-t.failed:
			return
		}
		t.in.queued.Add(-int64(len(m.Data)))
		if _, err := conn.Write(m.Data); err != nil {
			t.fail(schemas.Errorf(schemas.CodeUnavailable, "write: %w", err))
			return
		}
		got += int64(len(m.Data))
		end := m.Header.Get(headerStdinEnd) != ""
		if end {
			got++
		}
		t.in.passedOn.Store(got)
		if end || len(t.in.queue) == 0 || got-acked >= tunnelWindow/4 {
			acked = got
			t.publish(nats.Header{headerAck: {strconv.FormatInt(acked, 10)}}, nil)
		}
		if end {
			if half, ok := conn.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite() // the other side may have closed it
			}
			return
		}
	}
}
