package events

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// The server restarts while a process prints: no output is lost, duplicated or reordered.
func TestOutputSurvivesAServerRestart(t *testing.T) {
	n, c := connected(t, true)
	reader := n.connect()
	r := ref("t", "p")
	f := reader.follow(t, r, 0)
	o := newOutput(t, c, r)
	ended := make(chan *schemas.Result, 1)
	h := newCollector(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := follow(testkit.Context(t), f, ended, h.add); err != nil {
			t.Error(err)
		}
	})
	const rounds, writes = 3, 200
	for round := range rounds {
		var down sync.WaitGroup
		for i := range writes {
			s := schemas.Stdout
			if i%5 == 0 {
				s = schemas.Stderr
			}
			testkit.Must(t, o.print(s, noise(uint64(round*writes+i), chunkBytes/3+i)))
			if i == writes/4 {
				down.Go(n.restart)
			}
		}
		down.Wait()
	}
	ended <- o.close()
	wg.Wait()
	back := readBack(t, c, r)
	for s, data := range o.data {
		h.want(s, data)
		back.want(s, data)
	}
}

// A follower delivers what was stored while its connection was down, without a further live chunk.
func TestFollowerSurvivesAReconnect(t *testing.T) {
	n, c := connected(t, true)
	r := ref("t", "p")
	f := n.connect().follow(t, r, 0)
	o := newOutput(t, c, r)
	testkit.Must(t, o.print(schemas.Stdout, []byte("before ")))
	h := newCollector(t)
	for h.seq == 0 {
		testkit.Must(t, f.Next(testkit.Context(t), h.add))
	}
	before := f.conn.bulk.Stats().Reconnects
	testkit.Must(t, f.sub.SetPendingLimits(1, 1)) // a chunk that arrives after the reconnect and before the check is dropped
	testkit.Must(t, f.conn.bulk.ForceReconnect())
	testkit.Must(t, o.print(schemas.Stdout, []byte("meanwhile")))
	result := o.close()
	for f.next <= result.Log.LastSeq {
		testkit.Must(t, f.Next(testkit.Context(t), h.add))
	}
	h.want(schemas.Stdout, []byte("before meanwhile"))
	if f.conn.bulk.Stats().Reconnects == before {
		t.Skip("the connection was back before the output was stored")
	}
}

// A full store ends the output with limit_exceeded, and what was stored stays.
func TestFullStoreIsLimitExceeded(t *testing.T) {
	n := startNode(t, embedded.Config{Dir: t.TempDir(), StoreBytes: 4 << 20})
	c := n.connect()
	// With a bound LOG would drop its oldest chunks. Without one the server runs out of store first.
	testkit.Must(t, c.Ensure(testkit.Context(t), Topology{CommandBytes: -1, EventBytes: -1, LogBytes: -1, DeadBytes: -1}))
	r := ref("t", "p")
	w := c.Open(r, nil)
	w.retryFor = time.Millisecond
	var all []byte
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		p := noise(uint64(i), chunkBytes)
		err = w.Write(schemas.Stdout, int64(len(all)), p)
		all = append(all, p...)
	}
	testkit.WantCode(t, err, schemas.CodeLimitExceeded)
	rng, err := w.Close()
	testkit.WantCode(t, err, schemas.CodeLimitExceeded)
	back := readBack(t, c, r)
	stored := back.data[schemas.Stdout]
	if len(stored) == 0 || rng == nil {
		t.Fatalf("%d bytes are stored, range %+v: want some of both", len(stored), rng)
	}
	testkit.Equal(t, "chunks of the range", rng.Chunks, int64(len(stored)/chunkBytes))
	back.want(schemas.Stdout, all[:len(stored)])
	_, err = c.Append(testkit.Context(t), record("t", "p", schemas.TypeProcessAccepted, "1"), 0)
	testkit.WantCode(t, err, schemas.CodeLimitExceeded)
}

// A full disk blocks the output until there is space again. The server disables JetStream and enables it again.
func TestFullDiskBlocksOutput(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("sluice-test", dir, "tmpfs", 0, "size=64m"); err != nil {
		testkit.Missing(t, "the right to mount a small disk ("+err.Error()+")", "sudo -E go test ./events")
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	n := &node{t: t, cfg: embedded.Config{Dir: filepath.Join(dir, "nats"), StoreBytes: 16 << 30}}
	n.start()
	running, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := n.server.Run(running); err != nil {
			t.Error(err)
		}
	})
	defer wg.Wait()
	defer stop()
	c := n.connect()
	testkit.Must(t, c.Ensure(testkit.Context(t), Topology{CommandBytes: -1, EventBytes: -1, LogBytes: -1, DeadBytes: -1}))
	ballast := filepath.Join(dir, "ballast")
	testkit.Must(t, os.WriteFile(ballast, make([]byte, 40<<20), 0o600))
	r := ref("t", "p")
	o := newOutput(t, c, r)
	o.w.retryFor = 2 * time.Minute
	probe := n.connect()
	var tight sync.WaitGroup
	tight.Go(func() {
		// Free space once a record is rejected.
		for i := range 1 << 20 {
			if _, err := probe.Append(testkit.Context(t), record("t", fmt.Sprintf("p%d", i), schemas.TypeProcessAccepted, "1"), 0); err != nil {
				break
			}
		}
		if err := os.Remove(ballast); err != nil {
			t.Error(err)
		}
	})
	for i := range 320 { // 40 MiB, for which 24 MiB are free
		testkit.Must(t, o.print(schemas.Stdout, noise(uint64(i), chunkBytes)))
	}
	o.close()
	tight.Wait()
	readBack(t, c, r).want(schemas.Stdout, o.data[schemas.Stdout])
	c.append(t, record("t", "after", schemas.TypeProcessAccepted, "1"), 0)
}
