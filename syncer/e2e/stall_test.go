package e2e

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/e2e/gateway"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/s3store"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// wire forwards connections to a server. Of the first ones it forwards a number of bytes in a direction, and then keeps the
// connection open and forwards nothing, or damages one byte and goes on.
type wire struct {
	net.Listener
	mu               sync.Mutex
	stalls, flips    int   // connections to come
	up, down         int64 // bytes to forward before that; 0 is all
	stalled, flipped int
	conns            []net.Conn
	running          sync.WaitGroup
	over             chan struct{}
}

func newWire(t *testing.T, server *gateway.Server, w *wire) *wire {
	t.Helper()
	var err error
	w.over = make(chan struct{})
	w.Listener, err = net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	w.running.Go(func() {
		for {
			from, err := w.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", strings.TrimPrefix(server.Endpoint, "http://"))
			if err != nil {
				_ = from.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, from, to)
			w.mu.Unlock()
			w.running.Go(func() { w.forward(to, from, w.up) })
			w.running.Go(func() { w.forward(from, to, w.down) })
		}
	})
	t.Cleanup(func() {
		_ = w.Close()
		close(w.over)
		w.mu.Lock()
		for _, c := range w.conns {
			_ = c.Close()
		}
		w.mu.Unlock()
		w.running.Wait()
	})
	return w
}

// forward copies one direction of a connection. Errors end it as they end the connection.
func (w *wire) forward(to, from net.Conn, most int64) {
	if most > 0 {
		if _, err := io.CopyN(to, from, most); err != nil {
			_ = to.Close()
			return
		}
		w.mu.Lock()
		stall, flip := w.stalls > 0, w.flips > 0
		if stall {
			w.stalls, w.stalled = w.stalls-1, w.stalled+1
		} else if flip {
			w.flips, w.flipped = w.flips-1, w.flipped+1
		}
		w.mu.Unlock()
		if stall {
			<-w.over // neither side reads or writes any more
			return
		}
		if flip {
			var b [1]byte
			_, _ = io.ReadFull(from, b[:])
			b[0] ^= 1
			_, _ = to.Write(b[:])
		}
	}
	_, _ = io.Copy(to, from)
	_ = to.Close()
}

func (w *wire) store(t *testing.T, prefix string) objectstore.Store {
	t.Helper()
	s, err := s3store.Open(t.Context(), s3store.Options{
		Bucket: gateway.Bucket, Prefix: prefix, Endpoint: "http://" + w.Addr().String(), Timeout: time.Second,
	})
	testkit.Must(t, err)
	return objectstore.Retry(s, objectstore.RetryPolicy{})
}

// TestStalledConnectionsEnd has connections that stay open and forward nothing more, in either direction. Sync 9.
func TestStalledConnectionsEnd(t *testing.T) {
	onServers(t, func(t *testing.T, server *gateway.Server, options []treetest.Option) {
		treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
			a, b := treetest.New(t), treetest.New(t)
			a.Write("large", random(20<<20, 5))
			a.Write("small", "x")
			up := newWire(t, server, &wire{stalls: 3, up: 3 << 20})
			a.Push(up.store(t, t.Name()), append(options, o)...)
			down := newWire(t, server, &wire{stalls: 3, down: 3 << 20})
			b.Pull(down.store(t, t.Name()))
			treetest.Same(t, a, b)
			if up.stalled == 0 || down.stalled == 0 {
				t.Errorf("%d uploads and %d downloads stalled, want some of each", up.stalled, down.stalled)
			}
		})
	})
}

// TestFlippedBitsOnTheWire flips a bit in what is sent and in what is received: a server that checks digests refuses the one, and the other
// is fetched again. Sync 9.
func TestFlippedBitsOnTheWire(t *testing.T) {
	onServers(t, func(t *testing.T, server *gateway.Server, options []treetest.Option) {
		checks := server.Kind == gateway.Versity // TestMatrix measures it
		treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
			a, b := treetest.New(t), treetest.New(t)
			a.Write("large", random(20<<20, 6))
			up := newWire(t, server, &wire{up: 3 << 20})
			if checks {
				up.flips = 2
			}
			testkit.Equal(t, "notes", a.Push(up.store(t, t.Name()), append(options, o)...).Notes, []string(nil))
			down := newWire(t, server, &wire{flips: 2, down: 3 << 20})
			b.Pull(down.store(t, t.Name()))
			treetest.Same(t, a, b)
			if checks && up.flipped == 0 || down.flipped == 0 {
				t.Errorf("%d and %d bytes flipped, want some in each direction that is checked", up.flipped, down.flipped)
			}
		})
	})
}
