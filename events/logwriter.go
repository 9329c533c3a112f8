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

// How output is cut into chunks and how many of them may be unacked. 256 KiB chunks stalled readers when measured; a window
// of 32 is 4 MiB, which is also what a supervisor holds of an unacked stream.
const (
	chunkBytes  = 128 << 10
	chunkDelay  = 20 * time.Millisecond
	chunkWindow = 32
	// storePatience is how long a stalled LOG is tried again before the output counts as not storable.
	storePatience = 30 * time.Second
)

// errHeld is the fate of a chunk that was not published, because one before it may not have been stored.
var errHeld = errors.New("held back until what came before is stored")

// LogWriter stores a process's output in LOG, in order and without holes. What is written is gathered for up to 20 ms or
// 128 KiB; the first piece after a pause goes at once, so that a person who types sees the answer. One goroutine writes.
type LogWriter struct {
	conn     *Conn
	ref      schemas.ProcessRef
	stored   func(schemas.Stream, int64)
	patience time.Duration // storePatience, unless a test has less

	// slots bounds what is unacked. One is taken before mu and given back by settle, so that a writer who waits for one
	// never holds what settle needs.
	slots     chan struct{}
	inFlight  chan *sent // published and not yet acked, oldest first; never full, since each has a slot
	unsettled atomic.Int32
	settled   chan struct{}
	spare     chan []byte      // buffers of chunks that are stored
	rng       schemas.LogRange // settle's alone until settled is closed

	mu      sync.Mutex // held by whoever publishes, so that no chunk overtakes another
	pending *outChunk  // being filled
	timer   *time.Timer
	armed   bool           // the timer runs
	timers  sync.WaitGroup // the timer's own goroutines
	flushed time.Time      // when the last chunk went
	number  int64
	line    uint64 // the connection's count of reconnects when the last chunk went
	held    bool   // a chunk was not published: nothing may overtake it
	failed  error
}

// outChunk is a chunk before it has a sequence.
type outChunk struct {
	stream schemas.Stream
	offset int64
	number int64
	data   []byte
}

// sent is a chunk on its way.
type sent struct {
	chunk  *outChunk
	future jetstream.PubAckFuture
	err    error
}

// OpenLog begins to store the output of a process. stored is called, from one goroutine and in order, with the offset up
// to which a stream is safe; nil for nobody.
func (c *Conn) OpenLog(ref schemas.ProcessRef, stored func(schemas.Stream, int64)) *LogWriter {
	if stored == nil {
		stored = func(schemas.Stream, int64) {}
	}
	return &LogWriter{conn: c, ref: ref, stored: stored, patience: storePatience}
}

// ResumeLog is OpenLog for a process whose output was stored in part by a worker that is gone: after is what [Conn.Replay] says of
// it, nil for nothing. The ref's epoch must be the one under which the process was started, so that readers see one output.
func (c *Conn) ResumeLog(ref schemas.ProcessRef, after *schemas.LogRange, stored func(schemas.Stream, int64)) *LogWriter {
	w := c.OpenLog(ref, stored)
	if after != nil {
		w.rng, w.number = *after, after.Chunks
	}
	return w
}

// Write takes output that begins at this offset of its stream. It copies p, and blocks while too much is unacked: that holds
// up the supervisor, and by it the process. The error is that of an earlier chunk that could not be stored:
// limit_exceeded, unavailable or deadline_exceeded.
func (w *LogWriter) Write(stream schemas.Stream, offset int64, p []byte) error {
	if w.inFlight == nil { // a process that prints nothing costs nothing
		w.slots = make(chan struct{}, chunkWindow)
		w.inFlight = make(chan *sent, chunkWindow)
		w.settled = make(chan struct{})
		w.spare = make(chan []byte, chunkWindow)
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

// arm has what is pending sent after a while. mu is held.
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
	// A full chunk may have gone since the timer was set: what is pending then has its own 20 ms.
	if rest := chunkDelay - time.Since(w.flushed); w.pending != nil && rest > 0 {
		w.arm(rest)
		w.mu.Unlock()
		return
	}
	w.mu.Unlock()
	w.send()
}

// fill copies as much of p as the pending chunk takes. full says that it has to be sent before more fits.
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
		return 0, true, nil // of another stream, or behind output that is missing: the offset tells readers so
	}
	n = min(len(p), chunkBytes-len(w.pending.data))
	w.pending.data = append(w.pending.data, p[:n]...)
	return n, len(w.pending.data) == chunkBytes, nil
}

// buffer is room for a chunk that begins with n bytes. Whoever prints much at once gets all of it: growing would copy each
// chunk once more.
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

// reuse keeps the buffer of a chunk that is stored, so that nothing refers to it any more.
func (w *LogWriter) reuse(b []byte) {
	if cap(b) != chunkBytes {
		return
	}
	select {
	case w.spare <- b:
	default:
	}
}

// send publishes what is pending.
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
	// Across a reconnect, what went before may be lost while this one arrives: LOG would have a hole.
	line := w.conn.bulk.Stats().Reconnects
	if w.unsettled.Load() > 0 && line != w.line {
		w.held = true
	}
	w.line = line
	if w.held {
		s.err = errHeld
	} else if s.future, s.err = w.publish(s.chunk); s.err != nil {
		w.held = true
	}
	w.unsettled.Add(1)
	w.inFlight <- s
}

func (w *LogWriter) publish(k *outChunk, more ...jetstream.PublishOpt) (jetstream.PubAckFuture, error) {
	if err := w.conn.leased(); err != nil {
		return nil, err
	}
	m := &nats.Msg{
		Subject: w.conn.Subjects.Log(w.ref.Tenant, w.ref.Thread, w.ref.Process, k.stream),
		Data:    k.data,
		Header: nats.Header{
			headerChunk:  {strconv.FormatInt(k.number, 10)},
			headerOffset: {strconv.FormatInt(k.offset, 10)},
			headerEpoch:  {strconv.FormatUint(w.ref.Epoch, 10)},
		},
	}
	// No retry by the library: it would send one chunk again after those that follow it.
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
	w.stored(k.stream, k.offset+int64(len(k.data)))
}

// Close stores what is left, waits for the last ack, and says where the output stands; nil when there was none. It must be
// called once, after the last Write. The error is the first chunk's that could not be stored; the range is then what was.
func (w *LogWriter) Close() (*schemas.LogRange, error) {
	if w.inFlight == nil {
		return w.stands(), nil
	}
	w.send()
	w.mu.Lock()
	if w.armed && w.timer.Stop() {
		w.armed = false
		w.timers.Done()
	}
	w.mu.Unlock()
	w.timers.Wait() // one that has fired already finds nothing to send
	close(w.inFlight)
	<-w.settled
	return w.stands(), w.failed
}

// stands is where the output stands; nil for none.
func (w *LogWriter) stands() *schemas.LogRange {
	if w.rng.Chunks == 0 {
		return nil
	}
	return &w.rng
}
