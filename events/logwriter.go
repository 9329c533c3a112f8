package events

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// Chunks of output and how many may be unacked. Measured, 256 KiB chunks stalled readers. A window of 32 chunks is 4 MiB, which is
// also what a supervisor keeps of an unacked stream.
const (
	chunkBytes  = 128 << 10
	chunkDelay  = 20 * time.Millisecond
	chunkWindow = 32
	// storeTimeout is how long a writer retries without progress before the output fails.
	storeTimeout = 30 * time.Second
)

// errHeld marks a chunk that was not published because an earlier one may not have been stored.
var errHeld = errors.New("held until the earlier chunks are stored")

// LogWriter stores a process's output in LOG, in order and without holes. It collects output for up to 20 ms or 128 KiB, and sends
// the first piece after a pause at once, for interactive use. One goroutine writes.
type LogWriter struct {
	conn     *Conn
	lease    *Lease // it stores nothing under a later one; nil for none
	ref      schemas.ProcessRef
	onStored func(schemas.Stream, int64)
	// onDropped is called when the process's own oldest output was dropped; nil for never.
	onDropped func(stream schemas.Stream, from, to int64)
	retryFor  time.Duration // storeTimeout; tests shorten it

	// slots bounds the unacked chunks. send takes a slot before mu, and settle returns it, so that a writer that waits for a slot
	// never holds the lock that settle needs.
	slots     chan struct{}
	inFlight  chan *sent // published and not acked, oldest first; never full, because each has a slot
	unsettled atomic.Int32
	acked     atomic.Int64 // the number up to which all chunks were stored
	settled   chan struct{}
	spare     chan []byte      // buffers of stored chunks, for reuse
	rng       schemas.LogRange // it and output are owned by settle until settled is closed
	output    outputParts

	mu         sync.Mutex // held to publish, so that chunks stay in order
	pending    *outChunk  // not full yet
	timer      *time.Timer
	armed      bool           // the timer runs
	timers     sync.WaitGroup // running callbacks of the timer
	flushed    time.Time      // when the last chunk was sent
	number     int64
	reconnects uint64 // the connection's reconnects when the last chunk was sent
	held       bool   // a chunk was not published: hold all later ones
	failed     error
}

// outChunk is a chunk without a sequence.
type outChunk struct {
	stream schemas.Stream
	offset int64
	number int64
	data   []byte
}

// sent is a chunk in flight.
type sent struct {
	chunk  *outChunk
	future jetstream.PubAckFuture
	err    error
}

// Write writes output that begins at this offset of its stream. It copies p. It blocks while too much is unacked, which blocks the
// supervisor and so the process. It returns the error of an earlier chunk: limit_exceeded, unavailable, deadline_exceeded, lost.
func (w *LogWriter) Write(stream schemas.Stream, offset int64, p []byte) error {
	if w.inFlight == nil { // created at the first output: many processes print nothing
		window := w.window()
		w.slots = make(chan struct{}, window)
		w.inFlight = make(chan *sent, window)
		w.settled = make(chan struct{})
		w.spare = make(chan []byte, window)
		go w.settle()
	}
	for len(p) > 0 {
		n, full, err := w.fill(stream, offset, p)
		if err != nil {
			return err
		}
		p, offset = p[n:], offset+int64(n)
		if full {
			w.send()
		}
	}
	w.mu.Lock()
	if w.pending == nil {
		defer w.mu.Unlock()
		return w.failed
	}
	if rest := chunkDelay - time.Since(w.flushed); rest > 0 {
		w.arm(rest)
		defer w.mu.Unlock()
		return w.failed
	}
	w.mu.Unlock()
	w.send()
	return nil
}

// window is how many chunks may be unacked. With a small budget they are an eighth of it at most: a trim keeps a number of the newest chunks,
// and those in flight count among them when the server has them already.
func (w *LogWriter) window() int64 {
	limit := w.conn.budget.ofProcess()
	if limit <= 0 {
		return chunkWindow
	}
	return max(1, min(chunkWindow, limit/8/chunkBytes))
}

// arm starts the timer that sends the pending chunk. mu is held.
func (w *LogWriter) arm(after time.Duration) {
	if w.armed {
		return
	}
	w.armed = true
	w.timers.Add(1)
	if w.timer == nil {
		w.timer = time.AfterFunc(after, w.tick)
	} else {
		w.timer.Reset(after)
	}
}

func (w *LogWriter) tick() {
	defer w.timers.Done()
	w.mu.Lock()
	w.armed = false
	// A full chunk may have been sent since: the pending one then has its own 20 ms.
	if rest := chunkDelay - time.Since(w.flushed); w.pending != nil && rest > 0 {
		w.arm(rest)
		w.mu.Unlock()
		return
	}
	w.mu.Unlock()
	w.send()
}

// fill copies into the pending chunk what fits of p. full reports that the chunk must be sent first.
func (w *LogWriter) fill(stream schemas.Stream, offset int64, p []byte) (n int, full bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		return 0, false, w.failed
	}
	if w.pending == nil {
		w.number++
		w.pending = &outChunk{stream: stream, offset: offset, number: w.number, data: w.buffer(len(p))}
	}
	if w.pending.stream != stream || w.pending.offset+int64(len(w.pending.data)) != offset {
		return 0, true, nil // another stream, or a hole in the output, which the offset of the next chunk shows
	}
	n = min(len(p), chunkBytes-len(w.pending.data))
	w.pending.data = append(w.pending.data, p[:n]...)
	return n, len(w.pending.data) == chunkBytes, nil
}

// buffer returns a buffer for a chunk that begins with n bytes. A large write gets a full-size one: growing would copy the chunk
// again.
func (w *LogWriter) buffer(n int) []byte {
	const small = 4 << 10
	if n <= small {
		return make([]byte, 0, small)
	}
	select {
	case b := <-w.spare:
		return b[:0]
	default:
		return make([]byte, 0, chunkBytes)
	}
}

// reuse returns the buffer of a stored chunk, which nothing refers to any more.
func (w *LogWriter) reuse(b []byte) {
	if cap(b) != chunkBytes {
		return
	}
	select {
	case w.spare <- b:
	default:
	}
}

// send publishes the pending chunk.
func (w *LogWriter) send() {
	w.slots <- struct{}{}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending == nil || w.failed != nil {
		<-w.slots
		return
	}
	s := &sent{chunk: w.pending}
	w.pending = nil
	w.flushed = time.Now()
	// Across a reconnect an earlier chunk may be lost and this one arrive, which would leave a hole in LOG.
	reconnects := w.conn.bulk.Stats().Reconnects
	if w.unsettled.Load() > 0 && reconnects != w.reconnects {
		w.held = true
	}
	w.reconnects = reconnects
	if w.held {
		s.err = errHeld
	} else if s.future, s.err = w.publish(s.chunk); s.err != nil {
		w.held = true
	}
	w.unsettled.Add(1)
	w.inFlight <- s
}

func (w *LogWriter) publish(k *outChunk, more ...jetstream.PublishOpt) (jetstream.PubAckFuture, error) {
	if err := w.lease.held(); err != nil {
		return nil, err
	}
	m := &nats.Msg{
		Subject: w.conn.subjects.Log(w.ref.Tenant, w.ref.Thread, w.ref.Process, k.stream),
		Data:    k.data,
		Header: nats.Header{
			headerChunk:  {strconv.FormatInt(k.number, 10)},
			headerOffset: {strconv.FormatInt(k.offset, 10)},
			headerEpoch:  {strconv.FormatUint(w.ref.Epoch, 10)},
			headerStored: {strconv.FormatInt(w.acked.Load(), 10)},
		},
	}
	// No retry by the library: it would send a chunk again after its successors.
	return w.conn.bulkJS.PublishMsgAsync(m, append(more, jetstream.WithRetryAttempts(0), jetstream.WithStallWait(publishTimeout))...)
}

// settle waits for the acks, oldest first, until Close.
func (w *LogWriter) settle() {
	defer close(w.settled)
	for s := range w.inFlight {
		if seq, err := s.wait(); err == nil {
			w.done(s.chunk, seq)
			w.unsettled.Add(-1)
			w.reuse(s.chunk.data)
		} else {
			w.recover(s)
		}
		<-w.slots
	}
}

func (w *LogWriter) done(k *outChunk, seq uint64) {
	if w.rng.FirstSeq == 0 {
		w.rng.FirstSeq = seq
	}
	w.rng.LastSeq = max(w.rng.LastSeq, seq)
	w.rng.Chunks++
	w.acked.Store(max(w.acked.Load(), k.number))
	w.hold(k, seq)
	w.onStored(k.stream, k.offset+int64(len(k.data)))
}

// Close stores the rest, waits for the last ack, and returns the range of the output in LOG; nil for none. Call it once, after the
// last Write. The error is that of the first chunk that could not be stored; the range is then what was stored.
func (w *LogWriter) Close() (*schemas.LogRange, error) {
	if w.inFlight == nil {
		return w.stored(), nil
	}
	w.send()
	w.mu.Lock()
	if w.armed && w.timer.Stop() {
		w.armed = false
		w.timers.Done()
	}
	w.mu.Unlock()
	w.timers.Wait() // a callback that runs already finds nothing to send
	close(w.inFlight)
	<-w.settled
	w.reportDropped(0)
	w.reportDropped(1)
	return w.stored(), w.failed
}

// stored returns the range of the output in LOG; nil for none.
func (w *LogWriter) stored() *schemas.LogRange {
	if w.rng.Chunks == 0 {
		return nil
	}
	return &w.rng
}
