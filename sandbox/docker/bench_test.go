package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
)

// The benchmarks come in pairs, whose ratio inside one run alone means anything: BenchmarkExec to BenchmarkBareExec and to
// BenchmarkDockerExec, the AtATime ones by their rate, and BenchmarkCreate to BenchmarkClaim of package pool.

// atATime is how many commands the AtATime benchmarks have running.
const atATime = 16

func benchBox(b *testing.B) *Sandbox {
	b.Helper()
	p := newProvider(b, nil)
	b.Cleanup(func() {
		if err := p.Close(); err != nil {
			b.Error(err)
		}
	})
	s, err := p.Create(b.Context(), sandbox.Spec{ID: "bench", Workspace: b.TempDir(), Limits: sandbox.Limits{CPUs: 2}})
	if err != nil {
		b.Fatal(err)
	}
	made, ok := s.(*Sandbox)
	if !ok {
		b.Fatalf("%T", s)
	}
	return made
}

// median reports the middle of what each call of f took.
func median(b *testing.B, f func(i int)) {
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		f(i)
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// rate reports how many calls of f a second are done, with atATime of them going on.
func rate(b *testing.B, f func(i int) error) {
	var next atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for range atATime {
		all.Go(func() {
			for {
				i := int(next.Add(1))
				if i > b.N {
					return
				}
				if err := f(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "execs/s")
}

// supervised is one command through the supervisor, with its output read to the end.
func supervised(ctx context.Context, s sandbox.Sandbox, i int) error {
	p, err := s.Start(ctx, sandbox.Command{ID: fmt.Sprint("p", i), Path: "/bin/true"})
	if err != nil {
		return err
	}
	for {
		if _, err := p.Read(ctx); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
	}
	exit, err := p.Wait(ctx)
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("%+v", exit)
	}
	return errors.Join(err, p.Release())
}

// dockerExec is one command as docker exec does it.
func dockerExec(ctx context.Context, s *Sandbox) error {
	c := s.provider.client
	made, err := c.ContainerExecCreate(ctx, s.Container(), container.ExecOptions{Cmd: []string{"/bin/true"}, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return err
	}
	conn, err := c.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn.Reader)
	conn.Close()
	if err != nil {
		return err
	}
	state, err := c.ContainerExecInspect(ctx, made.ID)
	if err == nil && (state.Running || state.ExitCode != 0) {
		err = fmt.Errorf("%+v", state)
	}
	return err
}

func BenchmarkExec(b *testing.B) {
	s := benchBox(b)
	median(b, func(i int) {
		if err := supervised(b.Context(), s, i); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkBareExec runs the same busybox without a sandbox, with pipes and goroutines for its output.
func BenchmarkBareExec(b *testing.B) {
	dockertest.Image(b)
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		b.Fatal(err)
	}
	median(b, func(int) {
		var out, errs strings.Builder
		cmd := exec.CommandContext(b.Context(), busybox, "true")
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkDockerExec(b *testing.B) {
	s := benchBox(b)
	median(b, func(int) {
		if err := dockerExec(b.Context(), s); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkExecAtATime(b *testing.B) {
	s := benchBox(b)
	b.ResetTimer()
	rate(b, func(i int) error { return supervised(b.Context(), s, i) })
}

func BenchmarkDockerExecAtATime(b *testing.B) {
	s := benchBox(b)
	b.ResetTimer()
	rate(b, func(int) error { return dockerExec(b.Context(), s) })
}

// BenchmarkCreate makes containers; what removing them takes is not counted.
func BenchmarkCreate(b *testing.B) {
	p := newProvider(b, nil)
	workspace := b.TempDir()
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		s, err := p.Create(b.Context(), sandbox.Spec{ID: fmt.Sprint("c", i), Workspace: workspace})
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
		if err := s.Terminate(b.Context(), 0); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		b.Fatal(err)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
}
