package local

import (
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
)

// The benchmarks come in pairs: what a thing costs through a supervisor, and bare. Only the ratio inside one run means
// anything.

// outputSize is what BenchmarkOutput and BenchmarkBarePipe move per operation, in 64 KiB writes.
const outputSize = 256 << 20

func benchSandbox(b *testing.B) sandbox.Sandbox {
	b.Helper()
	provider, err := New(Config{RunDir: runDir(b), Warn: func(string) {}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := provider.Close(); err != nil {
			b.Error(err)
		}
	})
	s, err := provider.Create(b.Context(), sandbox.Spec{ID: "bench", Thread: "bench", Workspace: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// median reports the middle of what each call of f took.
func median(b *testing.B, f func(i int)) {
	took := make([]time.Duration, 0, 1024)
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		f(i)
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

func BenchmarkExecTrue(b *testing.B) {
	s := benchSandbox(b)
	median(b, func(i int) {
		p, err := s.Start(b.Context(), sandbox.Command{ID: "t" + strconv.Itoa(i), Path: "true"})
		if err != nil {
			b.Fatal(err)
		}
		if n := drain(b, p); n != 0 {
			b.Fatal("true printed something")
		}
		if exit, err := p.Wait(b.Context()); err != nil || exit.Code != 0 {
			b.Fatal(exit, err)
		}
		if err := p.Release(); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkBareExecTrue takes the output through pipes and goroutines, as BenchmarkExecTrue does.
func BenchmarkBareExecTrue(b *testing.B) {
	median(b, func(int) {
		cmd := exec.CommandContext(b.Context(), "true")
		cmd.Stdout, cmd.Stderr = &counter{}, &counter{}
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
	})
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

func ddArgs() []string {
	return []string{"if=/dev/zero", "bs=64k", "count=" + strconv.Itoa(outputSize>>16), "status=none"}
}

func BenchmarkOutput(b *testing.B) {
	s := benchSandbox(b)
	b.SetBytes(outputSize)
	for i := 0; b.Loop(); i++ {
		p, err := s.Start(b.Context(), sandbox.Command{ID: "o" + strconv.Itoa(i), Path: "dd", Args: ddArgs()})
		if err != nil {
			b.Fatal(err)
		}
		if n := drain(b, p); n != outputSize {
			b.Fatal(n)
		}
		if _, err := p.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := p.Release(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBarePipe(b *testing.B) {
	b.SetBytes(outputSize)
	buf := make([]byte, 64<<10)
	for b.Loop() {
		r, w, err := os.Pipe()
		if err != nil {
			b.Fatal(err)
		}
		cmd := exec.CommandContext(b.Context(), "dd", ddArgs()...)
		cmd.Stdout = w
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		_ = w.Close()
		n, err := io.CopyBuffer(struct{ io.Writer }{&counter{}}, struct{ io.Reader }{r}, buf)
		if err != nil || n != outputSize {
			b.Fatal(n, err)
		}
		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
		_ = r.Close()
	}
}

func BenchmarkCreate(b *testing.B) {
	provider, err := New(Config{RunDir: runDir(b), Warn: func(string) {}})
	if err != nil {
		b.Fatal(err)
	}
	workspace := b.TempDir()
	for i := 0; b.Loop(); i++ {
		s, err := provider.Create(b.Context(), sandbox.Spec{ID: "c" + strconv.Itoa(i), Thread: "bench", Workspace: workspace})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Terminate(b.Context(), 0); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	if err := provider.Close(); err != nil {
		b.Fatal(err)
	}
}

// drain reads and acks everything, and counts it.
func drain(tb testing.TB, p sandbox.Process) (total int64) {
	tb.Helper()
	for {
		out, err := p.Read(context.Background())
		if err == io.EOF {
			return total
		}
		if err != nil {
			tb.Fatal(err)
		}
		total += int64(len(out.Data))
		if err := p.Ack(out.Stream, out.Offset+int64(len(out.Data))); err != nil {
			tb.Fatal(err)
		}
	}
}
