package link

import (
	"errors"
	"io"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

// read delivers every frame to its process, until the connection ends or the supervisor violates the protocol.
func (l *Link) read(r *wire.Reader) {
	defer close(l.done)
	var buf []byte
	for {
		t, n, err := r.Next()
		switch {
		case err != nil:
		case t == wire.TypeOutput:
			err = l.output(r, n)
		default:
			if cap(buf) < n {
				buf = make([]byte, max(n, 512))
			}
			if err = r.Payload(buf[:n]); err == nil {
				err = l.handle(t, buf[:n])
			}
		}
		if err != nil {
			l.end(err)
			return
		}
	}
}

// end reports every remaining process as lost, and answers every remaining signal: a later one finds the connection closed.
func (l *Link) end(err error) {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	err = errors.Join(err, l.conn.Close())
	l.sockets.close()
	l.mu.Lock()
	l.ended, l.err = true, err
	procs := l.procs
	l.procs = nil
	for _, result := range l.signals {
		result <- wire.SignalGone
	}
	clear(l.signals)
	l.mu.Unlock()
	for _, p := range procs {
		p.lose(err)
	}
}

// output reads a piece into the memory that Read returns, without a copy.
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
	piece := l.newPiece(n - wire.OutputHead)
	if err := r.Payload(piece.data); err != nil {
		return err
	}
	return p.queue(m.Stream, m.Offset, piece)
}

// minPooled is the size in bytes from which the memory of a piece is pooled.
const minPooled = 32 << 10

func (l *Link) newPiece(n int) piece {
	if n < minPooled {
		return piece{data: make([]byte, n)}
	}
	b := l.pool.Get().(*[]byte)
	return piece{data: (*b)[:n], pooled: b}
}

func (l *Link) recycle(p piece) {
	if p.pooled != nil {
		l.pool.Put(p.pooled)
	}
}

// handle delivers any frame but Output. A message for an unknown process does nothing.
func (l *Link) handle(t wire.Type, b []byte) error {
	m, err := wire.Parse(t, b)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *wire.Spawned:
		if p := l.find(m.Handle); p != nil {
			return p.spawned(m)
		}
	case *wire.Failed:
		if p := l.find(m.Handle); p != nil {
			l.remove(p)
			return p.fail(startError(m))
		}
	case *wire.StdinTaken:
		if p := l.find(m.Handle); p != nil {
			p.stdinTaken(m)
		}
	case *wire.Signaled:
		l.signaled(m.Seq, m.Result)
	case *wire.Exit:
		if p := l.find(m.Handle); p != nil {
			l.remove(p)
			p.end(m)
			if p.abandoned.Load() {
				_ = p.Release() // it fails when the supervisor is gone, and the process with it
			}
		}
	case *wire.Connected:
		return l.connected(m)
	case *wire.Listed:
		return l.listed(m)
	default:
		return wire.ErrOrder
	}
	return nil
}
