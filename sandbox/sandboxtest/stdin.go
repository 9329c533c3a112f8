package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// What a process reads.
var stdinTests = []test{
	{"Large", func(t *testing.T, b *box) {
		data := random(8 << 20)
		r := b.start(t, sandbox.Command{Path: "cat", Stdin: true})
		written := make(chan error, 1)
		go func() {
			err := r.WriteStdin(b.ctx, data)
			written <- errors.Join(err, r.CloseStdin())
		}()
		r.ends(t, schemas.ReasonExited, 0)
		if err := <-written; err != nil {
			t.Error(err)
		}
		if !bytes.Equal(r.stdout.Bytes(), data) {
			t.Errorf("%d other bytes came out", r.stdout.Len())
		}
	}},
	{"InOrder", func(t *testing.T, b *box) {
		data := random(200000)
		r := b.start(t, sandbox.Command{Path: "cat", Stdin: true})
		written := make(chan error, 1)
		go func() {
			var err error
			for rest := data; len(rest) > 0 && err == nil; {
				n := min(len(rest), 777)
				err = r.WriteStdin(b.ctx, rest[:n])
				rest = rest[n:]
			}
			written <- errors.Join(err, r.CloseStdin(), r.CloseStdin())
		}()
		r.ends(t, schemas.ReasonExited, 0)
		if err := <-written; err != nil {
			t.Error(err)
		}
		if !bytes.Equal(r.stdout.Bytes(), data) {
			t.Errorf("%d other bytes came out", r.stdout.Len())
		}
	}},
	{"NotRead", func(t *testing.T, b *box) {
		r := b.sh(t, "echo never")
		r.finish(t)
		s := b.start(t, sandbox.Command{Path: "sleep", Args: []string{"300"}, Stdin: true})
		ctx, cancel := context.WithTimeout(b.ctx, quiet)
		defer cancel()
		if err := s.WriteStdin(ctx, make([]byte, 4<<20)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("4 MiB to a process that does not read: %v", err)
		}
		blocked := make(chan error, 1)
		go func() { blocked <- s.WriteStdin(b.ctx, make([]byte, 4<<20)) }()
		b.say(t, "true") // the others go on
		if err := s.CloseStdin(); err != nil {
			t.Error(err)
		}
		if err := s.Kill(0); err != nil {
			t.Error(err)
		}
		if err := <-blocked; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("write to a process that was killed: %v", err)
		}
		s.ends(t, schemas.ReasonKilled, 137)
	}},
	{"ReadSlowly", func(t *testing.T, b *box) {
		r := b.start(t, sandbox.Command{Path: "sh", Args: []string{"-c", "while read x; do echo $x; done"}, Stdin: true})
		lines := bytes.Repeat([]byte("abcdefghijklmnopqrstuvwxyz\n"), 5000)
		written := make(chan error, 1)
		go func() { written <- errors.Join(r.WriteStdin(b.ctx, lines), r.CloseStdin()) }()
		r.ends(t, schemas.ReasonExited, 0)
		if err := <-written; err != nil {
			t.Error(err)
		}
		if !bytes.Equal(r.stdout.Bytes(), lines) {
			t.Errorf("%d other bytes came out", r.stdout.Len())
		}
	}},
	{"ClosedByTheProcess", func(t *testing.T, b *box) {
		r := b.start(t, sandbox.Command{Path: "sh", Args: []string{"-c", "exec <&-; echo closed; exec sleep 300"}, Stdin: true})
		r.until(t, "closed")
		if err := r.WriteStdin(b.ctx, make([]byte, 1<<20)); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("write to a process that has closed its input: %v", err)
		}
		if err := r.Kill(0); err != nil {
			t.Error(err)
		}
		r.ends(t, schemas.ReasonKilled, 137)
		if err := r.WriteStdin(b.ctx, []byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("write to a process that has ended: %v", err)
		}
		if err := r.CloseStdin(); err != nil {
			t.Errorf("close after the end: %v", err)
		}
	}},
	{"EndsEarly", func(t *testing.T, b *box) {
		r := b.start(t, sandbox.Command{Path: "head", Args: []string{"-c", "1"}, Stdin: true})
		if err := r.WriteStdin(b.ctx, random(4<<20)); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("4 MiB to a process that reads one byte: %v", err)
		}
		r.ends(t, schemas.ReasonExited, 0)
	}},
	{"None", func(t *testing.T, b *box) {
		r := b.start(t, sandbox.Command{Path: "cat"})
		r.ends(t, schemas.ReasonExited, 0)
		s := b.start(t, sandbox.Command{Path: "sleep", Args: []string{"300"}})
		if err := s.WriteStdin(b.ctx, []byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("write where no input was asked for: %v", err)
		}
		if err := s.CloseStdin(); err != nil {
			t.Error(err)
		}
		if err := s.Kill(0); err != nil {
			t.Error(err)
		}
		s.ends(t, schemas.ReasonKilled, 137)
	}},
}
