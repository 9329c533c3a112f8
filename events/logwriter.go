package events

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
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

// ProcessRef names a process, and the session's epoch that runs it.
type ProcessRef struct {
	Tenant, Thread, Process string
	Epoch                   uint64
}

// LogWriter stores a process's output in LOG, in order and without holes. What is written is gathered for up to 20 ms or
// 128 KiB; the first piece after a pause goes at once, so that a person who types sees the answer. One goroutine writes.
type LogWriter struct {
	conn   *Conn
	ref    ProcessRef
	stored func(schemas.Stream, int64)

	// slots bounds what is unacked. One is taken before mu and given back by settle, so that a writer who waits for one
	// never holds what settle needs.
	slots    chan struct{}
	inFlight chan *sent // published and not yet acked, oldest first; never full, since each has a slot
	settled  chan struct{}
	rng      schemas.LogRange // settle's alone until settled is closed

	mu      sync.Mutex // held by whoever publishes, so that no chunk overtakes another
	pending *outChunk  // being filled
	timer   *time.Timer
	flushed time.Time // when the last chunk went
	number  int64
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
// to which a stream is safe.
func (c *Conn) OpenLog(ref ProcessRef, stored func(schemas.Stream, int64)) *LogWriter {
	return &LogWriter{conn: c, ref: ref, stored: stored}
}

// Write takes output that begins at this offset of its stream. It copies p, and blocks while too much is unacked: that holds
// up the supervisor, and by it the process. The error is that of an earlier chunk that could not be stored:
// limit_exceeded, unavailable or deadline_exceeded.
func (w *LogWriter) Write(stream schemas.Stream, offset int64, p []byte) error {
	if w.inFlight == nil { // a process that prints nothing costs nothing
		w.slots = make(chan struct{}, chunkWindow)
		w.inFlight = make(chan *sent, chunkWindow)
		w.settled = make(chan struct{})
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
	since := time.Since(w.flushed)
	if since < chunkDelay {
		if w.timer == nil {
			w.timer = time.AfterFunc(chunkDelay-since, w.send)
		} else {
			w.timer.Reset(chunkDelay - since)
		}
		defer w.mu.Unlock()
		return w.failed
	}
	w.mu.Unlock()
	w.send()
	return nil
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
		w.pending = &outChunk{stream: stream, offset: offset, number: w.number, data: make([]byte, 0, min(chunkBytes, max(len(p), 4<<10)))}
	}
	if w.pending.stream != stream {
		return 0, true, nil
	}
	n = min(len(p), chunkBytes-len(w.pending.data))
	w.pending.data = append(w.pending.data, p[:n]...)
	return n, len(w.pending.data) == chunkBytes, nil
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
	s.future, s.err = w.publish(s.chunk)
	w.inFlight <- s
}

func (w *LogWriter) publish(k *outChunk) (jetstream.PubAckFuture, error) {
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
	return w.conn.bulkJS.PublishMsgAsync(m, jetstream.WithRetryAttempts(0), jetstream.WithStallWait(publishTimeout))
}

// settle waits for the acks, oldest first, until Close.
func (w *LogWriter) settle() {
	defer close(w.settled)
	for s := range w.inFlight {
		if seq, err := s.wait(); err == nil {
			w.done(s.chunk, seq)
		} else {
			w.recover(s)
		}
		<-w.slots
	}
}

// recover stores a chunk whose publish failed, and all that were sent after it. It first lets everything in flight come to its
// end, since only then is it known where the stored output stops; meanwhile nothing new is published.
func (w *LogWriter) recover(first *sent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	chunks := []*outChunk{first.chunk}
	for len(w.inFlight) > 0 {
		s := <-w.inFlight
		// Whether it was stored is read from LOG: an ack may be lost as well as a chunk.
		_, _ = s.wait()
		chunks = append(chunks, s.chunk)
		<-w.slots
	}
	if w.failed == nil {
		w.failed = w.resend(chunks)
	}
}

// resend stores chunks one at a time, passing over those that LOG has already.
func (w *LogWriter) resend(chunks []*outChunk) error {
	var cause error
	for _, k := range chunks {
		policy := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(storePatience))
		err := backoff.Retry(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
			defer cancel()
			seq, err := w.storedAt(ctx, k)
			if err == nil && seq == 0 {
				var future jetstream.PubAckFuture
				if future, err = w.publish(k); err == nil {
					seq, err = (&sent{chunk: k, future: future}).wait()
				}
			}
			if err != nil {
				cause = wrap(err, "store output")
				return cause
			}
			w.done(k, seq)
			return nil
		}, policy)
		if err != nil {
			return cause
		}
	}
	return nil
}

// storedAt is the sequence under which LOG has this chunk, or 0. Chunks of a stream are stored in order, so that the last
// one tells.
func (w *LogWriter) storedAt(ctx context.Context, k *outChunk) (uint64, error) {
	msgs, err := w.conn.directGet(ctx, w.conn.names.log, directRequest{MultiLast: []string{w.conn.Subjects.Log(w.ref.Tenant, w.ref.Thread, w.ref.Process, k.stream)}})
	if err != nil || len(msgs) == 0 {
		return 0, err
	}
	last, ok := w.conn.Subjects.chunkOf(msgs[0].seq, msgs[0].subject, msgs[0].header, msgs[0].data)
	if ok && last.Offset >= k.offset {
		return last.Seq, nil
	}
	return 0, nil
}

// wait blocks for a chunk's ack.
func (s *sent) wait() (uint64, error) {
	if s.err != nil {
		return 0, s.err
	}
	t := time.NewTimer(publishTimeout)
	defer t.Stop()
	select {
	case ack := <-s.future.Ok():
		return ack.Sequence, nil
	case err := <-s.future.Err():
		return 0, err
	case <-t.C:
		return 0, context.DeadlineExceeded
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
		return nil, nil
	}
	w.send()
	w.mu.Lock()
	if w.timer != nil {
		w.timer.Stop() // one that has fired already finds nothing to send
	}
	close(w.inFlight)
	w.mu.Unlock()
	<-w.settled
	if w.rng.Chunks == 0 {
		return nil, w.failed
	}
	return &w.rng, w.failed
}
