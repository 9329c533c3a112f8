package events

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/schemas"
)

func TestEnsureByManyAtOnce(t *testing.T) {
	n := newNode(t, true)
	var wg sync.WaitGroup
	for range 4 {
		c := n.connect()
		wg.Go(func() {
			for range 2 {
				if err := c.Ensure(patient(t), Topology{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestEnsureBringsAnEarlierTopologyUpToDate(t *testing.T) {
	n, c := connected(t, false)
	_, err := c.Append(patient(t), record("t", "p", schemas.TypeProcessAccepted, "1"), 0)
	must(t, err)
	must(t, c.Ensure(patient(t), Topology{Partitions: 2, LogBytes: 64 << 20, EventAge: time.Hour, LeaseTTL: time.Minute}))
	s, err := c.js.Stream(patient(t), c.names.log)
	must(t, err)
	if got := s.CachedInfo().Config.MaxBytes; got != 64<<20 {
		t.Errorf("LOG keeps %d bytes", got)
	}
	_, err = c.Last(patient(t), "default", "t", "p")
	must(t, err)
	w, _ := work(t, n, "w1", nil)
	call, err := c.Send(patient(t), "default", command("t", "k"))
	must(t, err)
	defer call.Close()
	ending(t, call)
	w.next(t)
	// What cannot be changed is told, not lived with.
	other, err := Connect(Options{InProcess: n.server, Cell: "other"})
	must(t, err)
	t.Cleanup(other.Close)
	_, err = other.js.CreateStream(patient(t), jetstream.StreamConfig{Name: other.names.cmd, Subjects: []string{"elsewhere"}, Storage: jetstream.MemoryStorage})
	must(t, err)
	if err := other.Ensure(patient(t), Topology{}); err == nil {
		t.Error("a stream of another kind is taken for CMD")
	}
}

func TestFit(t *testing.T) {
	for _, bytes := range []int64{1 << 40, 20 << 30, 9 << 30, 1 << 30, 100 << 20} {
		fitted := Topology{}.Fit(bytes)
		if got := fitted.StoreBytes(); got > bytes-bytes/16+1<<20 { // DLQ has its least
			t.Errorf("%d bytes in %d", got, bytes)
		}
		if fitted.LogBytes < fitted.EventBytes || fitted.DeadBytes < 1<<20 {
			t.Errorf("bounds %+v", fitted)
		}
	}
	n := &node{t: t, cfg: embedded.Config{Dir: t.TempDir(), StoreBytes: 32 << 20}}
	n.start()
	t.Cleanup(func() { n.server.Close() })
	for range 2 { // a store that is given away whole takes the same streams once more
		must(t, n.connect().Ensure(patient(t), Topology{}.Fit(n.server.StoreBytes())))
	}
}

func TestEverythingOutlivesTheServer(t *testing.T) {
	n, c := connected(t, true)
	ctx := patient(t)
	seq, err := c.Append(ctx, record("t", "p", schemas.TypeProcessAccepted, "1"), 0)
	must(t, err)
	rev, err := c.SaveSession(ctx, &schemas.Session{ID: "s", Tenant: "default", Thread: "t", Owner: "w1", Epoch: 3}, 0)
	must(t, err)
	must(t, c.Register(ctx, schemas.WorkerInfo{ID: "w1", LowSeq: 7}))
	o := newOutput(t, c, ref("t", "p"))
	must(t, o.print(schemas.Stdout, []byte("kept")))
	o.close()
	c.Close()
	n.restart()
	c = n.connect()
	must(t, c.Ensure(ctx, Topology{}))
	last, err := c.Last(ctx, "default", "", "p")
	must(t, err)
	if last.Seq != seq {
		t.Errorf("record at %d, want %d", last.Seq, seq)
	}
	s, got, err := c.Session(ctx, "default", "t")
	must(t, err)
	if got != rev || s.Epoch != 3 {
		t.Errorf("session %+v at %d", s, got)
	}
	workers, err := c.Workers(ctx)
	must(t, err)
	if len(workers) != 1 || workers[0].LowSeq != 7 {
		t.Errorf("workers %+v", workers)
	}
	readBack(t, c, ref("t", "p")).want(schemas.Stdout, []byte("kept"))
}

func TestSessionsChangeByCompareAndSwap(t *testing.T) {
	_, c := connected(t, false)
	ctx := patient(t)
	s := &schemas.Session{ID: "s", Tenant: "default", Thread: "t", Owner: "w1", Epoch: 1}
	_, _, err := c.Session(ctx, "default", "t")
	wantCode(t, err, schemas.CodeNotFound)
	first, err := c.SaveSession(ctx, s, 0)
	must(t, err)
	_, err = c.SaveSession(ctx, s, 0)
	wantCode(t, err, schemas.CodeConflict)
	second, err := c.SaveSession(ctx, s, first)
	must(t, err)
	_, err = c.SaveSession(ctx, s, first)
	wantCode(t, err, schemas.CodeConflict)
	wantCode(t, c.DeleteSession(ctx, s, first), schemas.CodeConflict)
	must(t, c.DeleteSession(ctx, s, second))
	_, _, err = c.Session(ctx, "default", "t")
	wantCode(t, err, schemas.CodeNotFound)
	_, err = c.SaveSession(ctx, s, 0)
	must(t, err)
}

func TestRegistry(t *testing.T) {
	_, c := connected(t, false)
	ctx := patient(t)
	none, err := c.Workers(ctx)
	must(t, err)
	for _, id := range []string{"a", "b"} {
		must(t, c.Register(ctx, schemas.WorkerInfo{ID: id, Incarnation: "1"}))
	}
	must(t, c.Register(ctx, schemas.WorkerInfo{ID: "a", Incarnation: "2"}))
	must(t, c.Unregister(ctx, "b"))
	must(t, c.Unregister(ctx, "never"))
	some, err := c.Workers(ctx)
	must(t, err)
	if len(none) != 0 || len(some) != 1 || some[0].Incarnation != "2" {
		t.Errorf("%+v, then %+v", none, some)
	}
	wantCode(t, c.Register(ctx, schemas.WorkerInfo{ID: "no id"}), schemas.CodeInvalidArgument)
}

func TestLeaseIsRenewedAndGivenBack(t *testing.T) {
	_, c := connected(t, false)
	must(t, c.Ensure(patient(t), Topology{LeaseTTL: time.Second}))
	l, err := c.AcquireLease(patient(t), "w1", "i1")
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	renewals, ended := make(chan struct{}, 64), make(chan error, 1)
	go func() { ended <- l.Run(ctx, "i1", func(context.Context) { renewals <- struct{}{} }) }()
	for range 5 { // longer than it would last by itself
		select {
		case <-renewals:
		case err := <-ended:
			t.Fatal(err)
		}
	}
	alive, err := c.LeaseAlive(patient(t), "w1")
	must(t, err)
	cancel()
	must(t, <-ended)
	after, err := c.LeaseAlive(patient(t), "w1")
	must(t, err)
	if !alive || after {
		t.Errorf("alive %t, and after it was given back %t", alive, after)
	}
}

func TestLeaseIsLost(t *testing.T) {
	_, c := connected(t, false)
	must(t, c.Ensure(patient(t), Topology{LeaseTTL: time.Second}))
	t.Run("to another incarnation", func(t *testing.T) {
		l, err := c.AcquireLease(patient(t), "w1", "i1")
		must(t, err)
		_, err = c.AcquireLease(patient(t), "w1", "i2")
		must(t, err)
		wantCode(t, l.Run(patient(t), "i1", func(context.Context) {}), schemas.CodeLost)
	})
	t.Run("by lapsing", func(t *testing.T) {
		l, err := c.AcquireLease(patient(t), "w2", "i1")
		must(t, err)
		for alive := true; alive; {
			alive, err = c.LeaseAlive(patient(t), "w2")
			must(t, err)
		}
		wantCode(t, l.Run(patient(t), "i1", func(context.Context) {}), schemas.CodeLost)
	})
	t.Run("with the server", func(t *testing.T) {
		n, c := connected(t, true)
		must(t, c.Ensure(patient(t), Topology{LeaseTTL: time.Second}))
		l, err := c.AcquireLease(patient(t), "w3", "i1")
		must(t, err)
		n.server.Close()
		wantCode(t, l.Run(patient(t), "i1", func(context.Context) {}), schemas.CodeLost)
	})
}

func TestFeedOutlivesItsConnection(t *testing.T) {
	n, c := connected(t, true)
	listener := n.connect()
	feed, err := listener.Listen(Filter{}, 1)
	must(t, err)
	defer feed.Close()
	must(t, listener.Flush(context.Background()))
	must(t, feed.sub.SetPendingLimits(1, 1)) // all but one is dropped
	for _, id := range []string{"1", "2", "3"} {
		must(t, c.Publish(patient(t), record("t", "", schemas.TypeSessionCreated, id)))
	}
	must(t, listener.nc.ForceReconnect())
	got := ""
	mine := errors.New("mine")
	for got != "123" {
		err := feed.Next(patient(t), func(ev *schemas.Event) error {
			got += ev.ID
			return mine
		})
		if err != nil && !errors.Is(err, mine) {
			t.Fatal(err)
		}
	}
}

func TestConnectSaysWhatIsWrong(t *testing.T) {
	n, _ := connected(t, true)
	_, err := Connect(Options{URL: n.server.URL()})
	wantCode(t, err, schemas.CodeUnauthenticated)
	_, err = Connect(Options{URL: n.server.URL(), Token: "wrong"})
	wantCode(t, err, schemas.CodeUnauthenticated)
	_, err = Connect(Options{URL: "nats://127.0.0.1:1"})
	wantCode(t, err, schemas.CodeUnavailable)
	_, err = Connect(Options{URL: n.server.URL(), Cell: "a.b"})
	wantCode(t, err, schemas.CodeInvalidArgument)
	_, err = Connect(Options{URL: n.server.URL(), CredsFile: filepath.Join(t.TempDir(), "none")})
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	if body, _ := json.Marshal(schemas.AsError(err)); len(body) == 0 {
		t.Error("an error that cannot travel")
	}
}
