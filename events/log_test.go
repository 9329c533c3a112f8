package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/schemas"
)

// heard gathers what a reader is told of a process, and sees to it that nothing is missing, twice or out of order.
type heard struct {
	t    testing.TB
	seq  uint64
	data map[schemas.Stream][]byte
	from map[schemas.Stream]int64 // where the first chunk began
}

func newHeard(t testing.TB) *heard {
	return &heard{t: t, data: map[schemas.Stream][]byte{}, from: map[schemas.Stream]int64{}}
}

func (h *heard) hear(k schemas.Chunk) error {
	if k.Seq <= h.seq {
		h.t.Errorf("sequence %d after %d", k.Seq, h.seq)
	}
	h.seq = k.Seq
	if _, ok := h.from[k.Stream]; !ok {
		h.from[k.Stream] = k.Offset
	}
	if end := h.from[k.Stream] + int64(len(h.data[k.Stream])); k.Offset != end {
		h.t.Errorf("%s goes on at %d, want %d", k.Stream, k.Offset, end)
	}
	h.data[k.Stream] = append(h.data[k.Stream], k.Data...)
	return nil
}

func (h *heard) want(s schemas.Stream, data []byte) {
	h.t.Helper()
	if !bytes.Equal(h.data[s], data) {
		h.t.Errorf("%s: %d bytes told, want %d, or others", s, len(h.data[s]), len(data))
	}
}

// output is what a process printed, and how far it is stored.
type output struct {
	t      testing.TB
	w      *LogWriter
	mu     sync.Mutex
	data   map[schemas.Stream][]byte
	stored map[schemas.Stream]int64
}

func newOutput(t testing.TB, c *Conn, r schemas.ProcessRef) *output {
	o := &output{t: t, data: map[schemas.Stream][]byte{}, stored: map[schemas.Stream]int64{}}
	o.w = c.OpenLog(r, func(s schemas.Stream, end int64) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if end <= o.stored[s] {
			t.Errorf("%s is stored up to %d after %d", s, end, o.stored[s])
		}
		o.stored[s] = end
	})
	return o
}

func (o *output) print(s schemas.Stream, p []byte) error {
	err := o.w.Write(s, int64(len(o.data[s])), p)
	o.data[s] = append(o.data[s], p...)
	return err
}

// close ends the output, all of which must be stored, and is the result that says so.
func (o *output) close() *schemas.Result {
	o.t.Helper()
	rng, err := o.w.Close()
	must(o.t, err)
	o.mu.Lock()
	defer o.mu.Unlock()
	for s, data := range o.data {
		if o.stored[s] != int64(len(data)) {
			o.t.Errorf("%s: stored up to %d of %d", s, o.stored[s], len(data))
		}
	}
	return &schemas.Result{Log: rng, StdoutBytes: int64(len(o.data[schemas.Stdout])), StderrBytes: int64(len(o.data[schemas.Stderr]))}
}

func readBack(t testing.TB, c *Conn, r schemas.ProcessRef) *heard {
	t.Helper()
	h := newHeard(t)
	_, err := c.ReadLog(patient(t), c.Subjects.ProcessLog(r.Tenant, r.Thread, r.Process), 0, 0, h.hear)
	must(t, err)
	return h
}

func noise(seed uint64, n int) []byte {
	p := make([]byte, n)
	src := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = src.Read(p) // it never fails
	return p
}

// follow runs a follower until the process has ended.
func follow(ctx context.Context, f *Follower, ended <-chan *schemas.Result, fn func(schemas.Chunk) error) error {
	live, stop := context.WithCancel(ctx)
	defer stop()
	results := make(chan *schemas.Result, 1)
	go func() {
		defer close(results)
		select {
		case r := <-ended:
			results <- r
			stop()
		case <-live.Done():
		}
	}()
	for live.Err() == nil {
		if err := f.Next(live, fn); err != nil && live.Err() == nil {
			stop()
			<-results
			return err
		}
	}
	if r := <-results; r != nil {
		return f.Finish(ctx, r, fn)
	}
	return ctx.Err()
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	_, c := connected(t, false)
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		r := ref("t", fmt.Sprintf("p%d", runs))
		f, err := c.Follow(r, 0)
		must(t, err)
		defer f.Close()
		o := newOutput(t, c, r)
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(1, 64), rapid.IntRange(1, 3*chunkBytes)), 0, 24).Draw(rt, "sizes")
		for i, n := range sizes {
			s := rapid.SampledFrom([]schemas.Stream{schemas.Stdout, schemas.Stderr}).Draw(rt, "stream")
			must(t, o.print(s, noise(uint64(i), n)))
		}
		result := o.close()
		if len(sizes) == 0 && result.Log != nil {
			rt.Fatalf("a log of nothing: %+v", result.Log)
		}
		live := newHeard(t)
		must(t, f.Finish(patient(t), result, live.hear))
		back := readBack(t, c, r)
		chunks, total := int64(0), 0
		for s, data := range o.data {
			live.want(s, data)
			back.want(s, data)
			chunks, total = chunks+int64(len(data)/chunkBytes), total+len(data)
		}
		if result.Log != nil && result.Log.Chunks > int64(len(sizes))+chunks+1 {
			rt.Fatalf("%d chunks for %d bytes in %d writes", result.Log.Chunks, total, len(sizes))
		}
		rng, stdout, stderr, err := c.Stored(patient(t), r.Tenant, r.Thread, r.Process)
		must(t, err)
		if stdout != result.StdoutBytes || stderr != result.StderrBytes || (rng == nil) != (result.Log == nil) || (rng != nil && *rng != *result.Log) {
			rt.Fatalf("stored %+v, %d and %d bytes; the result says %+v", rng, stdout, stderr, result)
		}
	})
}

// Small writes in quick succession share a chunk; each is stored soon without another to push it.
func TestSmallWritesAreGathered(t *testing.T) {
	_, c := connected(t, false)
	o := newOutput(t, c, ref("t", "p"))
	const writes = 20_000
	for range writes {
		must(t, o.print(schemas.Stdout, []byte("line\n")))
	}
	result := o.close()
	if result.Log.Chunks > writes/4 {
		t.Errorf("%d chunks of %d writes", result.Log.Chunks, writes)
	}
	readBack(t, c, ref("t", "p")).want(schemas.Stdout, o.data[schemas.Stdout])
}

func TestPendingOutputGoesByItself(t *testing.T) {
	_, c := connected(t, false)
	stored := make(chan int64, 16)
	w := c.OpenLog(ref("t", "p"), func(_ schemas.Stream, end int64) { stored <- end })
	must(t, w.Write(schemas.Stdout, 0, []byte("first")))
	must(t, w.Write(schemas.Stdout, 5, []byte("second")))
	for end := int64(0); end < 11; {
		select {
		case end = <-stored:
		case <-patient(t).Done():
			t.Fatal("what is pending does not go by itself")
		}
	}
	_, err := w.Close()
	must(t, err)
}

// A hole in what is written stays one: what comes after it keeps its offset.
func TestMissingOutputKeepsItsPlace(t *testing.T) {
	_, c := connected(t, false)
	w := c.OpenLog(ref("t", "p"), nil)
	must(t, w.Write(schemas.Stdout, 0, []byte("ab")))
	must(t, w.Write(schemas.Stdout, 2, []byte("cd")))
	must(t, w.Write(schemas.Stdout, 10, []byte("xy")))
	_, err := w.Close()
	must(t, err)
	got := ""
	_, err = c.ReadLog(patient(t), c.Subjects.ProcessLog("default", "t", "p"), 0, 0, func(k schemas.Chunk) error {
		got += fmt.Sprintf("%d:%s ", k.Offset, k.Data)
		return nil
	})
	must(t, err)
	if got != "0:ab 2:cd 10:xy " {
		t.Errorf("read %q", got)
	}
}

// What a fault left in LOG, chunks twice and a hole that is filled by storing all after it again, readers never see.
func TestReadersPassOverWhatWasStoredAgain(t *testing.T) {
	_, c := connected(t, false)
	r := ref("t", "p")
	w := c.OpenLog(r, nil)
	var all []byte
	put := func(numbers ...int) {
		for _, n := range numbers {
			k := &outChunk{stream: schemas.Stdout, offset: int64(4 * (n - 1)), number: int64(n), data: fmt.Appendf(nil, "%04d", n)}
			future, err := w.publish(k)
			must(t, err)
			_, err = (&sent{chunk: k, future: future}).wait()
			must(t, err)
		}
	}
	for n := 1; n <= 8; n++ {
		all = fmt.Appendf(all, "%04d", n)
	}
	f, err := c.Follow(r, 0)
	must(t, err)
	defer f.Close()
	live := newHeard(t)
	put(1, 2, 2, 1, 3, 5, 6, 4, 5, 6, 7, 8, 8)
	readBack(t, c, r).want(schemas.Stdout, all)
	must(t, f.Finish(patient(t), &schemas.Result{Log: &schemas.LogRange{LastSeq: 13}}, live.hear))
	live.want(schemas.Stdout, all)
}

func TestReadLogEnds(t *testing.T) {
	_, c := connected(t, false)
	r := ref("t", "p")
	o := newOutput(t, c, r)
	must(t, o.print(schemas.Stdout, noise(1, 10*chunkBytes)))
	o.close()
	subject := c.Subjects.Log(r.Tenant, r.Thread, r.Process, schemas.Stdout)
	mine := errors.New("mine")
	next, err := c.ReadLog(patient(t), subject, 0, 0, func(k schemas.Chunk) error {
		if k.Seq == 3 {
			return mine
		}
		return nil
	})
	if !errors.Is(err, mine) || next != 4 {
		t.Errorf("next %d, error %v", next, err)
	}
	n := 0
	next, err = c.ReadLog(patient(t), subject, 4, 6, func(schemas.Chunk) error { n++; return nil })
	if err != nil || next != 7 || n != 3 {
		t.Errorf("next %d after %d chunks, error %v", next, n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = c.ReadLog(ctx, subject, 0, 0, func(schemas.Chunk) error { cancel(); return ctx.Err() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	next, err = c.ReadLog(patient(t), subject, 100, 0, func(schemas.Chunk) error { return mine })
	if err != nil || next != 100 {
		t.Errorf("beyond the end: next %d, error %v", next, err)
	}
}

func TestFollowersJoinAnywhere(t *testing.T) {
	transports(t, func(t *testing.T, listen bool) {
		n, c := connected(t, listen)
		reader := n.connect()
		r := ref("t", "p")
		o := newOutput(t, c, r)
		write := func(seed, n int) {
			must(t, o.print(schemas.Stdout, noise(uint64(seed), n)))
			must(t, o.print(schemas.Stderr, noise(uint64(seed+100), n/3+1)))
		}
		for i := range 10 {
			write(i, 2*chunkBytes)
		}
		ended := make(chan *schemas.Result, 3)
		var wg sync.WaitGroup
		heards := make([]*heard, 3)
		for i, from := range []uint64{0, 7, 1_000_000} {
			f, err := reader.Follow(r, from)
			must(t, err)
			must(t, f.Flush(patient(t)))
			heards[i] = newHeard(t)
			if i == 2 { // one that goes away delays nobody
				f.Close()
				continue
			}
			wg.Go(func() {
				defer f.Close()
				if err := follow(patient(t), f, ended, heards[i].hear); err != nil {
					t.Error(err)
				}
			})
		}
		for i := range 10 {
			write(i+10, chunkBytes/2)
		}
		result := o.close()
		ended <- result
		ended <- result
		wg.Wait()
		for _, s := range []schemas.Stream{schemas.Stdout, schemas.Stderr} {
			heards[0].want(s, o.data[s])
			heards[1].want(s, o.data[s][heards[1].from[s]:])
		}
		if heards[1].from[schemas.Stdout] == 0 {
			t.Error("from sequence 7 on began at the beginning")
		}
	})
}

// A reader that takes nothing while far more is written than may wait for it delays the writer not at all, and has it all in the end.
func TestSlowFollowerLosesNothing(t *testing.T) {
	transports(t, func(t *testing.T, listen bool) {
		n, c := connected(t, listen)
		reader := n.connect()
		r := ref("t", "p")
		f, err := reader.Follow(r, 0)
		must(t, err)
		defer f.Close()
		must(t, f.sub.SetPendingLimits(4, 2*chunkBytes))
		must(t, f.Flush(patient(t)))
		o := newOutput(t, c, r)
		must(t, o.print(schemas.Stdout, []byte("begin")))
		h := newHeard(t)
		for h.seq == 0 {
			must(t, f.Next(patient(t), h.hear))
		}
		for i := range 64 {
			must(t, o.print(schemas.Stdout, noise(uint64(i), chunkBytes)))
			must(t, o.print(schemas.Stderr, noise(uint64(i), 100)))
		}
		// The process goes on without a word: what the buffer could not hold must come without the next chunk to tell of it.
		for len(h.data[schemas.Stderr]) < 64*100-100 {
			must(t, f.Next(patient(t), h.hear))
		}
		result := o.close()
		must(t, f.Finish(patient(t), result, h.hear))
		h.want(schemas.Stdout, o.data[schemas.Stdout])
		h.want(schemas.Stderr, o.data[schemas.Stderr])
	})
}

func TestNextTellsItsContextsEnd(t *testing.T) {
	_, c := connected(t, false)
	f, err := c.Follow(ref("t", "p"), 0)
	must(t, err)
	defer f.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := f.Next(ctx, func(schemas.Chunk) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	c.Close()
	if err := f.Next(patient(t), func(schemas.Chunk) error { return nil }); schemas.CodeOf(err) != schemas.CodeUnavailable {
		t.Errorf("on a closed connection: %v", err)
	}
}
