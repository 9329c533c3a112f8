package client_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Followers of one process join and leave at random: 50, five times in each of two rounds, or with SLUICE_LONG 1,000 for a minute in five
// rounds. Each gets whole output from where it has joined, also over an error after which it goes on. Once all have left, after each
// round, nothing is left of them: no goroutine, no subscription, no consumer in the server, and no memory.
func TestManyFollowersComeAndGo(t *testing.T) {
	crowd, rounds := crowd{followers: 50, joins: 5, chunks: 5, length: time.Hour}, 2
	if os.Getenv("SLUICE_LONG") != "" {
		crowd.followers, crowd.joins, crowd.chunks, crowd.length, crowd.pause = 1000, 1<<30, 100, 12*time.Second, 5*time.Second
		rounds = 5
	}
	d := newCaller(t, "w1")
	var cancel func()
	d.ctx, cancel = context.WithTimeout(t.Context(), 15*time.Minute) // the long form takes a minute, and more on a loaded machine
	defer cancel()
	x := d.stream(sh(`i=0; while :; do seq -f %015.0f $i $((i+99)); i=$((i+100)); sleep 0.05; done`))
	d.waitForOutput(x.Process(), "\n")
	crowd.callers, crowd.process = []*caller{d}, x.Process()
	for range crowd.followers / 100 {
		crowd.callers = append(crowd.callers, callerOf(t, d.cell))
	}
	for _, c := range crowd.callers { // each connection has what it keeps
		d.must(crowd.follow(d.ctx, c, 0, 1))
	}
	idle := crowd.counts()
	var warm memory
	for round := range rounds {
		crowd.joinAndLeave(d)
		crowd.wait(d, idle)
		now := memoryOf(t)
		t.Logf("after %d followers and %d resumptions: %d KiB in use, %d MiB resident",
			crowd.joined.Load(), crowd.resumed.Load(), now.used>>10, now.resident>>20)
		if round < rounds/2 {
			warm = now // with what the connections keep for the next ones, and the server's buffer of the newest output
		}
		if now.used > warm.used+heapNoise || now.resident > warm.resident+residentNoise {
			t.Errorf("memory grew from %d KiB in use and %d MiB resident", warm.used>>10, warm.resident>>20)
		}
	}
	d.must(x.Kill(d.ctx, 0))
}

// How much the memory without followers varies, in bytes. The server keeps buffers of 4 MiB with the newest of what it stores, and the heap
// has gaps. A follower that stays takes 17 KiB: in the long form, one of sixteen would be found.
const (
	heapNoise     = 8 << 20
	residentNoise = 48 << 20
)

// crowd are followers of a process.
type crowd struct {
	callers   []*caller
	process   string
	followers int
	joins     int           // of each follower in a round
	chunks    int           // the most that one reads
	length    time.Duration // of a round
	pause     time.Duration // the longest between two joins

	newest          atomic.Uint64 // the sequence of some chunk near the end
	joined, resumed atomic.Int64
}

// joinAndLeave is a round. It returns when all have left.
func (w *crowd) joinAndLeave(d *caller) {
	until := time.Now().Add(w.length)
	var all sync.WaitGroup
	for i := range w.followers {
		all.Go(func() {
			for n := 0; n < w.joins && time.Now().Before(until); n++ {
				if w.pause > 0 {
					<-time.After(rand.N(w.pause))
				}
				if err := w.follow(d.ctx, w.callers[i%len(w.callers)], rand.IntN(20), 1+rand.IntN(w.chunks)); err != nil {
					d.t.Error(err)
					return
				}
				w.joined.Add(1)
			}
		})
	}
	all.Wait()
}

// follow joins, at the beginning for 0 and otherwise at the newest chunk, reads some chunks, and leaves. A loaded machine may fail a
// request: it then joins again after its last chunk.
func (w *crowd) follow(ctx context.Context, c *caller, where, chunks int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next, from := int64(-1), w.newest.Load()
	if where == 0 {
		next, from = 0, 0
	}
	for {
		err := c.Logs(ctx, client.LogQuery{Process: w.process, Thread: "t", From: from, Follow: true}, func(k schemas.Chunk) error {
			if next >= 0 && k.Offset != next {
				return fmt.Errorf("a chunk begins at %d, want %d", k.Offset, next)
			}
			next, from = k.End(), k.Seq+1
			w.newest.Store(k.Seq)
			if err := wantLines(k.Offset, k.Data); err != nil {
				return err
			}
			if chunks--; chunks > 0 {
				return nil
			}
			if where%2 == 0 {
				return errStop
			}
			cancel() // as a caller that is gone
			return nil
		})
		switch {
		case chunks <= 0 && (errors.Is(err, errStop) || errors.Is(err, context.Canceled)):
			return nil
		case ctx.Err() == nil && (errors.Is(err, schemas.ErrUnavailable) || errors.Is(err, schemas.ErrDeadlineExceeded)):
			w.resumed.Add(1)
		default:
			return cmp.Or(err, errors.New("the output has ended"))
		}
	}
}

// counts are what followers take, by number.
type counts struct{ goroutines, subscriptions, consumers int }

func (w *crowd) counts() counts {
	now := counts{goroutines: runtime.NumGoroutine(), consumers: w.callers[0].cell.server.Consumers()}
	for _, c := range w.callers {
		now.subscriptions += c.conn.Subscriptions()
	}
	return now
}

// wait waits until there is no more than there was.
func (w *crowd) wait(d *caller, was counts) {
	d.t.Helper()
	ctx := testkit.Context(d.t)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		now := w.counts()
		if now.goroutines <= was.goroutines && now.subscriptions <= was.subscriptions && now.consumers <= was.consumers {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			d.t.Fatalf("%+v are left, want at most %+v", now, was)
		}
	}
}

// memory is that of this process without garbage, in bytes.
type memory struct{ used, resident int64 }

func memoryOf(t *testing.T) memory {
	t.Helper()
	used := heapUsed()
	debug.FreeOSMemory()
	statm, err := os.ReadFile("/proc/self/statm")
	if errors.Is(err, os.ErrNotExist) {
		return memory{used: used} // not Linux
	}
	testkit.Must(t, err)
	pages, err := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	testkit.Must(t, err)
	return memory{used, pages * int64(os.Getpagesize())}
}

// heapUsed is the size of what is in use in the heap, in bytes.
func heapUsed() int64 {
	for range 3 { // pools keep what they have over two
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // less than the machine has
}

// A follower that waits takes little memory.
func TestFollowersAreSmall(t *testing.T) {
	d := newCaller(t, "w1")
	x := d.stream(sh("printf '%015d\n' 0; exec sleep 300"))
	d.waitForOutput(x.Process(), "\n")
	const n, most = 100, 32 << 10
	before := heapUsed()
	ctx, cancel := context.WithCancel(d.ctx)
	var all sync.WaitGroup
	there := make(chan struct{})
	for range n {
		all.Go(func() {
			_ = d.Logs(ctx, client.LogQuery{Process: x.Process(), Thread: "t", Follow: true}, func(schemas.Chunk) error { there <- struct{}{}; return nil })
		})
	}
	for range n {
		<-there
	}
	each := (heapUsed() - before) / n
	cancel()
	all.Wait()
	if each > most {
		t.Errorf("a follower takes %d KiB, want at most %d", each>>10, most>>10)
	}
	t.Logf("a follower takes %d KiB", each>>10)
	d.must(x.Kill(d.ctx, 0))
}

// wantLines checks output whose lines have 16 bytes and are numbered.
func wantLines(offset int64, data []byte) error {
	const line = 16
	want, first := make([]byte, 0, len(data)+2*line), offset/line
	for n := first; len(want) < int(offset%line)+len(data); n++ {
		end := len(want)
		want = strconv.AppendInt(want, 1e15+n, 10) // a digit too many
		want = append(want[:end], append(want[end+1:], '\n')...)
	}
	if want = want[offset%line:][:len(data)]; !bytes.Equal(data, want) {
		return fmt.Errorf("output at %d is not that of the process: %q", offset, data[:min(len(data), 3*line)])
	}
	return nil
}
