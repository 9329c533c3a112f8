package events

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// tcpServer accepts connections, and returns how to connect to it.
func tcpServer(t *testing.T, serve func(net.Conn)) func(context.Context) (net.Conn, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close() // it ends Accept
		all.Wait()
	})
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	return func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}
}

func echo(conn net.Conn) {
	_, _ = io.Copy(conn, conn) // what is missing shows at the other end
}

// forwarded connects to thread t through its worker, and returns a connection and the end of the copy.
func forwarded(t *testing.T, caller *Caller) (*net.TCPConn, <-chan error) {
	t.Helper()
	accepted := make(chan net.Conn, 1)
	dial := tcpServer(t, func(conn net.Conn) {
		accepted <- conn
		<-t.Context().Done()
	})
	here, err := dial(t.Context())
	testkit.Must(t, err)
	ended := make(chan error, 1)
	there := <-accepted
	go func() { ended <- caller.Connect(t.Context(), schemas.DefaultTenant, "t", 80, there) }()
	testkit.Must(t, here.SetDeadline(time.Now().Add(testkit.Timeout)))
	t.Cleanup(func() { _ = here.Close() })
	conn, ok := here.(*net.TCPConn)
	if !ok {
		t.Fatalf("%T is no TCP connection", here)
	}
	return conn, ended
}

// forwarding starts a worker whose sandbox has a server, and gives it thread t.
func forwarding(t *testing.T, dial func(context.Context) (net.Conn, error)) (*node, *peer, *fakeWorker) {
	t.Helper()
	n, c := connected(t, true)
	w, _ := startWorker(t, n, "w1", func(w *fakeWorker) { w.dial = dial })
	testkit.Must(t, w.listener.Threads.Subscribe(testkit.Context(t), schemas.DefaultTenant, "t"))
	return n, c, w
}

// Processes 4: bytes arrive whole in both directions, also after one of them has ended, over many connections at once.
func TestTunnelCarriesBytes(t *testing.T) {
	_, c, _ := forwarding(t, tcpServer(t, echo))
	var all sync.WaitGroup
	for i := range 20 {
		conn, ended := forwarded(t, c.Caller)
		all.Go(func() {
			sent := make([]byte, i<<20/4+i)
			for j := range sent {
				sent[j] = byte(i + j/7)
			}
			go func() {
				_, _ = conn.Write(sent) // what is missing shows below
				_ = conn.CloseWrite()
			}()
			got, err := io.ReadAll(conn)
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("got %d bytes (%v), want the %d that were sent", len(got), err, len(sent))
				_ = conn.Close() // it ends the copy
			}
			if err := <-ended; err != nil {
				t.Errorf("the connection ended with %v", err)
			}
		})
	}
	all.Wait()
}

// tappedEnd returns a caller and a worker of a server, one of which is connected through two taps: the worker where end says so.
func tappedEnd(t *testing.T, end string) (n *node, tapped *peer, taps [2]*tap, caller, worker *peer) {
	t.Helper()
	n = newNode(t, true)
	tapped, taps = n.twoTaps(4 * time.Second)
	if end == "worker" {
		return n, tapped, taps, n.connect(), tapped
	}
	return n, tapped, taps, tapped, n.connect()
}

// The way of a connection's bytes, or that of the request for it and its answer, breaks while the connection is opened, at either end: nats.go
// reports it as closed, and restores it.
func TestTunnelOpensOverABrokenConnection(t *testing.T) {
	freezeRequests := func(_ *peer, taps [2]*tap) { taps[0].freeze() }
	for _, broken := range []struct {
		end, way string
		freeze   func(*peer, [2]*tap)
	}{
		{"caller", "bytes", freezeOutput},
		{"caller", "requests", freezeRequests},
		{"worker", "bytes", freezeOutput},
		{"worker", "requests", freezeRequests},
	} {
		t.Run(broken.end+" "+broken.way, func(t *testing.T) {
			t.Parallel()
			_, tapped, taps, caller, worker := tappedEnd(t, broken.end)
			server := tcpServer(t, echo)
			w, _ := startWorkerOn(t, worker, "w1", func(w *fakeWorker) {
				w.dial = func(ctx context.Context) (net.Conn, error) {
					if broken.end == "worker" {
						broken.freeze(tapped, taps)
					}
					return server(ctx)
				}
			})
			testkit.Must(t, w.listener.Threads.Subscribe(testkit.Context(t), schemas.DefaultTenant, "t"))
			if broken.end == "caller" {
				broken.freeze(tapped, taps)
			}
			conn, ended := forwarded(t, caller.Caller)
			_, err := conn.Write([]byte("whole"))
			testkit.Must(t, err)
			testkit.Must(t, conn.CloseWrite())
			got, _ := io.ReadAll(conn) // ended has the error
			testkit.Equal(t, "bytes", string(got), "whole")
			testkit.Must(t, <-ended)
		})
	}
}

// A request to connect that is repeated, as it has no answer yet, is answered with the outcome of the first.
func TestRepeatedConnectHasTheOutcomeOfTheFirst(t *testing.T) {
	dialed, refuse := make(chan struct{}, 2), make(chan struct{})
	_, c, _ := forwarding(t, func(context.Context) (net.Conn, error) {
		dialed <- struct{}{}
		<-refuse
		return nil, schemas.Errorf(schemas.CodeNotFound, "nothing listens there")
	})
	answers, err := c.nc.SubscribeSync(c.nc.NewInbox())
	testkit.Must(t, err)
	request := func(body string) {
		testkit.Must(t, c.nc.PublishRequest(c.subjects.Control(schemas.DefaultTenant, "t", noProcess, VerbConnect), answers.Subject, []byte(body)))
	}
	next := func() string {
		m, err := answers.NextMsgWithContext(testkit.Context(t))
		testkit.Must(t, err)
		return string(m.Data)
	}
	request(`{"connection":"c1","port":80}`)
	<-dialed
	request(`{"connection":"c1","port":80}`)
	request(`{}`)
	if got := next(); !strings.Contains(got, string(schemas.CodeInvalidArgument)) { // the one before it has arrived
		t.Errorf("the first answer is %s, before the port was dialed", got)
	}
	close(refuse)
	for range 2 {
		if got := next(); !strings.Contains(got, string(schemas.CodeNotFound)) {
			t.Errorf("an answer is %s, want the error of the first request", got)
		}
	}
}

// Processes 4: bytes that are lost, as a connection to NATS breaks at either end, or the server starts again, are sent again.
func TestTunnelOutlivesABrokenConnection(t *testing.T) {
	const size = 12 << 20
	for _, end := range []string{"caller", "worker", "server"} {
		t.Run(end, func(t *testing.T) {
			n, tapped, taps, caller, worker := tappedEnd(t, end)
			w, _ := startWorkerOn(t, worker, "w1", func(w *fakeWorker) { w.dial = tcpServer(t, echo) })
			testkit.Must(t, w.listener.Threads.Subscribe(testkit.Context(t), schemas.DefaultTenant, "t"))
			conn, ended := forwarded(t, caller.Caller)
			sent := make([]byte, size)
			_, _ = rand.NewChaCha8([32]byte{1}).Read(sent) // never fails
			go func() {
				_, _ = conn.Write(sent) // what is missing shows below
				_ = conn.CloseWrite()
			}()
			got := make([]byte, size)
			_, err := io.ReadFull(conn, got[:size/3])
			testkit.Must(t, err)
			if end == "server" {
				n.restart()
			} else {
				freezeOutput(tapped, taps)
			}
			rest, err := io.ReadFull(conn, got[size/3:])
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("got %d bytes (%v), want the %d that were sent", size/3+rest, err, size)
				_ = conn.Close() // it ends the copy
			}
			testkit.Must(t, <-ended)
		})
	}
}

// Processes 4: the last acknowledgment of an end that has finished may be lost. It stays to say so again.
func TestFinishedTunnelSaysSoAgain(t *testing.T) {
	_, c, _ := forwarding(t, tcpServer(t, echo))
	up, down := c.subjects.Tunnel(schemas.DefaultTenant, "t", "c1", tunnelUp), c.subjects.Tunnel(schemas.DefaultTenant, "t", "c1", tunnelDown)
	sub, err := c.bulk.SubscribeSync(down)
	testkit.Must(t, err)
	testkit.Must(t, c.bulk.Flush())
	request := c.subjects.Control(schemas.DefaultTenant, "t", noProcess, VerbConnect)
	_, err = c.nc.RequestWithContext(testkit.Context(t), request, []byte(`{"connection":"c1","port":80}`))
	testkit.Must(t, err)
	send := func(h nats.Header) { testkit.Must(t, c.bulk.PublishMsg(&nats.Msg{Subject: up, Header: h})) }
	finished := func() {
		for {
			m, err := sub.NextMsgWithContext(testkit.Context(t))
			testkit.Must(t, err)
			if m.Header.Get(headerStdinEnd) != "" {
				send(nats.Header{headerAck: {"1"}})
			}
			if m.Header.Get(headerDone) != "" {
				testkit.Equal(t, "acknowledgment", m.Header.Get(headerAck), "1")
				return
			}
		}
	}
	send(nats.Header{headerOffset: {"0"}, headerStdinEnd: {"true"}})
	for range 3 {
		finished()
		send(nats.Header{headerAck: {"1"}, headerOffset: {"1"}}) // as an end that has not heard
	}
	finished()
	send(nats.Header{headerAck: {"1"}, headerOffset: {"1"}, headerDone: {"true"}})
}

// Processes 4: a reader that stops holds up its sender, and no other connection; what was sent arrives when it goes on.
func TestTunnelWaitsForASlowReader(t *testing.T) {
	const size = 64 << 20
	var wrote atomic.Int64
	_, c, _ := forwarding(t, tcpServer(t, func(conn net.Conn) {
		p := make([]byte, 64<<10)
		for range size / len(p) {
			n, err := conn.Write(p)
			if wrote.Add(int64(n)); err != nil {
				return
			}
		}
	}))
	slow, slowEnded := forwarded(t, c.Caller)
	for before := int64(-1); before != wrote.Load(); { // until its sender is held up
		before = wrote.Load()
		<-time.After(300 * time.Millisecond)
	}
	if n := wrote.Load(); n > size/2 {
		t.Errorf("a sender whose reader has stopped wrote %d bytes", n)
	}
	other, otherEnded := forwarded(t, c.Caller)
	for _, conn := range []net.Conn{other, slow} {
		n, err := io.Copy(io.Discard, conn)
		testkit.Must(t, err)
		testkit.Equal(t, "bytes", n, int64(size))
		testkit.Must(t, conn.Close())
	}
	t.Log("ended with", <-slowEnded, "and", <-otherEnded) // an error when the client closed it first
}

// Processes 4: a port nobody listens on is a typed error, and so is a thread without a session.
func TestConnectFails(t *testing.T) {
	_, c, _ := forwarding(t, func(context.Context) (net.Conn, error) {
		return nil, schemas.Errorf(schemas.CodeNotFound, "nothing listens on port 80 in the sandbox")
	})
	conn, ended := forwarded(t, c.Caller)
	testkit.WantCode(t, <-ended, schemas.CodeNotFound)
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes without a connection", n)
	}
	here, there := net.Pipe()
	defer here.Close()
	testkit.WantCode(t, c.Connect(testkit.Context(t), schemas.DefaultTenant, "t", 70000, there), schemas.CodeInvalidArgument)
}

// Processes 4: a connection ends at both ends when its server, its client or its worker does, and when the other end does not keep to the rules.
func TestTunnelIsCut(t *testing.T) {
	for name, cut := range map[string]func(c *peer, w *fakeWorker, server, conn net.Conn, subject string){
		"server": func(_ *peer, _ *fakeWorker, server, _ net.Conn, _ string) {
			_ = server.(*net.TCPConn).SetLinger(0)
			_ = server.Close()
		},
		"worker":    func(_ *peer, w *fakeWorker, _, _ net.Conn, _ string) { w.endTunnels() },
		"no offset": func(c *peer, _ *fakeWorker, _, _ net.Conn, subject string) { _ = c.bulk.Publish(subject, []byte("x")) },
		"bad offset": func(c *peer, _ *fakeWorker, _, _ net.Conn, subject string) {
			_ = c.bulk.PublishMsg(&nats.Msg{Subject: subject, Header: nats.Header{headerOffset: {"-1"}}, Data: []byte("x")})
		},
		"ack of more": func(c *peer, _ *fakeWorker, _, _ net.Conn, subject string) {
			_ = c.bulk.PublishMsg(&nats.Msg{Subject: subject, Header: nats.Header{headerAck: {"99"}}})
		},
		"flood": func(c *peer, _ *fakeWorker, _, _ net.Conn, subject string) {
			for i := range 100 {
				offset := strconv.Itoa(1 + i*512<<10)
				_ = c.bulk.PublishMsg(&nats.Msg{Subject: subject, Header: nats.Header{headerOffset: {offset}}, Data: make([]byte, 512<<10)})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			servers := make(chan net.Conn, 1)
			_, c, w := forwarding(t, tcpServer(t, func(conn net.Conn) {
				servers <- conn
				<-t.Context().Done()
			}))
			watch, err := c.bulk.SubscribeSync(c.subjects.Tunnel(schemas.DefaultTenant, "t", "*", "*"))
			testkit.Must(t, err)
			testkit.Must(t, c.bulk.Flush())
			conn, ended := forwarded(t, c.Caller)
			server := <-servers
			_, err = server.Write([]byte("x"))
			testkit.Must(t, err)
			m, err := watch.NextMsgWithContext(testkit.Context(t))
			testkit.Must(t, err)
			_, err = conn.Read(make([]byte, 1))
			testkit.Must(t, err)
			cut(c, w, server, conn, m.Subject)
			if err := <-ended; err == nil {
				t.Error("the connection ended in order")
			}
			if n, err := io.Copy(io.Discard, conn); err == nil {
				t.Errorf("the connection ended in order after %d bytes", n)
			}
		})
	}
}

// endTunnels ends the forwarded connections, as the end of Run does.
func (w *fakeWorker) endTunnels() {
	w.listener.tunnels.end()
}
