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
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestEnsureRunsConcurrently(t *testing.T) {
	n := newNode(t, true)
	var wg sync.WaitGroup
	for range 4 {
		c := n.connect()
		wg.Go(func() {
			for range 2 {
				if err := c.Ensure(testkit.Context(t), Topology{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestEnsureLeavesAnEqualStreamAlone(t *testing.T) {
	_, c := connected(t, false)
	for _, cfg := range c.streamConfigs(c.topology) {
		s, err := c.js.Stream(testkit.Context(t), cfg.Name)
		testkit.Must(t, err)
		have := s.CachedInfo().Config
		testkit.Equal(t, cfg.Name+" has its configuration", hasConfig(have, cfg), true)
		cfg.MaxAge *= 2
		testkit.Equal(t, cfg.Name+" has another age", hasConfig(have, cfg), false)
		cfg.MaxAge = 0
		testkit.Equal(t, cfg.Name+" has no age", hasConfig(have, cfg), false)
	}
}

func TestEnsureUpdatesAnEarlierTopology(t *testing.T) {
	n, c := connected(t, false)
	c.append(t, record("t", "p", schemas.TypeProcessAccepted, "1"), 0)
	testkit.Must(t, c.Ensure(testkit.Context(t), Topology{Partitions: 2, LogBytes: 64 << 20, EventAge: time.Hour, LeaseTTL: time.Minute}))
	s, err := c.js.Stream(testkit.Context(t), c.names.log)
	testkit.Must(t, err)
	testkit.Equal(t, "bytes of LOG", s.CachedInfo().Config.MaxBytes, int64(64<<20))
	testkit.Must(t, errorOf(c.Last(testkit.Context(t), "default", "t", "p")))
	w, _ := startWorker(t, n, "w1", nil)
	call := c.call(t, command("t", "k"))
	eventsUntilEnd(t, call)
	w.next(t)
	// A stream that cannot be changed is an error.
	other, err := Connect(Options{InProcess: n.server, Cell: "other"})
	testkit.Must(t, err)
	t.Cleanup(other.Close)
	_, err = other.js.CreateStream(testkit.Context(t), jetstream.StreamConfig{Name: other.names.cmd, Subjects: []string{"elsewhere"}, Storage: jetstream.MemoryStorage})
	testkit.Must(t, err)
	if err := other.Ensure(testkit.Context(t), Topology{}); err == nil {
		t.Error("Ensure over a stream of another kind: error = nil, want one")
	}
}

func TestStreamsFitIntoTheRoom(t *testing.T) {
	for _, room := range []int64{1 << 40, 9 << 30, 1 << 30, 100 << 20} {
		c := newNode(t, false).connect()
		testkit.Must(t, c.Ensure(testkit.Context(t), Topology{Room: room}))
		took := c.topology
		if got := took.StoreBytes(); got > max(room-room/16, minStoreBytes)+minStreamBytes { // DLQ has its minimum
			t.Errorf("with room for %d bytes streams take %d", room, got)
		}
		if took.LogBytes < took.EventBytes || took.DeadBytes < minStreamBytes {
			t.Errorf("with room for %d bytes: %+v, want LOG above EVT and DLQ of at least 1 MiB", room, took)
		}
	}
	n := startNode(t, embedded.Config{Dir: t.TempDir(), StoreBytes: 32 << 20})
	for range 2 { // a store that is used up takes the same streams again
		testkit.Must(t, n.connect().Ensure(testkit.Context(t), Topology{Room: n.server.Room()}))
	}
}

// Streams that exist keep their sizes, and what they hold, when a disk has less room than they had when they were made.
func TestStreamsKeepTheirSizesWithoutRoom(t *testing.T) {
	n, c := newNode(t, false), (*peer)(nil)
	for _, room := range []int64{8 << 30, 1 << 20} {
		c = n.connect()
		testkit.Must(t, c.Ensure(testkit.Context(t), Topology{Room: room}))
		s, err := c.js.Stream(testkit.Context(t), c.names.log)
		testkit.Must(t, err)
		if got := s.CachedInfo().Config.MaxBytes; got < 4<<30 {
			t.Errorf("with room for %d bytes LOG is of %d bytes, want what it had", room, got)
		}
	}
	testkit.Must(t, c.Ensure(testkit.Context(t), Topology{Room: 1 << 20, LogBytes: 5 << 20}))
	testkit.Equal(t, "a size that is set", c.topology.LogBytes, int64(5<<20))
}

func TestStateSurvivesAServerRestart(t *testing.T) {
	n, c := connected(t, true)
	ctx := testkit.Context(t)
	seq := c.append(t, record("t", "p", schemas.TypeProcessAccepted, "1"), 0)
	rev, err := c.SaveSession(ctx, &schemas.Session{ID: "s", Tenant: "default", Thread: "t", Owner: "w1", Epoch: 3}, 0)
	testkit.Must(t, err)
	testkit.Must(t, c.Register(ctx, schemas.WorkerInfo{ID: "w1", LowSeq: 7}))
	o := newOutput(t, c, ref("t", "p"))
	testkit.Must(t, o.print(schemas.Stdout, []byte("kept")))
	o.close()
	c.Close()
	n.restart()
	c = n.connect()
	testkit.Must(t, c.Ensure(ctx, Topology{}))
	last, err := c.Last(ctx, "default", "", "p")
	testkit.Must(t, err)
	testkit.Equal(t, "sequence of the record", last.Seq, seq)
	s, got, err := c.Session(ctx, "default", "t")
	testkit.Must(t, err)
	testkit.Equal(t, "revision of the session", got, rev)
	testkit.Equal(t, "epoch of the session", s.Epoch, uint64(3))
	workers, err := c.Workers(ctx)
	testkit.Must(t, err)
	testkit.Equal(t, "number of workers", len(workers), 1)
	testkit.Equal(t, "first sequence of the worker", workers[0].LowSeq, uint64(7))
	readBack(t, c, ref("t", "p")).want(schemas.Stdout, []byte("kept"))
}

func TestEventFeedSurvivesAReconnect(t *testing.T) {
	n, c := connected(t, true)
	listener := n.connect()
	feed, err := listener.FollowEvents(Filter{}, 1)
	testkit.Must(t, err)
	defer feed.Close()
	testkit.Must(t, listener.Flush(context.Background()))
	testkit.Must(t, feed.sub.SetPendingLimits(1, 1)) // all but one is dropped
	for _, id := range []string{"1", "2", "3"} {
		testkit.Must(t, c.Publish(testkit.Context(t), record("t", "", schemas.TypeSessionCreated, id)))
	}
	testkit.Must(t, listener.nc.ForceReconnect())
	got := ""
	mine := errors.New("of the callback")
	for got != "123" {
		err := feed.Next(testkit.Context(t), func(ev *schemas.Event) error {
			got += ev.ID
			return mine
		})
		if err != nil && !errors.Is(err, mine) {
			t.Fatal(err)
		}
	}
}

func TestConnectReturnsTheCause(t *testing.T) {
	n, _ := connected(t, true)
	testkit.WantCode(t, errorOf(Connect(Options{URL: n.server.URL()})), schemas.CodeUnauthenticated)
	testkit.WantCode(t, errorOf(Connect(Options{URL: n.server.URL(), Token: "wrong"})), schemas.CodeUnauthenticated)
	testkit.WantCode(t, errorOf(Connect(Options{URL: "nats://127.0.0.1:1"})), schemas.CodeUnavailable)
	testkit.WantCode(t, errorOf(Connect(Options{URL: n.server.URL(), Cell: "a.b"})), schemas.CodeInvalidArgument)
	_, err := Connect(Options{URL: n.server.URL(), CredsFile: filepath.Join(t.TempDir(), "none")})
	testkit.WantCode(t, err, schemas.CodeNotFound)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing credentials file: error = %v, want %v", err, os.ErrNotExist)
	}
	testkit.WantCode(t, errorOf(Connect(Options{URL: n.server.URL(), CAFile: filepath.Join(t.TempDir(), "none")})), schemas.CodeNotFound)
	broken := filepath.Join(t.TempDir(), "ca.pem")
	testkit.Must(t, os.WriteFile(broken, []byte("no certificate"), 0o600))
	wrong := errorOf(Connect(Options{URL: n.server.URL(), CAFile: broken}))
	testkit.WantCode(t, wrong, schemas.CodeInvalidArgument)
	testkit.Contains(t, "error", wrong.Error(), "check --tls-ca")
	if body, _ := json.Marshal(schemas.AsError(err)); len(body) == 0 {
		t.Errorf("the error cannot be encoded: %v", err)
	}
}

func TestEarlierServersAreRefused(t *testing.T) {
	for version, want := range map[string]bool{"2.13.9": true, "1.99.0": true, "2.14.0": false, "2.15.2": false, "3.0.1": false, "": false, "dev": false} {
		testkit.Equal(t, version, isBefore(version, 2, 14), want)
	}
}
