package link

import (
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
	"github.com/sluice-dev/sluice/schemas"
)

// What the reading goroutine does to a process.

func (p *Process) isStarted() bool {
	select {
	case <-p.started:
		return true
	default:
		return false
	}
}

func (p *Process) spawned(m *wire.Spawned) error {
	if p.isStarted() {
		return wire.ErrOrder
	}
	p.pid, p.begun = int(m.PID), time.Unix(0, m.Started)
	close(p.started)
	return nil
}

func (p *Process) fail(err error) error {
	if p.isStarted() {
		return wire.ErrOrder
	}
	p.failure = err
	close(p.started)
	return nil
}

// queue adds a piece for Read. After Resume a piece may begin before what was asked for, and is cut.
func (p *Process) queue(kind byte, offset int64, next piece) error {
	i := kind - wire.Stdout
	p.mu.Lock()
	defer p.mu.Unlock()
	end := offset + int64(len(next.data))
	if offset > p.got[i] || end-p.told[i] > wire.Window+wire.Tail {
		return wire.ErrOrder
	}
	if end <= p.got[i] {
		p.link.recycle(next)
		return nil
	}
	next.data = next.data[p.got[i]-offset:]
	next.stream, next.offset = schemas.Stdout, p.got[i]
	if kind == wire.Stderr {
		next.stream = schemas.Stderr
	}
	p.got[i] = end
	// A process that prints a byte at a time, and is read slowly, would cost far more in pieces than in bytes.
	if n := len(p.pieces); n > 0 && p.pieces[n-1].joins(&next) {
		p.pieces[n-1].data = append(p.pieces[n-1].data, next.data...)
		return nil
	}
	p.pieces = append(p.pieces, next)
	select {
	case p.ready <- struct{}{}:
	default:
	}
	return nil
}

// joins says whether next can be part of the same piece: of the same stream, and both small.
func (p *piece) joins(next *piece) bool {
	return p.stream == next.stream && p.pool == nil && next.pool == nil && len(p.data)+len(next.data) <= pooled
}

func (p *Process) end(m *wire.Exit) {
	e := sandbox.Exit{
		Reason: schemas.ReasonExited, Code: int(m.Code), Signal: sandbox.Signal(m.Signal),
		Stdout: m.Stdout, Stderr: m.Stderr,
		UserTime: time.Duration(m.UserTime), SystemTime: time.Duration(m.SystemTime), MaxRSS: m.MaxRSS,
		Killed: int(m.Killed), Started: time.Unix(0, m.Started), Ended: time.Unix(0, m.Ended),
	}
	if m.Signal != 0 {
		e.Code = schemas.ExitSignalBase + int(m.Signal)
	}
	switch m.Reason {
	case wire.ReasonKilled:
		e.Reason = schemas.ReasonKilled
	case wire.ReasonOOM:
		e.Reason = schemas.ReasonOOM
	case wire.ReasonTimedOut:
		e.Reason, e.Code = schemas.ReasonTimedOut, schemas.ExitTimedOut
	}
	p.exit = e
	close(p.ended)
}

// lose ends a process whose supervisor is gone.
func (p *Process) lose(err error) {
	if !p.isStarted() {
		p.failure = schemas.Errorf(schemas.CodeUnavailable, "the sandbox ended while the command was being started: %w", err)
		close(p.started)
	}
	p.mu.Lock()
	p.exit = sandbox.Exit{
		Reason: schemas.ReasonLost, Code: -1, Stdout: p.got[0], Stderr: p.got[1], Started: p.begun, Ended: time.Now(),
	}
	p.mu.Unlock()
	close(p.ended)
}
