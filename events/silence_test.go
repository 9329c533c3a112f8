package events

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// tap is a way to a server that stops forwarding when it is frozen, and leaves its connections open.
type tap struct {
	listener net.Listener
	to       string
	copies   sync.WaitGroup

	mu     sync.Mutex
	frozen chan struct{} // closed while it forwards nothing
	conns  []net.Conn
}

func newTap(t testing.TB, to string) *tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	p := &tap{listener: l, to: to, frozen: make(chan struct{})}
	p.copies.Go(p.run)
	t.Cleanup(func() {
		_ = l.Close()
		p.freeze()
		p.mu.Lock()
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.copies.Wait()
	})
	return p
}

func (p *tap) url() string { return "nats://" + p.listener.Addr().String() }

func (p *tap) run() {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = from.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, from, to)
		p.mu.Unlock()
		p.copies.Go(func() { p.forward(from, to) })
		p.copies.Go(func() { p.forward(to, from) })
	}
}

func (p *tap) forward(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-p.frozen:
			return
		default:
		}
		if _, writeErr := to.Write(buf[:n]); err != nil || writeErr != nil {
			_ = to.Close()
			return
		}
	}
}

func (p *tap) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.frozen:
	default:
		close(p.frozen)
	}
}

// twoTaps returns a connection through one of two taps to a server, with the taps, that of the connection first.
func twoTaps(t *testing.T, ttl time.Duration) (*peer, [2]*tap) {
	t.Helper()
	return newNode(t, true).twoTaps(ttl)
}

// twoTaps is twoTaps for this server.
func (n *node) twoTaps(ttl time.Duration) (*peer, [2]*tap) {
	n.t.Helper()
	t := n.t
	address := n.server.URL()[len("nats://"):]
	taps := [2]*tap{newTap(t, address), newTap(t, address)}
	conn, err := Connect(Options{URL: taps[0].url() + "," + taps[1].url(), Token: n.cfg.Token, LeaseTTL: ttl})
	testkit.Must(t, err)
	t.Cleanup(conn.Close)
	c := newPeer(conn)
	testkit.Must(t, c.Ensure(testkit.Context(t), Topology{Partitions: 1, LeaseTTL: ttl}))
	if c.nc.ConnectedUrl() == taps[1].url() {
		taps[0], taps[1] = taps[1], taps[0]
	}
	return c, taps
}

// Promises 15: a frozen server, or a route that broke, held a worker for minutes: its lease was lost although another server was there.
func TestWorkerLeavesASilentServer(t *testing.T) {
	c, taps := twoTaps(t, 8*time.Second)
	l, err := c.AcquireLease(testkit.Context(t), "w", "i1", nil, nil)
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	renewed, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- l.Run(ctx, func(ctx context.Context) {
			select {
			case renewed <- struct{}{}:
			case <-ctx.Done():
			}
		})
	}()
	<-renewed
	taps[0].freeze()
	for range 2 {
		select {
		case <-renewed:
		case err := <-ended:
			t.Fatalf("the lease ended: %v", err)
		}
	}
	testkit.Equal(t, "server", c.nc.ConnectedUrl(), taps[1].url())
	cancel()
	testkit.Must(t, <-ended)
}

// Promises 15: the same for output: its connection is full of chunks that the silent server does not take.
func TestOutputLeavesASilentServer(t *testing.T) {
	c, taps := twoTaps(t, 0)
	w := c.Open(ref("t", "p"), nil)
	chunk := make([]byte, 64<<10)
	testkit.Must(t, w.Write(schemas.Stdout, 0, chunk))
	freezeOutput(c, taps)
	const chunks = 256
	for i := 1; i < chunks; i++ {
		testkit.Must(t, w.Write(schemas.Stdout, int64(i*len(chunk)), chunk))
	}
	_, err := w.Close()
	testkit.Must(t, err)
	stored := int64(0)
	_, err = c.ReadLog(testkit.Context(t), ref("t", "p"), "", 1, 0, func(k schemas.Chunk) error {
		stored += int64(len(k.Data))
		return nil
	})
	testkit.Must(t, err)
	testkit.Equal(t, "stored bytes", stored, int64(chunks*len(chunk)))
}
