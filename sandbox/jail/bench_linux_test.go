package jail

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
)

// The benchmarks come in pairs: what a thing costs in a jail, and by the usual means. Only the ratio inside one run means
// anything.

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

func execTrue(b *testing.B, s sandbox.Sandbox, id string) {
	p, err := s.Start(b.Context(), sandbox.Command{ID: id, Path: "true"})
	if err != nil {
		b.Fatal(err)
	}
	if exit, err := p.Wait(b.Context()); err != nil || exit.Code != 0 {
		b.Fatal(exit, err)
	}
	if err := p.Release(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkColdJail is from Create to the end of the first command. Taking it away again is not counted.
func BenchmarkColdJail(b *testing.B) {
	p := newProvider(b)
	ws := b.TempDir()
	var end time.Duration
	took := make([]time.Duration, 0, 1024)
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		s, err := p.Create(b.Context(), sandbox.Spec{ID: "bench" + strconv.Itoa(i), Workspace: ws})
		if err != nil {
			b.Fatal(err)
		}
		execTrue(b, s, "t")
		took = append(took, time.Since(start))
		start = time.Now()
		if err := s.Terminate(b.Context(), 0); err != nil {
			b.Fatal(err)
		}
		end += time.Since(start)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(end.Microseconds())/float64(len(took)), "end-µs")
	if err := p.Close(); err != nil {
		b.Error(err)
	}
}

// BenchmarkBwrap is the same with bubblewrap, which has neither cgroups nor a filter here.
func BenchmarkBwrap(b *testing.B) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		b.Skip("bwrap is missing: apt-get install bubblewrap")
	}
	ws := b.TempDir()
	args := []string{"--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
		"--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", ws, "/workspace", "true"}
	median(b, func(int) {
		if out, err := exec.CommandContext(b.Context(), bwrap, args...).CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	})
}

func benchJail(b *testing.B) sandbox.Sandbox {
	p := newProvider(b)
	b.Cleanup(func() {
		if err := p.Close(); err != nil {
			b.Error(err)
		}
	})
	s, err := p.Create(b.Context(), sandbox.Spec{ID: "bench", Workspace: b.TempDir(), Limits: sandbox.Limits{CPUs: 8}})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func BenchmarkExecTrue(b *testing.B) {
	s := benchJail(b)
	median(b, func(i int) { execTrue(b, s, "t"+strconv.Itoa(i)) })
}

// BenchmarkBareExecTrue takes the output through pipes and goroutines, as BenchmarkExecTrue does.
func BenchmarkBareExecTrue(b *testing.B) {
	median(b, func(int) {
		cmd := exec.CommandContext(b.Context(), "true")
		cmd.Stdout, cmd.Stderr = &strings.Builder{}, &strings.Builder{}
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkIdle makes SLUICE_IDLE_JAILS jails, 20 unless set, and reports what each costs in memory while it does nothing.
func BenchmarkIdle(b *testing.B) {
	n, err := strconv.Atoi(os.Getenv("SLUICE_IDLE_JAILS"))
	if err != nil {
		n = 20
	}
	p := newProvider(b)
	ws := b.TempDir()
	for b.Loop() {
		start := time.Now()
		var all []sandbox.Sandbox
		for i := range n {
			s, err := p.Create(b.Context(), sandbox.Spec{ID: "idle" + strconv.Itoa(i), Workspace: ws})
			if err != nil {
				b.Fatal(i, err)
			}
			all = append(all, s)
		}
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "make-ms")
		b.ReportMetric(float64(idlePSS(b))/float64(n), "PSS-KiB/jail")
		start = time.Now()
		for _, s := range all {
			if err := s.Terminate(b.Context(), 0); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "end-ms")
	}
	if err := p.Close(); err != nil {
		b.Error(err)
	}
}

// idlePSS adds up the memory of every supervisor on the machine, in KiB.
func idlePSS(b *testing.B) (sum int) {
	links, err := os.ReadDir("/proc")
	if err != nil {
		b.Fatal(err)
	}
	for _, l := range links {
		if cmdline, err := os.ReadFile("/proc/" + l.Name() + "/cmdline"); err != nil || !strings.HasPrefix(string(cmdline), "sluice-supervisor") {
			continue
		}
		rollup, err := os.ReadFile("/proc/" + l.Name() + "/smaps_rollup")
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(rollup)) {
			var kib int
			if n, err := fmt.Sscanf(line, "Pss: %d kB", &kib); n == 1 && err == nil {
				sum += kib
			}
		}
	}
	return sum
}
