package events

import (
	"bytes"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// repeatPause is the shortest time between two repetitions: a request for one takes a few bytes, and its answer a window.
const repeatPause = time.Second

// tunnelSpare is how many buffers a direction keeps for later.
const tunnelSpare = 4

// tunnelNumbers are what the headers of a message count, in bytes. One that is not there is negative.
type tunnelNumbers struct {
	offset int64 // before the bytes of the message; of an acknowledgment, what was sent
	ack    int64
	repeat int64
}

// readTunnelNumbers reads headers of the other end. Errors: invalid_argument.
func readTunnelNumbers(h nats.Header) (tunnelNumbers, error) {
	var n tunnelNumbers
	for name, to := range map[string]*int64{headerOffset: &n.offset, headerAck: &n.ack, headerRepeat: &n.repeat} {
		*to = -1
		if v := h.Get(name); v != "" {
			var err error
			if *to, err = strconv.ParseInt(v, 10, 64); err != nil || *to < 0 {
				return n, schemas.Errorf(schemas.CodeInvalidArgument, "the other end sent the header %s: %.50q", name, v)
			}
		}
	}
	return n, nil
}

// outgoing is the sending end of one direction of a tunnel. It keeps what is not acknowledged, and sends it again when asked.
type outgoing struct {
	publish      func(nats.Header, []byte)
	window       func() int64  // bytes that may be on their way
	acknowledged chan struct{} // has a value after an acknowledgment

	mu          sync.Mutex // also held while it sends: the other end takes bytes in order
	sent, acked int64
	pieces      []piece  // on their way
	spare       [][]byte // of pieces that have arrived
	repeated    time.Time
}

// piece is what one message carries.
type piece struct {
	offset int64
	data   []byte
	end    bool
}

// next is the offset after the piece.
func (p piece) next() int64 {
	if p.end {
		return p.offset + int64(len(p.data)) + 1
	}
	return p.offset + int64(len(p.data))
}

// sendFrom sends the first n bytes of buf, which has room for a chunk, and returns a buffer for the next ones.
func (o *outgoing) sendFrom(buf []byte, n int) []byte {
	if n < tunnelChunk/2 {
		o.send(bytes.Clone(buf[:n]), false)
		return buf
	}
	o.send(buf[:n], false)
	o.mu.Lock()
	defer o.mu.Unlock()
	last := len(o.spare) - 1
	if last < 0 {
		return make([]byte, tunnelChunk)
	}
	next := o.spare[last]
	o.spare = o.spare[:last]
	return next
}

// send sends bytes, which the caller leaves to it, or the end.
func (o *outgoing) send(p []byte, end bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one := piece{o.sent, p, end}
	o.sent = one.next()
	o.pieces = append(o.pieces, one)
	o.publishPiece(one)
}

func (o *outgoing) publishPiece(p piece) {
	h := nats.Header{headerOffset: {strconv.FormatInt(p.offset, 10)}}
	if p.end {
		h[headerStdinEnd] = []string{"true"}
	}
	o.publish(h, p.data)
}

// ping sends h, with how much was sent before.
func (o *outgoing) ping(h nats.Header) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h[headerOffset] = []string{strconv.FormatInt(o.sent, 10)}
	o.publish(h, nil)
}

// acknowledge takes what the other end has passed on; less than before says nothing new. Errors: invalid_argument for more than was sent.
func (o *outgoing) acknowledge(ack int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ack > o.sent {
		return schemas.Errorf(schemas.CodeInvalidArgument, "the other end acknowledges what was not sent")
	}
	o.acked = max(o.acked, ack)
	for len(o.pieces) > 0 && o.pieces[0].next() <= o.acked {
		if p := o.pieces[0].data; cap(p) == tunnelChunk && len(o.spare) < tunnelSpare {
			o.spare = append(o.spare, p[:tunnelChunk])
		}
		o.pieces[0].data = nil // the array keeps the piece
		o.pieces = o.pieces[1:]
	}
	select {
	case o.acknowledged <- struct{}{}:
	default: // its reader looks again in any case
	}
	return nil
}

// repeat sends what begins at an offset or after it again, nothing for a negative one. It does nothing within repeatPause of the last time:
// the other end asks again.
func (o *outgoing) repeat(offset int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if offset < 0 || offset >= o.sent || time.Since(o.repeated) < repeatPause {
		return
	}
	o.repeated = time.Now()
	for _, p := range o.pieces {
		if p.offset >= offset {
			o.publishPiece(p)
		}
	}
}

// hasRoom reports that one more piece may be on its way.
func (o *outgoing) hasRoom() bool {
	window := o.window()
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sent-o.acked <= window-tunnelChunk && len(o.pieces) < tunnelMessages
}

// isEmpty reports that all that was sent is acknowledged.
func (o *outgoing) isEmpty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.acked == o.sent
}

// incoming is the receiving end of one direction of a tunnel. arrive and expect are for one goroutine.
type incoming struct {
	queue    chan *nats.Msg // in order, and without holes
	queued   atomic.Int64   // bytes in queue
	arrived  atomic.Int64   // bytes that came into queue
	passedOn atomic.Int64   // bytes of them that were written
	missing  atomic.Int64   // since when bytes are missing, in nanoseconds since 1970; 0 while none are

	askFrom func(offset int64) // asks for what comes from an offset on
	asked   int64              // the offset of the last such request; -1 before
}

// arrive takes a message with bytes. Errors: invalid_argument without an offset, too_large beyond the window.
func (i *incoming) arrive(m *nats.Msg, offset int64) error {
	arrived := i.arrived.Load()
	switch {
	case offset < 0:
		return schemas.Errorf(schemas.CodeInvalidArgument, "the other end sends bytes without their offset")
	case offset < arrived:
		return nil // it came twice
	case offset > arrived:
		if i.asked != arrived {
			i.ask()
		}
		return nil
	}
	i.missing.Store(0)
	next := piece{offset, m.Data, m.Header.Get(headerStdinEnd) != ""}.next()
	if i.queued.Add(int64(len(m.Data))) > 2*tunnelWindow {
		return schemas.Errorf(schemas.CodeTooLarge, "the other end sends more than its window")
	}
	select {
	case i.queue <- m:
	default:
		return schemas.Errorf(schemas.CodeTooLarge, "the other end sends more messages than its window")
	}
	i.arrived.Store(next)
	return nil
}

// expect takes how much the other end has sent, negative when it does not say so: an acknowledgment does not.
func (i *incoming) expect(sent int64) {
	switch {
	case sent > i.arrived.Load():
		i.ask()
	case sent >= 0:
		i.missing.Store(0)
	}
}

// ask asks for what is missing.
func (i *incoming) ask() {
	i.missing.CompareAndSwap(0, time.Now().UnixNano())
	i.asked = i.arrived.Load()
	i.askFrom(i.asked)
}

// missingFor is how long bytes have been missing, 0 while none are.
func (i *incoming) missingFor() time.Duration {
	if since := i.missing.Load(); since != 0 {
		return time.Since(time.Unix(0, since))
	}
	return 0
}
