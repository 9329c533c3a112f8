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
	tunnelWindow   = 4 << 20 // bytes that may be on their way in one direction
	tunnelMessages = 512     // messages that may be on their way in one direction
	tunnelPing     = 5 * time.Second
	tunnelSilence  = 20 * time.Second // without a message, the other end is gone
)

// tunnel carries the bytes of one connection over two subjects of core NATS, in both directions. Each message has the offset of its first
// byte; the other end acknowledges what it has written to its own connection. The end of a direction counts as one byte. A message that is
// lost shows as a hole in the offsets, and ends the tunnel: a stream of bytes has no repetition.
type tunnel struct {
	nc        *nats.Conn
	send      string
	sub       *nats.Subscription
	queue     chan *nats.Msg
	queued    atomic.Int64 // bytes in queue
	sent      atomic.Int64 // bytes that were sent
	acks      chan int64
	lastHeard atomic.Int64 // nanoseconds since 1970

	once   sync.Once
	failed chan struct{} // closed by fail
	why    error         // is read once failed is closed
}

// openTunnel subscribes, so that nothing is missed once it returns. Errors: unavailable, deadline_exceeded.
func openTunnel(ctx context.Context, c *Conn, send, receive string) (*tunnel, error) {
	t := &tunnel{nc: c.bulk, send: send, queue: make(chan *nats.Msg, 2*tunnelMessages), acks: make(chan int64, 1), failed: make(chan struct{})}
	t.lastHeard.Store(time.Now().UnixNano())
	var err error
	if t.sub, err = c.bulk.Subscribe(receive, t.receive); err == nil {
		if err = flushSubscriptions(ctx, c.bulk); err != nil {
			t.close()
		}
	}
	return t, wrap(err, "subscribe to the bytes of a connection")
}

// close ends the subscription.
func (t *tunnel) close() { _ = t.sub.Unsubscribe() } // on failure it ends with the connection

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
	switch {
	case m.Header.Get(headerReset) != "":
		t.fail(schemas.Errorf(schemas.CodeUnavailable, "the other end closed the connection: %.200s", m.Header.Get(headerReset)))
	case m.Header.Get(headerAck) != "":
		ack, err := strconv.ParseInt(m.Header.Get(headerAck), 10, 64)
		if err != nil || ack < 0 || ack > t.sent.Load() {
			t.fail(schemas.Errorf(schemas.CodeInvalidArgument, "the other end acknowledges what was not sent"))
			return
		}
		for { // the highest one counts: that of a ping is 0
			select {
			case t.acks <- ack:
				return
			case waiting := <-t.acks:
				ack = max(ack, waiting)
			}
		}
	default:
		if t.queued.Add(int64(len(m.Data))) > 2*tunnelWindow {
			t.fail(schemas.Errorf(schemas.CodeTooLarge, "the other end sends more than its window"))
			return
		}
		select {
		case t.queue <- m:
		default:
			t.fail(schemas.Errorf(schemas.CodeTooLarge, "the other end sends more messages than its window"))
		}
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
	for {
		select {
		case <-done:
			return t.failure()
		case <-t.failed:
			t.publish(nats.Header{headerReset: {t.why.Error()}}, nil) // the other end may be the one that failed
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // the end is no orderly one
			}
			_ = conn.Close()
			<-done
			return t.why
		case <-ping.C:
			if time.Since(time.Unix(0, t.lastHeard.Load())) > tunnelSilence {
				t.fail(schemas.Errorf(schemas.CodeUnavailable, "the other end of the connection is gone"))
			} else {
				t.publish(nats.Header{headerAck: {"0"}}, nil) // it says only that this end is there
			}
		}
	}
}

// publish sends a message. An error ends the tunnel: nothing is sent again.
func (t *tunnel) publish(h nats.Header, p []byte) {
	if err := t.nc.PublishMsg(&nats.Msg{Subject: t.send, Header: h, Data: p}); err != nil {
		t.fail(wrap(err, "send"))
	}
}

// copyOut sends what conn reads, at most a window ahead of the other end.
func (t *tunnel) copyOut(conn net.Conn) {
	var acked int64
	var ends []int64 // of the messages on their way
	buf := make([]byte, tunnelChunk)
	message := func(p []byte, end bool) {
		offset := t.sent.Load()
		h, next := nats.Header{headerOffset: {strconv.FormatInt(offset, 10)}}, offset+int64(len(p))
		if end {
			h[headerStdinEnd], next = []string{"true"}, next+1
		}
		t.sent.Store(next) // before its acknowledgment can come
		ends = append(ends, next)
		t.publish(h, p)
	}
	await := func(enough func() bool) bool {
		for !enough() {
			select {
			case ack := <-t.acks:
				acked = max(acked, ack)
				for len(ends) > 0 && ends[0] <= acked {
					ends = ends[1:]
				}
			case <-t.failed:
				return false
			}
		}
		return true
	}
	for await(func() bool { return t.sent.Load()-acked <= tunnelWindow-tunnelChunk && len(ends) < tunnelMessages }) {
		n, err := conn.Read(buf)
		if n > 0 {
			message(buf[:n], false)
		}
		switch {
		case errors.Is(err, io.EOF):
			message(nil, true)
			await(func() bool { return acked == t.sent.Load() })
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
		case m = <-t.queue:
		case <-t.failed:
			return
		}
		t.queued.Add(-int64(len(m.Data)))
		if offset, err := strconv.ParseInt(m.Header.Get(headerOffset), 10, 64); err != nil || offset != got {
			t.fail(schemas.Errorf(schemas.CodeUnavailable, "bytes of the connection were lost after %d", got))
			return
		}
		if _, err := conn.Write(m.Data); err != nil {
			t.fail(schemas.Errorf(schemas.CodeUnavailable, "write: %w", err))
			return
		}
		got += int64(len(m.Data))
		end := m.Header.Get(headerStdinEnd) != ""
		if end {
			got++
		}
		if end || len(t.queue) == 0 || got-acked >= tunnelWindow/4 {
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
