package link

import (
	"errors"
	"io"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

// read hands every frame to its process, until the connection ends or carries what it may not.
func (l *Link) read(r *wire.Reader) {
	defer close(l.done)
	var buf []byte
	var err error
	for err == nil {
		var t wire.Type
		var n int
		if t, n, err = r.Next(); err != nil {
			break
		}
		if t == wire.TypeOutput {
			err = l.output(r, n)
			continue
		}
		if cap(buf) < n {
			buf = make([]byte, max(n, 512))
		}
		if err = r.Payload(buf[:n]); err == nil {
			err = l.frame(t, buf[:n])
		}
	}
	l.end(err)
}

// end tells every process that is left that it is lost.
func (l *Link) end(err error) {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	err = errors.Join(err, l.conn.Close())
	l.mu.Lock()
	l.ended, l.err = true, err
	procs := l.procs
	l.procs = nil
	l.mu.Unlock()
	for _, p := range procs {
		p.lose(err)
	}
}

// output reads a piece into memory of its own, without a copy between.
func (l *Link) output(r *wire.Reader, n int) error {
	if n <= wire.OutputHead || n > wire.OutputHead+wire.MaxOutput {
		return wire.ErrPayload
	}
	var head [wire.OutputHead]byte
	if err := r.Payload(head[:]); err != nil {
		return err
	}
	var m wire.Output
	if err := m.Decode(head[:]); err != nil {
		return err
	}
	p := l.find(m.Handle)
	if p == nil || p.abandoned.Load() {
		return nil // the reader skips the rest of the frame
	}
	piece := l.piece(n - wire.OutputHead)
	if err := r.Payload(piece.data); err != nil {
		return err
	}
	return p.queue(m.Stream, m.Offset, piece)
}

// pooled is the size from which a piece's memory is worth reusing.
const pooled = 32 << 10

func (l *Link) piece(n int) piece {
	if n < pooled {
		return piece{data: make([]byte, n)}
	}
	b := l.pool.Get().(*[]byte)
	return piece{data: (*b)[:n], pool: b}
}

func (l *Link) recycle(p piece) {
	if p.pool != nil {
		l.pool.Put(p.pool)
	}
}

// frame takes any frame but Output.
func (l *Link) frame(t wire.Type, b []byte) error {
	switch t {
	case wire.TypeSpawned:
		var m wire.Spawned
		if err := m.Decode(b); err != nil {
			return err
		}
		if p := l.find(m.Handle); p != nil {
			return p.spawned(&m)
		}
	case wire.TypeFailed:
		var m wire.Failed
		if err := m.Decode(b); err != nil {
			return err
		}
		if p := l.find(m.Handle); p != nil {
			l.remove(p)
			return p.fail(startError(&m))
		}
	case wire.TypeStdinTaken:
		var m wire.StdinTaken
		if err := m.Decode(b); err != nil {
			return err
		}
		if p := l.find(m.Handle); p != nil {
			p.stdinTaken(&m)
		}
	case wire.TypeSignaled:
		var m wire.Signaled
		if err := m.Decode(b); err != nil {
			return err
		}
		l.answer(m.Seq, m.Result)
	case wire.TypeExit:
		var m wire.Exit
		if err := m.Decode(b); err != nil {
			return err
		}
		if p := l.find(m.Handle); p != nil {
			l.remove(p)
			p.end(&m)
			if p.abandoned.Load() {
				_ = p.Release() // it fails where the supervisor is gone, and has forgotten it
			}
		}
	case wire.TypeListed:
		var m wire.Listed
		if err := m.Decode(b); err != nil {
			return err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.listed) == 0 {
			return wire.ErrOrder
		}
		l.listed[0] <- &m
		l.listed = l.listed[1:]
	default:
		return wire.ErrOrder
	}
	return nil
}
