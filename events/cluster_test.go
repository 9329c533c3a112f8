package events

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// road is a way for one server of a cluster to another, which a test closes.
type road struct {
	listener net.Listener
	to       string

	mu     sync.Mutex
	closed bool
	conns  []net.Conn
	copies sync.WaitGroup
}

func newRoad(t *testing.T, to string) *road {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	r := &road{listener: l, to: to}
	r.copies.Go(r.run)
	t.Cleanup(func() {
		_ = l.Close()
		r.set(true)
		r.copies.Wait()
	})
	return r
}

func (r *road) run() {
	for {
		from, err := r.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", r.to)
		if err != nil || !r.add(from, to) {
			_ = from.Close()
			continue
		}
		for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
			r.copies.Go(func() {
				_, _ = io.Copy(pair[0], pair[1])
				_ = pair[0].Close()
				_ = pair[1].Close()
			})
		}
	}
}

func (r *road) add(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.conns = append(r.conns, conns...)
	return true
}

func (r *road) set(closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = closed
	if closed {
		for _, c := range r.conns {
			_ = c.Close()
		}
		r.conns = nil
	}
}

// cluster is three servers in this process, with a road between any two.
type cluster struct {
	t       *testing.T
	servers []*server.Server
	options []*server.Options
	roads   map[[2]int]*road
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	const size = 3
	c := &cluster{t: t, roads: make(map[[2]int]*road)}
	var ports []int
	for range size {
		ports = append(ports, testkit.FreePort(t))
	}
	for i := range size {
		o := &server.Options{
			ServerName: fmt.Sprint("s", i), Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
			// Servers that learn of each other would pass by the roads.
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: ports[i], PoolSize: -1, Advertise: "127.0.0.1:1"},
		}
		next := (i + 1) % size // the road serves both ways
		r := newRoad(t, fmt.Sprint("127.0.0.1:", ports[next]))
		c.roads[[2]int{i, next}] = r
		o.Routes = []*url.URL{{Scheme: "nats", Host: r.listener.Addr().String()}}
		c.options = append(c.options, o)
	}
	t.Cleanup(c.stop)
	c.start()
	return c
}

// start starts all servers, in their folders.
func (c *cluster) start() {
	c.t.Helper()
	for _, o := range c.options {
		s, err := server.NewServer(o.Clone())
		testkit.Must(c.t, err)
		c.servers = append(c.servers, s)
	}
	for _, s := range c.servers {
		s.Start()
	}
}

func (c *cluster) stop() {
	for _, s := range c.servers {
		s.Shutdown()
	}
	for _, s := range c.servers {
		s.WaitForShutdown()
	}
	c.servers = nil
}

// connect connects to one server only.
func (c *cluster) connect(i int) *peer {
	c.t.Helper()
	if !c.servers[i].ReadyForConnections(30 * time.Second) {
		c.t.Fatalf("server %d does not start", i)
	}
	conn, err := Connect(Options{InProcess: c.servers[i]})
	testkit.Must(c.t, err)
	c.t.Cleanup(conn.Close)
	return newPeer(conn)
}

// isolate closes or opens all roads of a server.
func (c *cluster) isolate(i int, closed bool) {
	for pair, r := range c.roads {
		if pair[0] == i || pair[1] == i {
			r.set(closed)
		}
	}
}

// ensure creates the cell's streams with three replicas.
func (c *cluster) ensure(p *peer, topology Topology) {
	c.t.Helper()
	ctx := testkit.Context(c.t)
	topology.Replicas = 3
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second) // a request that no leader gets has no answer
		err := p.Ensure(try, topology)
		cancel()
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			c.t.Fatal(err)
		}
	}
}

// leader returns the server that leads a stream.
func (c *cluster) leader(stream string) int {
	c.t.Helper()
	ctx := testkit.Context(c.t)
	for ctx.Err() == nil {
		for i := range c.servers {
			if c.leads(i, stream) {
				return i
			}
		}
		_ = sleep(ctx, 10*time.Millisecond)
	}
	c.t.Fatalf("stream %s has no leader", stream)
	return 0
}

// leads reports whether a server takes itself for the leader of a stream.
func (c *cluster) leads(i int, stream string) bool {
	return c.servers[i].JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream)
}

// renewOften renews a lease with the majority until stop, from tries that do not last long: a cluster takes a while to choose a leader.
func renewOften(t *testing.T, l *Lease) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			begun := time.Now()
			try, done := context.WithTimeout(ctx, time.Second)
			if revision, err := l.kv.Update(try, l.worker, []byte(l.incarnation), l.revision); err == nil {
				l.revision = revision
				l.extend(begun)
			} else if holder, last, err := l.conn.leaseHolder(try, l.worker); err == nil && holder == l.incarnation {
				l.revision = last // the ack was lost
			}
			done()
			_ = sleep(ctx, 100*time.Millisecond)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// Promises 18: a server that was away from the others does not know of the renewals since. It declares no worker dead.
func TestServerThatMissedRenewalsDeclaresNoWorkerDead(t *testing.T) {
	c := newCluster(t)
	topology := Topology{Partitions: 1, LeaseTTL: 15 * time.Second} // the choice of a leader takes less
	first := c.connect(0)
	c.ensure(first, topology)
	leases := kvStream(first.names.leases)
	for _, v := range []struct {
		worker string
		stale  func() int
	}{
		{"behind-a-follower", func() int { return (c.leader(leases) + 1) % 3 }},
		{"behind-the-leader", func() int { return c.leader(leases) }},
	} {
		t.Run(v.worker, func(t *testing.T) {
			inTime(t, func(attempt string) (*Lease, error) {
				ctx, worker := testkit.Context(t), v.worker+"-"+attempt
				away := v.stale()
				owner, observer := c.connect((away+1)%3), c.connect(away)
				c.ensure(owner, topology)
				c.ensure(observer, topology)
				lease, err := owner.AcquireLease(ctx, worker, "i1", nil, nil)
				testkit.Must(t, err)
				stop := renewOften(t, lease)
				defer stop()
				copied := func() (*storedMsg, error) {
					return observer.directLast(ctx, leases, kvSubject(observer.names.leases, worker))
				}
				defer c.isolate(away, false)
				// A follower answers reads from its own copy only some seconds after it has caught up, and never without a leader.
				for c.isolate(away, true); ; c.isolate(away, true) {
					_, err := copied()
					if err == nil {
						break
					}
					c.isolate(away, false)
					if sleep(ctx, time.Second) != nil {
						t.Fatal("the server does not answer from its copy: ", err)
					}
				}
				// Its own copy of the lease expires there, while the holder renews it with the majority.
				for expired := false; !expired; {
					m, err := copied()
					expired = err == nil && m == nil
					if err := sleep(ctx, 50*time.Millisecond); err != nil {
						t.Fatal("the copy of the lease did not expire")
					}
				}
				for back := false; ; back = true {
					alive, err := observer.LeaseAlive(ctx, worker)
					if err == nil && !alive {
						return lease, fmt.Errorf("the worker was declared dead (the server is back: %v)", back)
					}
					if back && err == nil {
						break
					}
					c.isolate(away, false)
				}
				// A worker that never was is dead, as soon as the servers have agreed on a leader.
				for alive, err := true, error(nil); alive || err != nil; alive, err = observer.LeaseAlive(ctx, "never-was") {
					if ctx.Err() != nil {
						t.Fatalf("a worker that never was: alive %v, error %v", alive, err)
					}
				}
				return lease, nil
			})
		})
	}
}
