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
	"github.com/sluice-dev/sluice/schemas"
)

// The server goes away and comes back while a process prints: nothing is lost, nothing comes twice, the order stays.
func TestOutputOutlivesTheServer(t *testing.T) {
	n, c := connected(t, true)
	reader := n.connect()
	r := ref("t", "p")
	f, err := reader.Follow(r, 0)
	must(t, err)
	defer f.Close()
	must(t, f.Flush(patient(t)))
	o := newOutput(t, c, r)
	ended := make(chan *schemas.Result, 1)
	h := newHeard(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := follow(patient(t), f, ended, h.hear); err != nil {
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
			must(t, o.print(s, noise(uint64(round*writes+i), chunkBytes/3+i)))
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

// A follower hears what was stored last while its own connection was down, without another chunk to tell of it.
func TestFollowerOutlivesItsConnection(t *testing.T) {
	n, c := connected(t, true)
	r := ref("t", "p")
	f, err := n.connect().Follow(r, 0)
	must(t, err)
	defer f.Close()
	must(t, f.Flush(patient(t)))
	o := newOutput(t, c, r)
	must(t, o.print(schemas.Stdout, []byte("before ")))
	h := newHeard(t)
	for h.seq == 0 {
		must(t, f.Next(patient(t), h.hear))
	}
	before := f.conn.bulk.Stats().Reconnects
	must(t, f.sub.SetPendingLimits(1, 1)) // what comes while it is back, but not looked at yet, is as good as lost
	must(t, f.conn.bulk.ForceReconnect())
	must(t, o.print(schemas.Stdout, []byte("meanwhile")))
	result := o.close()
	for f.seq < result.Log.LastSeq {
		must(t, f.Next(patient(t), h.hear))
	}
	h.want(schemas.Stdout, []byte("before meanwhile"))
	if f.conn.bulk.Stats().Reconnects == before {
		t.Skip("the connection was back before the output was stored")
	}
}

// A store that takes no more ends the output with a coded error, not with a hang, and what was stored stays.
func TestFullStoreIsALimit(t *testing.T) {
	n := &node{t: t, cfg: embedded.Config{Dir: t.TempDir(), StoreBytes: 4 << 20}}
	n.start()
	t.Cleanup(func() { n.server.Close() })
	c := n.connect()
	// A bound on LOG alone would drop its oldest; here the server runs out before.
	must(t, c.Ensure(patient(t), Topology{CommandBytes: -1, EventBytes: -1, LogBytes: -1, DeadBytes: -1}))
	r := ref("t", "p")
	w := c.OpenLog(r, nil)
	w.patience = time.Millisecond
	var all []byte
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		p := noise(uint64(i), chunkBytes)
		err = w.Write(schemas.Stdout, int64(len(all)), p)
		all = append(all, p...)
	}
	wantCode(t, err, schemas.CodeLimitExceeded)
	rng, err := w.Close()
	wantCode(t, err, schemas.CodeLimitExceeded)
	back := readBack(t, c, r)
	kept := back.data[schemas.Stdout]
	if len(kept) == 0 || rng == nil || rng.Chunks != int64(len(kept)/chunkBytes) {
		t.Fatalf("%d bytes are kept, the range is %+v", len(kept), rng)
	}
	back.want(schemas.Stdout, all[:len(kept)])
	_, err = c.Append(patient(t), record("t", "p", schemas.TypeProcessAccepted, "1"), 0)
	wantCode(t, err, schemas.CodeLimitExceeded)
}

// A disk that is full holds the output up until there is room again; the server, which gives JetStream up then, takes it on again.
func TestFullDiskHoldsOutputUp(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("sluice-test", dir, "tmpfs", 0, "size=64m"); err != nil {
		missing(t, "a disk to fill needs the right to mount ("+err.Error()+"): run the test as root: sudo -E go test ./events")
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
	must(t, c.Ensure(patient(t), Topology{CommandBytes: -1, EventBytes: -1, LogBytes: -1, DeadBytes: -1}))
	ballast := filepath.Join(dir, "ballast")
	must(t, os.WriteFile(ballast, make([]byte, 40<<20), 0o600))
	r := ref("t", "p")
	o := newOutput(t, c, r)
	o.w.patience = 2 * time.Minute
	probe := n.connect()
	var tight sync.WaitGroup
	tight.Go(func() {
		// Room is made once a record is refused.
		for i := range 1 << 20 {
			if _, err := probe.Append(patient(t), record("t", fmt.Sprintf("p%d", i), schemas.TypeProcessAccepted, "1"), 0); err != nil {
				break
			}
		}
		if err := os.Remove(ballast); err != nil {
			t.Error(err)
		}
	})
	for i := range 320 { // 40 MiB, of which 24 find room
		must(t, o.print(schemas.Stdout, noise(uint64(i), chunkBytes)))
	}
	o.close()
	tight.Wait()
	readBack(t, c, r).want(schemas.Stdout, o.data[schemas.Stdout])
	_, err := c.Append(patient(t), record("t", "after", schemas.TypeProcessAccepted, "1"), 0)
	must(t, err)
}
