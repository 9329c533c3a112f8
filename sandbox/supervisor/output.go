package supervisor

import (
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

const (
	// firstBuffer is a stream's buffer until a read fills it: most processes print little, and idle ones should cost little.
	firstBuffer = 4 << 10
	// growth takes two full reads to the largest buffer.
	growth = 8
	// bigPipe is the pipe's size from then on: with 64 KiB the writer and the reader take turns, with 1 MiB they overlap.
	bigPipe = 1 << 20
	// tailWait is how long a pipe may stay open once the tree is dead: somebody outside holds its other end.
	tailWait = 500 * time.Millisecond
	// tailMost is how much is read once the tree is dead: what a pipe can hold, and a piece that was on its way then. More
	// can only come from outside.
	tailMost = bigPipe + 2*wire.MaxOutput
	// mergeBelow keeps the list of what is held short where a process prints a byte at a time.
	mergeBelow = 16 << 10
)

// stream is one output of one process. Its pump is the only reader of the pipe.
//
//	acked ······ held, may be sent again ······ read ───── window ─────┤
type stream struct {
	p    *process
	kind byte
	file *os.File
	fd   int

	// sending is held while frames go out, so that a connection that takes over gets the held ones before new ones.
	sending sync.Mutex
	conn    *conn

	mu     sync.Mutex
	room   sync.Cond
	read   int64
	acked  int64
	ending bool  // the tree is dead: read what is there, and wait for no ack
	tail   int64 // bytes read since
	done   bool
	held   []piece   // what may have to be sent again; empty unless the process is kept
	bytes  int       // of the frames held: with very short pieces they are far more than the output in them
	filled *buffer   // the one the pump reads into
	spare  []*buffer // held nothing any more
}

// buffer holds frames one after another, as they go over the wire.
type buffer struct {
	b    []byte
	used int
	live int // pieces held in it
}

// piece is one output frame, or several that follow each other in one buffer.
type piece struct {
	in     *buffer
	frames []byte
	end    int64 // offset of the stream after it
}

func (s *stream) open(p *process, kind byte, f *os.File, fd int) {
	s.p, s.kind, s.file, s.fd, s.conn = p, kind, f, fd, p.conn
	s.room.L = &s.mu
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
	s.filled, s.spare = nil, nil
	s.mu.Unlock()
	_ = s.file.Close()
}

// wait blocks while the window is full, and gives how much may be read; 0 when nothing more should be.
func (s *stream) wait() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.ending {
			return min(wire.MaxOutput, int(max(0, tailMost-s.tail)))
		}
		if free := wire.Window - max(s.read-s.acked, int64(s.bytes)); free > 0 {
			return min(wire.MaxOutput, int(free))
		}
		s.room.Wait()
	}
}

// take reads. After the tree's death and tailWait, it reads only what is already in the pipe.
func (s *stream) take(p []byte) (int, error) {
	n, err := s.file.Read(p)
	if !os.IsTimeout(err) {
		return n, err
	}
	for {
		n, err := syscall.Read(s.fd, p)
		if err != syscall.EINTR {
			return n, err
		}
	}
}

// buffer is where the next frame goes: the same one while it has room, or when nothing in it is held.
func (s *stream) buffer(size int) *buffer {
	s.mu.Lock()
	defer s.mu.Unlock()
	full := size + wire.OutputFrame
	if b := s.filled; b != nil && len(b.b) >= full {
		if b.live == 0 {
			b.used = 0
		}
		if len(b.b)-b.used >= wire.OutputFrame+size/2 {
			return b
		}
	}
	s.filled = nil
	for n := len(s.spare); n > 0 && s.filled == nil; n = len(s.spare) {
		if b := s.spare[n-1]; len(b.b) >= full {
			b.used = 0
			s.filled = b
		}
		s.spare = s.spare[:n-1]
	}
	if s.filled == nil {
		s.filled = &buffer{b: make([]byte, full)}
	}
	return s.filled
}

// push sends a frame whose payload is in place, and holds it where it may be needed again.
func (s *stream) push(b *buffer, frame []byte, n int) {
	s.mu.Lock()
	head := wire.Output{Handle: s.p.handle, Stream: s.kind, Offset: s.read}
	head.Put(frame, n)
	s.mu.Unlock()
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	s.read += int64(n)
	if s.ending {
		s.tail += int64(n)
	}
	if s.p.keep {
		s.hold(b, frame)
	}
	s.mu.Unlock()
	s.conn.write(frame)
}

// hold keeps a frame that was just put at the end of b. mu is held.
func (s *stream) hold(b *buffer, frame []byte) {
	s.bytes += len(frame)
	if n := len(s.held); n > 0 && s.held[n-1].in == b && len(s.held[n-1].frames) < mergeBelow {
		last := &s.held[n-1]
		last.frames = b.b[b.used-len(last.frames) : b.used+len(frame)]
		last.end = s.read
	} else {
		s.held = append(s.held, piece{in: b, frames: frame, end: s.read})
		b.live++
	}
	b.used += len(frame)
}

// ack frees what is kept safe elsewhere. An offset that was never reached counts as the last one that was.
func (s *stream) ack(offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if offset = min(offset, s.read); offset <= s.acked {
		return
	}
	s.acked = offset
	n := 0
	for ; n < len(s.held) && s.held[n].end <= offset; n++ {
		b := s.held[n].in
		s.bytes -= len(s.held[n].frames)
		if b.live--; b.live == 0 && !s.done && b != s.filled && len(s.spare) < wire.Window/wire.MaxOutput {
			s.spare = append(s.spare, b)
		}
	}
	s.held = append(s.held[:0], s.held[n:]...)
	s.room.Signal()
}

// resume sends the held output after offset to another connection, and the rest to it from then on.
func (s *stream) resume(c *conn, offset int64) {
	s.ack(offset)
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	frames := append([]piece(nil), s.held...)
	s.mu.Unlock()
	s.conn = c
	for _, f := range frames {
		c.write(f.frames)
	}
}

// finish says that the tree is dead: what is in the pipe is all there will be.
func (s *stream) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done || s.ending {
		return
	}
	s.ending = true
	_ = s.file.SetReadDeadline(time.Now().Add(tailWait))
	s.room.Signal()
}

func (s *stream) total() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read
}

func (s *stream) safe() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked
}
