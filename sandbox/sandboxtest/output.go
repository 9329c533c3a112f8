package sandboxtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// random is the same bytes in every run.
func random(n int) []byte {
	b := make([]byte, n)
	src := rand.NewChaCha8([32]byte{1})
	if _, err := io.ReadFull(src, b); err != nil {
		panic(err)
	}
	return b
}

// quiet is how long nothing must come before a test takes a process for blocked. Too short only makes a test weaker.
const quiet = 300 * time.Millisecond

// What a process prints.
var outputTests = []test{
	{"Streams", func(t *testing.T, b *box) {
		r := b.sh(t, `i=0; while [ $i -lt 100 ]; do echo out$i; echo err$i >&2; i=$((i+1)); done`)
		r.ends(t, schemas.ReasonExited, 0)
		is(t, "swapped", strings.ReplaceAll(r.stdout.String(), "out", "err"), r.stderr.String())
		if n := strings.Count(r.stdout.String(), "out"); n != 100 {
			t.Errorf("%d lines", n)
		}
	}},
	{"AnyBytes", func(t *testing.T, b *box) {
		data := append([]byte("\x00\xff\xfe\xc3\x28\r\n\x1b[0m\xed\xa0\x80"), random(1000)...)
		b.file(t, "bytes", data, 0o644)
		r := b.sh(t, "cat bytes; cat bytes >&2")
		r.ends(t, schemas.ReasonExited, 0)
		if !bytes.Equal(r.stdout.Bytes(), data) || !bytes.Equal(r.stderr.Bytes(), data) {
			t.Error("other bytes came out")
		}
	}},
	{"Large", func(t *testing.T, b *box) {
		data := random(64 << 20)
		b.file(t, "large", data, 0o644)
		p := b.start(t, sandbox.Command{Path: "cat", Args: []string{"large"}})
		sum, total := sha256.New(), int64(0)
		for {
			out, err := p.Read(b.ctx)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if out.Offset != total {
				t.Fatalf("a piece at %d after %d bytes", out.Offset, total)
			}
			sum.Write(out.Data)
			total += int64(len(out.Data))
			if err := p.Ack(out.Stream, total); err != nil {
				t.Fatal(err)
			}
		}
		if sha256.Sum256(data) != [32]byte(sum.Sum(nil)) {
			t.Errorf("%d bytes came out, not the same", total)
		}
		if exit := p.wait(t); exit.Stdout != total || exit.Code != 0 {
			t.Errorf("%+v", exit)
		}
	}},
	{"Backpressure", func(t *testing.T, b *box) {
		const size = 64 << 20
		r := b.start(t, sandbox.Command{Path: "head", Args: []string{"-c", "67108864", "/dev/zero"}})
		for blocked := false; !blocked; {
			ctx, cancel := context.WithTimeout(b.ctx, quiet)
			out, err := r.Read(ctx)
			cancel()
			switch {
			case err == nil:
				r.take(t, out)
			case errors.Is(err, context.DeadlineExceeded):
				blocked = true
			default:
				t.Fatalf("after %d bytes without an ack: %v", r.stdout.Len(), err)
			}
		}
		if r.stdout.Len() >= size {
			t.Fatal("everything came without an ack")
		}
		b.say(t, "true") // the others go on
		if err := r.Ack(schemas.Stdout, int64(r.stdout.Len())); err != nil {
			t.Fatal(err)
		}
		r.ends(t, schemas.ReasonExited, 0)
		if r.stdout.Len() != size {
			t.Errorf("%d bytes came", r.stdout.Len())
		}
	}},
	{"NotRead", func(t *testing.T, b *box) {
		r := b.sh(t, "head -c 67108864 /dev/zero & head -c 67108864 /dev/zero >&2; wait")
		for range 3 {
			b.say(t, "true")
		}
		if err := r.Kill(0); err != nil {
			t.Fatal(err)
		}
		exit := r.wait(t) // needs neither a Read nor an Ack
		if exit.Reason != schemas.ReasonKilled {
			t.Errorf("%+v", exit)
		}
		r.finish(t)
	}},
	{"AckOneStreamOnly", func(t *testing.T, b *box) {
		r := b.sh(t, "head -c 20000000 /dev/zero >&2; head -c 3000000 /dev/zero")
		for {
			out, err := r.Read(b.ctx)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			r.take(t, out)
			if out.Stream == schemas.Stderr {
				if err := r.Ack(out.Stream, out.Offset+int64(len(out.Data))); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.ends(t, schemas.ReasonExited, 0)
		if r.stdout.Len() != 3000000 || r.stderr.Len() != 20000000 {
			t.Errorf("%d and %d bytes came", r.stdout.Len(), r.stderr.Len())
		}
	}},
	{"AckRefused", func(t *testing.T, b *box) {
		r := b.sh(t, "echo x")
		r.finish(t)
		code(t, "no such stream", r.Ack("stdin", 0), schemas.CodeInvalidArgument)
		code(t, "more than came", r.Ack(schemas.Stdout, 3), schemas.CodeInvalidArgument)
		code(t, "negative", r.Ack(schemas.Stdout, -1), schemas.CodeInvalidArgument)
	}},
	{"ByteByByte", func(t *testing.T, b *box) {
		r := b.start(t, sandbox.Command{Path: "dd", Args: []string{"if=/dev/zero", "bs=1", "count=30000", "status=none"}})
		r.ends(t, schemas.ReasonExited, 0)
		if r.stdout.Len() != 30000 {
			t.Errorf("%d bytes came", r.stdout.Len())
		}
	}},
	{"AsItComes", func(t *testing.T, b *box) {
		r := b.start(t, sandbox.Command{Path: "cat", Stdin: true})
		for _, word := range []string{"one", "two", "three"} {
			if err := r.WriteStdin(b.ctx, []byte(word)); err != nil {
				t.Fatal(err)
			}
			r.until(t, word)
		}
		if err := r.CloseStdin(); err != nil {
			t.Fatal(err)
		}
		r.ends(t, schemas.ReasonExited, 0)
	}},
	{"ClosedByTheProcess", func(t *testing.T, b *box) {
		r := b.start(t, sandbox.Command{Path: "sh", Args: []string{"-c", "exec >&- 2>&-; read x"}, Stdin: true})
		// The line it reads is its last: its end may be told before it is told that the line was taken.
		if err := r.WriteStdin(b.ctx, []byte("\n")); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Fatal(err)
		}
		r.ends(t, schemas.ReasonExited, 0)
	}},
}
