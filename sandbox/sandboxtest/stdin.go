package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// What a process reads from its standard input.
var stdinTests = []test{
	{"Large", func(t *testing.T, f *fixture) {
		f.start(t, sandbox.Command{Path: "cat", Stdin: true}).wantEcho(t, pseudoRandom(8<<20), 8<<20)
	}},
	{"InOrder", func(t *testing.T, f *fixture) {
		f.start(t, sandbox.Command{Path: "cat", Stdin: true}).wantEcho(t, pseudoRandom(200000), 777)
	}},
	{"NotRead", func(t *testing.T, f *fixture) {
		r := f.sh(t, "echo never")
		r.readAll(t)
		s := f.start(t, sandbox.Command{Path: "sleep", Args: []string{"300"}, Stdin: true})
		ctx, cancel := context.WithTimeout(f.ctx, blockedAfter)
		defer cancel()
		wantError(t, "write 4 MiB to a process that does not read", s.WriteStdin(ctx, make([]byte, 4<<20)), context.DeadlineExceeded)
		blocked := make(chan error, 1)
		go func() { blocked <- s.WriteStdin(f.ctx, make([]byte, 4<<20)) }()
		f.output(t, "true") // other processes are not blocked
		testkit.Must(t, s.CloseStdin())
		testkit.Must(t, s.Kill(0))
		wantError(t, "write to a killed process", <-blocked, io.ErrClosedPipe)
		s.wantExit(t, schemas.ReasonKilled, 137)
	}},
	{"SlowReader", func(t *testing.T, f *fixture) {
		r := f.start(t, sandbox.Command{Path: "sh", Args: []string{"-c", "while read x; do echo $x; done"}, Stdin: true})
		lines := bytes.Repeat([]byte("abcdefghijklmnopqrstuvwxyz\n"), 5000)
		r.wantEcho(t, lines, len(lines))
	}},
	{"ClosedByProcess", func(t *testing.T, f *fixture) {
		r := f.start(t, sandbox.Command{Path: "sh", Args: []string{"-c", "exec <&-; echo closed; exec sleep 300"}, Stdin: true})
		r.readUntil(t, "closed")
		wantError(t, "write to a process that closed its stdin", r.WriteStdin(f.ctx, make([]byte, 1<<20)), io.ErrClosedPipe)
		r.kill(t)
		wantError(t, "write to a process that ended", r.WriteStdin(f.ctx, []byte("x")), io.ErrClosedPipe)
		if err := r.CloseStdin(); err != nil {
			t.Errorf("close stdin after the end: error = %v, want none", err)
		}
	}},
	{"EndsEarly", func(t *testing.T, f *fixture) {
		r := f.start(t, sandbox.Command{Path: "head", Args: []string{"-c", "1"}, Stdin: true})
		wantError(t, "write 4 MiB to a process that reads one byte", r.WriteStdin(f.ctx, pseudoRandom(4<<20)), io.ErrClosedPipe)
		r.wantExit(t, schemas.ReasonExited, 0)
	}},
	{"TakenByProcessThatEnds", func(t *testing.T, f *fixture) {
		// The end of a process must not overtake the ack of what it read.
		for range 50 {
			r := f.start(t, sandbox.Command{Path: "sh", Args: []string{"-c", "read x"}, Stdin: true})
			testkit.Must(t, r.WriteStdin(f.ctx, []byte("\n")))
			r.wantExit(t, schemas.ReasonExited, 0)
		}
	}},
	{"None", func(t *testing.T, f *fixture) {
		f.run(t, sandbox.Command{Path: "cat"})
		s := f.start(t, sandbox.Command{Path: "sleep", Args: []string{"300"}})
		wantError(t, "write to a process started without stdin", s.WriteStdin(f.ctx, []byte("x")), io.ErrClosedPipe)
		testkit.Must(t, s.CloseStdin())
		s.kill(t)
	}},
}

// wantEcho writes data in pieces of this size to a process that prints what it reads, until the end of its input.
func (r *testProcess) wantEcho(t *testing.T, data []byte, size int) {
	t.Helper()
	written := make(chan error, 1)
	go func() {
		var err error
		for piece := range slices.Chunk(data, size) {
			err = errors.Join(err, r.WriteStdin(r.ctx, piece))
		}
		written <- errors.Join(err, r.CloseStdin(), r.CloseStdin())
	}()
	r.wantExit(t, schemas.ReasonExited, 0)
	testkit.Must(t, <-written)
	wantBytes(t, "stdout", r.stdout.Bytes(), data)
}
