package sandboxtest

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// pseudoRandom returns the same bytes in every run.
func pseudoRandom(n int) []byte {
	b := make([]byte, n)
	src := rand.NewChaCha8([32]byte{1})
	if _, err := io.ReadFull(src, b); err != nil {
		panic(err)
	}
	return b
}

// blockedAfter is how long a process produces nothing until a test treats it as blocked. A shorter time only makes a test weaker.
const blockedAfter = 300 * time.Millisecond

// How output is delivered.
var outputTests = []test{
	{"Streams", func(t *testing.T, f *fixture) {
		r := f.run(t, shell(`i=0; while [ $i -lt 100 ]; do echo out$i; echo err$i >&2; i=$((i+1)); done`))
		testkit.Equal(t, "stdout with out replaced by err", strings.ReplaceAll(r.stdout.String(), "out", "err"), r.stderr.String())
		if n := strings.Count(r.stdout.String(), "out"); n != 100 {
			t.Errorf("stdout has %d lines, want 100", n)
		}
	}},
	{"AnyBytes", func(t *testing.T, f *fixture) {
		data := append([]byte("\x00\xff\xfe\xc3\x28\r\n\x1b[0m\xed\xa0\x80"), pseudoRandom(1000)...)
		f.writeFile(t, "bytes", data, 0o644)
		r := f.run(t, shell("cat bytes; cat bytes >&2"))
		wantBytes(t, "stdout", r.stdout.Bytes(), data)
		wantBytes(t, "stderr", r.stderr.Bytes(), data)
	}},
	{"Large", func(t *testing.T, f *fixture) {
		data := pseudoRandom(64 << 20)
		f.writeFile(t, "large", data, 0o644)
		r := f.run(t, sandbox.Command{Path: "cat", Args: []string{"large"}})
		wantBytes(t, "stdout", r.stdout.Bytes(), data)
	}},
	{"Backpressure", func(t *testing.T, f *fixture) {
		const size = 64 << 20
		r := f.start(t, sandbox.Command{Path: "head", Args: []string{"-c", "67108864", "/dev/zero"}})
		for blocked := false; !blocked; {
			ctx, cancel := context.WithTimeout(f.ctx, blockedAfter)
			out, err := r.Read(ctx)
			cancel()
			switch {
			case err == nil:
				r.appendOutput(t, out)
			case errors.Is(err, context.DeadlineExceeded):
				blocked = true
			default:
				t.Fatalf("read after %d bytes without an ack: %v", r.stdout.Len(), err)
			}
		}
		if r.stdout.Len() >= size {
			t.Fatalf("all %d bytes were delivered without an ack, want backpressure", size)
		}
		f.output(t, "true") // other processes are not blocked
		testkit.Must(t, r.Ack(schemas.Stdout, int64(r.stdout.Len())))
		r.wantExit(t, schemas.ReasonExited, 0)
		testkit.Equal(t, "bytes of stdout", r.stdout.Len(), size)
	}},
	{"NotRead", func(t *testing.T, f *fixture) {
		r := f.sh(t, "head -c 67108864 /dev/zero & head -c 67108864 /dev/zero >&2; wait")
		for range 3 {
			f.output(t, "true")
		}
		testkit.Must(t, r.Kill(0))
		exit := r.wait(t) // needs no Read and no Ack
		testkit.Equal(t, "exit reason", exit.Reason, schemas.ReasonKilled)
		r.readAll(t)
	}},
	{"AckOneStreamOnly", func(t *testing.T, f *fixture) {
		r := f.sh(t, "head -c 20000000 /dev/zero >&2; head -c 3000000 /dev/zero")
		for {
			out, err := r.Read(f.ctx)
			if err == io.EOF {
				break
			}
			testkit.Must(t, err)
			r.appendOutput(t, out)
			if out.Stream == schemas.Stderr {
				testkit.Must(t, r.Ack(out.Stream, out.Offset+int64(len(out.Data))))
			}
		}
		r.wantExit(t, schemas.ReasonExited, 0)
		testkit.Equal(t, "bytes of stdout", r.stdout.Len(), 3000000)
		testkit.Equal(t, "bytes of stderr", r.stderr.Len(), 20000000)
	}},
	{"AckRefused", func(t *testing.T, f *fixture) {
		r := f.sh(t, "echo x")
		r.readAll(t)
		WantCode(t, "ack of an unknown stream", r.Ack("stdin", 0), schemas.CodeInvalidArgument)
		WantCode(t, "ack beyond the output", r.Ack(schemas.Stdout, 3), schemas.CodeInvalidArgument)
		WantCode(t, "ack of a negative offset", r.Ack(schemas.Stdout, -1), schemas.CodeInvalidArgument)
	}},
	{"ByteByByte", func(t *testing.T, f *fixture) {
		r := f.run(t, sandbox.Command{Path: "dd", Args: []string{"if=/dev/zero", "bs=1", "count=30000", "status=none"}})
		testkit.Equal(t, "bytes of stdout", r.stdout.Len(), 30000)
	}},
	{"DeliveredAtOnce", func(t *testing.T, f *fixture) {
		r := f.start(t, sandbox.Command{Path: "cat", Stdin: true})
		for _, word := range []string{"one", "two", "three"} {
			testkit.Must(t, r.WriteStdin(f.ctx, []byte(word)))
			r.readUntil(t, word)
		}
		r.wantEnd(t)
	}},
	{"ClosedByProcess", func(t *testing.T, f *fixture) {
		r := f.start(t, sandbox.Command{Path: "sh", Args: []string{"-c", "exec >&- 2>&-; read x"}, Stdin: true})
		testkit.Must(t, r.WriteStdin(f.ctx, []byte("\n")))
		r.wantExit(t, schemas.ReasonExited, 0)
	}},
}
