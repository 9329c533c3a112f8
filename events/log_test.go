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

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// collector collects the chunks that a reader delivers, and fails the test on a hole, a duplicate or a wrong order.
type collector struct {
	t    testing.TB
	seq  uint64
	data map[schemas.Stream][]byte
	from map[schemas.Stream]int64 // the offset of the first chunk
}

func newCollector(t testing.TB) *collector {
	return &collector{t: t, data: map[schemas.Stream][]byte{}, from: map[schemas.Stream]int64{}}
}

func (h *collector) add(k schemas.Chunk) error {
	if k.Seq <= h.seq {
		h.t.Errorf("chunk sequence = %d, want more than %d", k.Seq, h.seq)
	}
	h.seq = k.Seq
	if _, ok := h.from[k.Stream]; !ok {
		h.from[k.Stream] = k.Offset
	}
	if end := h.from[k.Stream] + int64(len(h.data[k.Stream])); k.Offset != end {
		h.t.Errorf("%s: chunk offset = %d, want %d", k.Stream, k.Offset, end)
	}
	h.data[k.Stream] = append(h.data[k.Stream], k.Data...)
	return nil
}

func (h *collector) want(s schemas.Stream, data []byte) {
	h.t.Helper()
	if !bytes.Equal(h.data[s], data) {
		h.t.Errorf("%s: got %d bytes, want %d; the content or the length differs", s, len(h.data[s]), len(data))
	}
}

// output is the output of a process, and how far it is stored.
type output struct {
	t      testing.TB
	w      *LogWriter
	mu     sync.Mutex
	data   map[schemas.Stream][]byte
	stored map[schemas.Stream]int64
}

func newOutput(t testing.TB, c *peer, r schemas.ProcessRef) *output {
	o := &output{t: t, data: map[schemas.Stream][]byte{}, stored: map[schemas.Stream]int64{}}
	o.w = c.Open(r, func(s schemas.Stream, end int64) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if end <= o.stored[s] {
			t.Errorf("%s: stored offset = %d, want more than %d", s, end, o.stored[s])
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

// close ends the output and returns its result. All of it must be stored.
func (o *output) close() *schemas.Result {
	o.t.Helper()
	rng, err := o.w.Close()
	testkit.Must(o.t, err)
	o.mu.Lock()
	defer o.mu.Unlock()
	for s, data := range o.data {
		if o.stored[s] != int64(len(data)) {
			o.t.Errorf("%s: stored offset = %d, want %d", s, o.stored[s], len(data))
		}
	}
	return &schemas.Result{Log: rng, StdoutBytes: int64(len(o.data[schemas.Stdout])), StderrBytes: int64(len(o.data[schemas.Stderr]))}
}

func readBack(t testing.TB, c *peer, r schemas.ProcessRef) *collector {
	t.Helper()
	h := newCollector(t)
	testkit.Must(t, errorOf(c.ReadLog(testkit.Context(t), r, "", 0, 0, h.add)))
	return h
}

func noise(seed uint64, n int) []byte {
	p := make([]byte, n)
	src := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = src.Read(p) // it returns no error
	return p
}

// follow reads a follower until the process has ended.
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

func TestWrittenOutputIsReadBack(t *testing.T) {
	_, c := connected(t, false)
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		r := ref("t", fmt.Sprintf("p%d", runs))
		f, err := c.FollowLog(r, 0)
		testkit.Must(t, err)
		defer f.Close()
		o := newOutput(t, c, r)
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(1, 64), rapid.IntRange(1, 3*chunkBytes)), 0, 24).Draw(rt, "sizes")
		for i, n := range sizes {
			s := rapid.SampledFrom([]schemas.Stream{schemas.Stdout, schemas.Stderr}).Draw(rt, "stream")
			testkit.Must(t, o.print(s, noise(uint64(i), n)))
		}
		result := o.close()
		if len(sizes) == 0 && result.Log != nil {
			rt.Fatalf("range of an empty log = %+v, want nil", result.Log)
		}
		live := newCollector(t)
		testkit.Must(t, f.Finish(testkit.Context(t), result, live.add))
		back := readBack(t, c, r)
		chunks, total := int64(0), 0
		for s, data := range o.data {
			live.want(s, data)
			back.want(s, data)
			chunks, total = chunks+int64(len(data)/chunkBytes), total+len(data)
		}
		if result.Log != nil && result.Log.Chunks > int64(len(sizes))+chunks+1 {
			rt.Fatalf("%d chunks for %d bytes in %d writes, want at most %d", result.Log.Chunks, total, len(sizes), int64(len(sizes))+chunks+1)
		}
		rng, stdout, stderr, err := c.Stored(testkit.Context(t), r.Tenant, r.Thread, r.Process)
		testkit.Must(t, err)
		testkit.Equal(t, "stored range", rng, result.Log)
		testkit.Equal(t, "stored bytes of stdout", stdout, result.StdoutBytes)
		testkit.Equal(t, "stored bytes of stderr", stderr, result.StderrBytes)
	})
}

func TestSmallWritesShareChunks(t *testing.T) {
	_, c := connected(t, false)
	o := newOutput(t, c, ref("t", "p"))
	const writes = 20_000
	for range writes {
		testkit.Must(t, o.print(schemas.Stdout, []byte("line\n")))
	}
	result := o.close()
	if result.Log.Chunks > writes/4 {
		t.Errorf("%d chunks for %d writes, want at most %d", result.Log.Chunks, writes, writes/4)
	}
	readBack(t, c, ref("t", "p")).want(schemas.Stdout, o.data[schemas.Stdout])
}

// Pending output is stored without a further write.
func TestPendingOutputIsStored(t *testing.T) {
	_, c := connected(t, false)
	stored := make(chan int64, 16)
	w := c.Open(ref("t", "p"), func(_ schemas.Stream, end int64) { stored <- end })
	testkit.Must(t, w.Write(schemas.Stdout, 0, []byte("first")))
	testkit.Must(t, w.Write(schemas.Stdout, 5, []byte("second")))
	for end := int64(0); end < 11; {
		select {
		case end = <-stored:
		case <-testkit.Context(t).Done():
			t.Fatal("pending output was not stored")
		}
	}
	testkit.Must(t, errorOf(w.Close()))
}

// A hole in the output stays: the output after it keeps its offset.
func TestOutputAfterAHoleKeepsItsOffset(t *testing.T) {
	_, c := connected(t, false)
	w := c.Open(ref("t", "p"), nil)
	testkit.Must(t, w.Write(schemas.Stdout, 0, []byte("ab")))
	testkit.Must(t, w.Write(schemas.Stdout, 2, []byte("cd")))
	testkit.Must(t, w.Write(schemas.Stdout, 10, []byte("xy")))
	testkit.Must(t, errorOf(w.Close()))
	got := ""
	_, err := c.ReadLog(testkit.Context(t), ref("t", "p"), "", 0, 0, func(k schemas.Chunk) error {
		got += fmt.Sprintf("%d:%s ", k.Offset, k.Data)
		return nil
	})
	testkit.Must(t, err)
	testkit.Equal(t, "chunks", got, "0:ab 2:cd 10:xy ")
}

// A fault can leave duplicate chunks in LOG, and a hole after which all chunks are stored again. Readers see neither.
func TestReadersSkipDuplicateChunks(t *testing.T) {
	_, c := connected(t, false)
	r := ref("t", "p")
	w := c.Open(r, nil)
	var all []byte
	put := func(numbers ...int) {
		for _, n := range numbers {
			k := &outChunk{stream: schemas.Stdout, offset: int64(4 * (n - 1)), number: int64(n), data: fmt.Appendf(nil, "%04d", n)}
			future, err := w.publish(k)
			testkit.Must(t, err)
			_, err = (&sent{chunk: k, future: future}).wait()
			testkit.Must(t, err)
		}
	}
	for n := 1; n <= 8; n++ {
		all = fmt.Appendf(all, "%04d", n)
	}
	f := c.follow(t, r, 0)
	live := newCollector(t)
	put(1, 2, 2, 1, 3, 5, 6, 4, 5, 6, 7, 8, 8)
	readBack(t, c, r).want(schemas.Stdout, all)
	testkit.Must(t, f.Finish(testkit.Context(t), &schemas.Result{Log: &schemas.LogRange{LastSeq: 13}}, live.add))
	live.want(schemas.Stdout, all)
}

func TestReadLogStops(t *testing.T) {
	_, c := connected(t, false)
	r := ref("t", "p")
	o := newOutput(t, c, r)
	testkit.Must(t, o.print(schemas.Stdout, noise(1, 10*chunkBytes)))
	o.close()
	failed := errors.New("of the callback")
	next, err := c.ReadLog(testkit.Context(t), r, schemas.Stdout, 0, 0, func(k schemas.Chunk) error {
		if k.Seq == 3 {
			return failed
		}
		return nil
	})
	wantIs(t, err, failed)
	testkit.Equal(t, "next sequence after an error of the callback", next, uint64(4))
	n := 0
	next, err = c.ReadLog(testkit.Context(t), r, schemas.Stdout, 4, 6, func(schemas.Chunk) error { n++; return nil })
	testkit.Must(t, err)
	testkit.Equal(t, "next sequence after an upper bound", next, uint64(7))
	testkit.Equal(t, "chunks up to an upper bound", n, 3)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = c.ReadLog(ctx, r, schemas.Stdout, 0, 0, func(schemas.Chunk) error { cancel(); return ctx.Err() })
	wantIs(t, err, context.Canceled)
	next, err = c.ReadLog(testkit.Context(t), r, schemas.Stdout, 100, 0, func(schemas.Chunk) error { return failed })
	testkit.Must(t, err)
	testkit.Equal(t, "next sequence beyond the end", next, uint64(100))
}

func TestFollowersBeginAtAnySequence(t *testing.T) {
	transports(t, func(t *testing.T, listen bool) {
		n, c := connected(t, listen)
		reader := n.connect()
		r := ref("t", "p")
		o := newOutput(t, c, r)
		write := func(seed, n int) {
			testkit.Must(t, o.print(schemas.Stdout, noise(uint64(seed), n)))
			testkit.Must(t, o.print(schemas.Stderr, noise(uint64(seed+100), n/3+1)))
		}
		for i := range 10 {
			write(i, 2*chunkBytes)
		}
		ended := make(chan *schemas.Result, 3)
		var wg sync.WaitGroup
		collectors := make([]*collector, 3)
		for i, from := range []uint64{0, 7, 1_000_000} {
			f := reader.follow(t, r, from)
			collectors[i] = newCollector(t)
			if i == 2 { // a closed follower delays no other
				f.Close()
				continue
			}
			wg.Go(func() {
				if err := follow(testkit.Context(t), f, ended, collectors[i].add); err != nil {
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
			collectors[0].want(s, o.data[s])
			collectors[1].want(s, o.data[s][collectors[1].from[s]:])
		}
		if collectors[1].from[schemas.Stdout] == 0 {
			t.Error("the follower from sequence 7 began at offset 0")
		}
	})
}

// A follower that reads nothing while more is written than its buffer holds does not block the writer, and gets all output later.
func TestSlowFollowerGetsAllOutput(t *testing.T) {
	transports(t, func(t *testing.T, listen bool) {
		n, c := connected(t, listen)
		reader := n.connect()
		r := ref("t", "p")
		f := reader.follow(t, r, 0)
		testkit.Must(t, f.sub.SetPendingLimits(4, 2*chunkBytes))
		testkit.Must(t, f.Flush(testkit.Context(t)))
		o := newOutput(t, c, r)
		testkit.Must(t, o.print(schemas.Stdout, []byte("begin")))
		h := newCollector(t)
		for h.seq == 0 {
			testkit.Must(t, f.Next(testkit.Context(t), h.add))
		}
		for i := range 64 {
			testkit.Must(t, o.print(schemas.Stdout, noise(uint64(i), chunkBytes)))
			testkit.Must(t, o.print(schemas.Stderr, noise(uint64(i), 100)))
		}
		// The process prints nothing more: the follower must find the dropped chunks without a further live chunk.
		for len(h.data[schemas.Stderr]) < 64*100-100 {
			testkit.Must(t, f.Next(testkit.Context(t), h.add))
		}
		result := o.close()
		testkit.Must(t, f.Finish(testkit.Context(t), result, h.add))
		h.want(schemas.Stdout, o.data[schemas.Stdout])
		h.want(schemas.Stderr, o.data[schemas.Stderr])
	})
}

func TestNextReturnsTheErrorOfItsContext(t *testing.T) {
	_, c := connected(t, false)
	f := c.follow(t, ref("t", "p"), 0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := f.Next(ctx, func(schemas.Chunk) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error = %v, want %v", err, context.DeadlineExceeded)
	}
	c.Close()
	testkit.WantCode(t, f.Next(testkit.Context(t), func(schemas.Chunk) error { return nil }), schemas.CodeUnavailable)
}

// A worker resumes the output of a dead worker. Readers see one output, also one that followed all the time.
func TestOutputIsResumed(t *testing.T) {
	_, c := connected(t, false)
	old, r := ref("t", "p"), ref("t", "p")
	old.Epoch, r.Epoch = 1, 2
	for _, e := range []schemas.ProcessRef{old, r} { // an earlier run, and the first part of this one
		o := newOutput(t, c, e)
		testkit.Must(t, o.print(schemas.Stdout, noise(e.Epoch, 300<<10)))
		testkit.Must(t, o.print(schemas.Stderr, noise(e.Epoch+10, 100)))
		o.close()
	}
	f := c.follow(t, r, 0)
	h := newCollector(t)
	testkit.Must(t, f.Flush(testkit.Context(t)))
	testkit.Must(t, f.CatchUp(testkit.Context(t), func(k schemas.Chunk) error {
		if k.Epoch == r.Epoch {
			return h.add(k)
		}
		return nil
	}))

	data := map[schemas.Stream][]byte{}
	after, err := c.Replay(testkit.Context(t), r, func(k schemas.Chunk) error {
		if int(k.Offset) != len(data[k.Stream]) {
			t.Errorf("%s: chunk offset = %d, want %d", k.Stream, k.Offset, len(data[k.Stream]))
		}
		data[k.Stream] = append(data[k.Stream], k.Data...)
		return nil
	})
	testkit.Must(t, err)
	replayed := &collector{t: t, data: data}
	replayed.want(schemas.Stdout, noise(2, 300<<10))
	replayed.want(schemas.Stderr, noise(12, 100))
	if after.Range == nil || after.Range.Chunks < 3 {
		t.Fatalf("range = %+v, want at least 3 chunks", after.Range)
	}
	first := *after.Range
	o := &output{t: t, data: data, stored: map[schemas.Stream]int64{schemas.Stderr: 100}}
	o.w = c.Resume(r, after, func(s schemas.Stream, end int64) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.stored[s] = end
	}, nil)
	testkit.Must(t, o.print(schemas.Stdout, noise(3, 200<<10)))
	result := o.close()
	if l := result.Log; l.FirstSeq != first.FirstSeq || l.LastSeq <= first.LastSeq || l.Chunks <= first.Chunks {
		t.Errorf("range = %+v, want a longer one than %+v with the same start", l, first)
	}
	testkit.Must(t, f.Finish(testkit.Context(t), result, h.add))
	h.want(schemas.Stdout, o.data[schemas.Stdout])
	h.want(schemas.Stderr, o.data[schemas.Stderr])

	// Without new output the range stays.
	rng, err := c.Resume(r, &StoredOutput{Range: result.Log}, nil, nil).Close()
	testkit.Must(t, err)
	testkit.Equal(t, "range without new output", rng, result.Log)
	other, err := c.Replay(testkit.Context(t), ref("t", "other"), func(schemas.Chunk) error { return nil })
	testkit.Must(t, err)
	if other.Range != nil {
		t.Errorf("range of another process = %+v, want nil", other.Range)
	}
}

// Promises 15: a worker whose connection is closed, as by a server that revokes its credentials, leaves the output to the next one. It is no
// failure of the process.
func TestOutputOfAClosedConnectionIsLeft(t *testing.T) {
	_, c := connected(t, true)
	o := newOutput(t, c, ref("t", "p"))
	testkit.Must(t, o.print(schemas.Stdout, []byte("stored")))
	c.bulk.Close()
	for range 3 { // the first may only be pending
		_ = o.print(schemas.Stdout, make([]byte, 1<<20))
	}
	_, err := o.w.Close()
	testkit.WantCode(t, err, schemas.CodeLost)
}
