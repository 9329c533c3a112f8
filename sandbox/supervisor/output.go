package supervisor

import (
	"os"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

const (
	// firstBuffer is a stream's buffer until a read fills it: most processes print little.
	firstBuffer = 4 << 10
	// growth reaches the largest buffer after two full reads.
	growth = 8
	// largePipe is the pipe's size from then on: with 64 KiB the writer and the reader take turns, with 1 MiB they overlap.
	largePipe = 1 << 20
	// drainWait is how long a pipe may stay open once the tree is dead: a process outside the tree has its other end.
	drainWait = 500 * time.Millisecond
	// drainLimit is how many bytes are read once the tree is dead: a full pipe, and a piece that was being read then. More
	// can only come from outside the tree.
	drainLimit = largePipe + 2*wire.MaxOutput
	// mergeBelow is the size of frames, in bytes, below which the next frame joins their piece. It keeps the list of pieces
	// short when a process prints a byte at a time.
	mergeBelow = 16 << 10
)

// stream is one output of one process. Its pump is the only reader of the pipe.
//
//	acked ······ retained, may be sent again ······ read ───── window ─────┤
type stream struct {
	p    *process
	kind byte
	file *os.File
	fd   int

	// sending is held while frames are written, so that a new connection gets the retained ones before new ones.
	sending sync.Mutex
	conn    *conn

	mu       sync.Mutex
	room     sync.Cond
	read     int64
	acked    int64
	draining bool  // the tree is dead: read the rest of the pipe, and wait for no ack
	drained  int64 // bytes read since
	done     bool
	retained []piece   // unacked pieces; empty unless the process is retained
	size     int       // bytes of the retained frames: with very short pieces, far more than the output in them
	current  *buffer   // the pump reads into it
	free     []*buffer // hold no piece
}

// buffer holds encoded frames one after another.
type buffer struct {
	b    []byte
	used int
	live int // retained pieces in it
}

// piece is one output frame, or several consecutive ones in one buffer.
type piece struct {
	in     *buffer
	frames []byte
	end    int64 // offset of the stream after it
}

// open begins a stream; with a nil file it is empty.
func (s *stream) open(p *process, kind byte, f *os.File, fd int) {
	s.p, s.kind, s.file, s.fd, s.conn = p, kind, f, fd, p.conn
	s.room.L = &s.mu
	s.done = f == nil
}

// pump moves output from the pipe to the connection until the pipe's end.
func (s *stream) pump() {
	size := firstBuffer
	for {
		n := s.wait()
		if n == 0 {
			break
		}
		b := s.buffer(size)
		at := b.b[b.used:]
		n = min(n, len(at)-wire.OutputFrame)
		got, err := s.take(at[wire.OutputFrame : wire.OutputFrame+n])
		if got == 0 || err != nil {
			break
		}
		s.push(b, at[:wire.OutputFrame+got], got)
		if got == n && size < wire.MaxOutput {
			if size = min(size*growth, wire.MaxOutput); size == wire.MaxOutput {
				growPipe(s.fd)
			}
		}
	}
	s.mu.Lock()
	s.done = true
	s.current, s.free = nil, nil
	s.mu.Unlock()
	_ = s.file.Close()
}

// wait blocks while the window is full, and returns how many bytes may be read; 0 at the end of draining.
func (s *stream) wait() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.draining {
			return min(wire.MaxOutput, int(max(0, drainLimit-s.drained)))
		}
		if free := wire.Window - max(s.read-s.acked, int64(s.size)); free > 0 {
			return min(wire.MaxOutput, int(free))
		}
		s.room.Wait()
	}
}

// take reads. After the tree's death and drainWait, it reads only what is already in the pipe.
func (s *stream) take(p []byte) (int, error) {
	n, err := s.file.Read(p)
	if !os.IsTimeout(err) {
		return n, err
	}
	return read(s.fd, p)
}

// buffer returns the buffer for the next frame: the current one while it has room or holds no piece, else a free or new one.
func (s *stream) buffer(size int) *buffer {
	s.mu.Lock()
	defer s.mu.Unlock()
	full := size + wire.OutputFrame
	if b := s.current; b != nil && len(b.b) >= full {
		if b.live == 0 {
			b.used = 0
		}
		if len(b.b)-b.used >= wire.OutputFrame+size/2 {
			return b
		}
	}
	s.current = nil
	for n := len(s.free); n > 0 && s.current == nil; n = len(s.free) {
		if b := s.free[n-1]; len(b.b) >= full {
			b.used = 0
			s.current = b
		}
		s.free = s.free[:n-1]
	}
	if s.current == nil {
		s.current = &buffer{b: make([]byte, full)}
	}
	return s.current
}

// push sends a frame whose payload is in place, and retains it if the process is retained.
func (s *stream) push(b *buffer, frame []byte, n int) {
	s.mu.Lock()
	head := wire.Output{Handle: s.p.handle, Stream: s.kind, Offset: s.read}
	head.Put(frame, n)
	s.mu.Unlock()
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	s.read += int64(n)
	if s.draining {
		s.drained += int64(n)
	}
	if s.p.retain {
		s.retain(b, frame)
	}
	s.mu.Unlock()
	s.conn.writeOutput(frame)
}

// retain keeps a frame that is at the end of b. mu is held.
func (s *stream) retain(b *buffer, frame []byte) {
	s.size += len(frame)
	if n := len(s.retained); n > 0 && s.retained[n-1].in == b && len(s.retained[n-1].frames) < mergeBelow {
		last := &s.retained[n-1]
		last.frames = b.b[b.used-len(last.frames) : b.used+len(frame)]
		last.end = s.read
	} else {
		s.retained = append(s.retained, piece{in: b, frames: frame, end: s.read})
		b.live++
	}
	b.used += len(frame)
}

// ack drops output that is stored elsewhere. An offset beyond the output so far counts as its end.
func (s *stream) ack(offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if offset = min(offset, s.read); offset <= s.acked {
		return
	}
	s.acked = offset
	n := 0
	for ; n < len(s.retained) && s.retained[n].end <= offset; n++ {
		b := s.retained[n].in
		s.size -= len(s.retained[n].frames)
		if b.live--; b.live == 0 && !s.done && b != s.current && len(s.free) < wire.Window/wire.MaxOutput {
			s.free = append(s.free, b)
		}
	}
	s.retained = append(s.retained[:0], s.retained[n:]...)
	s.room.Signal()
}

// resume sends the retained output after offset to another connection, and later output too.
func (s *stream) resume(c *conn, offset int64) {
	s.ack(offset)
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	frames := append([]piece(nil), s.retained...)
	s.mu.Unlock()
	s.conn = c
	for _, f := range frames {
		c.write(f.frames)
	}
}

// drain ends the stream after the rest of its pipe: the tree is dead.
func (s *stream) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done || s.draining {
		return
	}
	s.draining = true
	_ = s.file.SetReadDeadline(time.Now().Add(drainWait))
	s.room.Signal()
}

func (s *stream) offset() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read
}

func (s *stream) ackedOffset() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked
}
