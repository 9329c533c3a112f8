package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// What a process reads from its standard input.
var stdinTests = []test{
	{"Large", func(t *testing.T, f *fixture) {
		data := pseudoRandom(8 << 20)
		r := f.start(t, sandbox.Command{Path: "cat", Stdin: true})
		written := make(chan error, 1)
		go func() {
			err := r.WriteStdin(f.ctx, data)
			written <- errors.Join(err, r.CloseStdin())
		}()
		r.wantExit(t, schemas.ReasonExited, 0)
		testkit.Must(t, <-written)
		wantBytes(t, "stdout", r.stdout.Bytes(), data)
	}},
	{"InOrder", func(t *testing.T, f *fixture) {
		data := pseudoRandom(200000)
		r := f.start(t, sandbox.Command{Path: "cat", Stdin: true})
		written := make(chan error, 1)
		go func() {
			var err error
			for rest := data; len(rest) > 0 && err == nil; {
				n := min(len(rest), 777)
				err = r.WriteStdin(f.ctx, rest[:n])
				rest = rest[n:]
			}
			written <- errors.Join(err, r.CloseStdin(), r.CloseStdin())
		}()
		r.wantExit(t, schemas.ReasonExited, 0)
		testkit.Must(t, <-written)
		wantBytes(t, "stdout", r.stdout.Bytes(), data)
	}},
	{"NotRead", func(t *testing.T, f *fixture) {
		r := f.sh(t, "echo never")
		r.readAll(t)
		s := f.start(t, sandbox.Command{Path: "sleep", Args: []string{"300"}, Stdin: true})
		ctx, cancel := context.WithTimeout(f.ctx, blockedAfter)
		defer cancel()
		if err := s.WriteStdin(ctx, make([]byte, 4<<20)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("write 4 MiB to a process that does not read: error = %v, want context.DeadlineExceeded", err)
		}
		blocked := make(chan error, 1)
		go func() { blocked <- s.WriteStdin(f.ctx, make([]byte, 4<<20)) }()
		f.output(t, "true") // other processes are not blocked
		testkit.Must(t, s.CloseStdin())
		testkit.Must(t, s.Kill(0))
		if err := <-blocked; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("write to a killed process: error = %v, want io.ErrClosedPipe", err)
		}
		s.wantExit(t, schemas.ReasonKilled, 137)
	}},
	{"SlowReader", func(t *testing.T, f *fixture) {
		r := f.start(t, sandbox.Command{Path: "sh", Args: []string{"-c", "while read x; do echo $x; done"}, Stdin: true})
		lines := bytes.Repeat([]byte("abcdefghijklmnopqrstuvwxyz\n"), 5000)
		written := make(chan error, 1)
		go func() { written <- errors.Join(r.WriteStdin(f.ctx, lines), r.CloseStdin()) }()
		r.wantExit(t, schemas.ReasonExited, 0)
		testkit.Must(t, <-written)
		wantBytes(t, "stdout", r.stdout.Bytes(), lines)
	}},
	{"ClosedByProcess", func(t *testing.T, f *fixture) {
		r := f.start(t, sandbox.Command{Path: "sh", Args: []string{"-c", "exec <&-; echo closed; exec sleep 300"}, Stdin: true})
		r.readUntil(t, "closed")
		if err := r.WriteStdin(f.ctx, make([]byte, 1<<20)); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("write to a process that closed its stdin: error = %v, want io.ErrClosedPipe", err)
		}
		r.kill(t)
		if err := r.WriteStdin(f.ctx, []byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("write to a process that ended: error = %v, want io.ErrClosedPipe", err)
		}
		if err := r.CloseStdin(); err != nil {
			t.Errorf("close stdin after the end: error = %v, want none", err)
		}
	}},
	{"EndsEarly", func(t *testing.T, f *fixture) {
		r := f.start(t, sandbox.Command{Path: "head", Args: []string{"-c", "1"}, Stdin: true})
		if err := r.WriteStdin(f.ctx, pseudoRandom(4<<20)); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("write 4 MiB to a process that reads one byte: error = %v, want io.ErrClosedPipe", err)
		}
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
		r := f.start(t, sandbox.Command{Path: "cat"})
		r.wantExit(t, schemas.ReasonExited, 0)
		s := f.start(t, sandbox.Command{Path: "sleep", Args: []string{"300"}})
		if err := s.WriteStdin(f.ctx, []byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("write to a process started without stdin: error = %v, want io.ErrClosedPipe", err)
		}
		testkit.Must(t, s.CloseStdin())
		s.kill(t)
	}},
}
