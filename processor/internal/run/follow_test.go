package run

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func TestCaptureOfAGigabyteHoldsTheLimit(t *testing.T) {
	piece := make([]byte, 256<<10)
	f := &follower{}
	out := f.newCapture(&Run{exec: &schemas.Exec{}})
	for i := range int64(4096) {
		out.of(schemas.Stdout).add(i*int64(len(piece)), piece)
	}
	if got := len(out.stdout.kept); got != schemas.MaxRecordOutput {
		t.Errorf("kept %d bytes, want %d", got, schemas.MaxRecordOutput)
	}
	if got := cap(out.stdout.kept); got > 2*schemas.MaxRecordOutput {
		t.Errorf("%d bytes are allocated, want at most %d", got, 2*schemas.MaxRecordOutput)
	}
	if out.stderr.kept != nil {
		t.Errorf("kept %d bytes of stderr, want none", len(out.stderr.kept))
	}
}

// printer is a process that prints one piece and ends.
type printer struct {
	sandbox.Process
	printed, killed bool
	acked           int64
}

func (p *printer) Read(context.Context) (sandbox.Output, error) {
	if p.printed {
		return sandbox.Output{}, io.EOF
	}
	p.printed = true
	return sandbox.Output{Stream: schemas.Stdout, Data: []byte("hello")}, nil
}

func (p *printer) Ack(_ schemas.Stream, offset int64) error {
	p.acked = offset
	return nil
}

func (p *printer) Kill(time.Duration) error {
	p.killed = true
	return nil
}

// writes counts the pieces that are stored.
type writes int

func (w *writes) Write(schemas.Stream, int64, []byte) error {
	*w++
	return nil
}

func (w *writes) Close() (*schemas.LogRange, error) { return nil, nil }

func TestFencedWorkerStoresNoOutput(t *testing.T) {
	var log writes
	p := (&publisher.Publisher{Worker: "w", LeaseHeld: func() bool { return false }})
	f := New(Config{
		Publisher: p, Background: work.NewBackground(),
	}).follower
	open := func(func(schemas.Stream, int64), func(schemas.Stream, int64, int64)) Output { return &log }
	proc, run := &printer{}, &Run{thread: &session.Thread{}, exec: &schemas.Exec{}}
	run.started(proc, nil)
	err := f.pump(run, proc, f.newCapture(run), open, &schemas.Result{})
	if !errors.Is(err, schemas.ErrLost) {
		t.Errorf("pump: %v, want lost", err)
	}
	if log != 0 {
		t.Errorf("stored %d pieces, want none", log)
	}
	// Promises 15: the process and its output are the next incarnation's, or Fence ends them.
	if proc.killed || proc.acked != 0 {
		t.Errorf("killed = %v, acked %d; want false and 0: the sandbox keeps both", proc.killed, proc.acked)
	}
}
