package attack

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
)

const (
	// maxMemory is what the process with the provider may have in memory during any case, in bytes.
	maxMemory = 300 << 20
	// maxSlowdown is how many times as long as on an idle host a neighbour's command may take during a case, where CPU time is limited. Else it
	// has no bound: the kernel then shares the CPUs among all processes alike.
	maxSlowdown = 10
	// sampleCount is how many of the neighbour's commands make a median.
	sampleCount = 21
)

// row is what the table says of a case.
type row struct {
	provider, name, result string
	memory                 int64   // the peak, in bytes
	slowdown               float64 // of the neighbour's commands; 0 where it was not measured
}

// write appends the row to the table, if there is one.
func (r *row) write(t *testing.T, table string) {
	t.Helper()
	if table == "" {
		return
	}
	f, err := os.OpenFile(table, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	testkit.Must(t, err)
	slowdown := "-"
	if r.slowdown > 0 {
		slowdown = fmt.Sprintf("%.1fx", r.slowdown)
	}
	_, err = fmt.Fprintf(f, "%-12s %-32s %-8s %4d MB %7s\n", r.provider, r.name, r.result, r.memory>>20, slowdown)
	testkit.Must(t, err)
	testkit.Must(t, f.Close())
}

// resetPeak has the kernel measure the peak of this process's memory anew: proc_pid_clear_refs(5).
func resetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// peak is the peak of this process's memory in bytes.
func peak(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	testkit.Must(t, err)
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(rest + " x")[0], 10, 64)
	testkit.Must(t, err)
	return kib << 10
}

// sampler runs commands of the neighbour, one after the other.
type sampler struct {
	neighbour sandbox.Sandbox
	count     int
}

// sample is how long one command takes.
func (s *sampler) sample(ctx context.Context) (time.Duration, error) {
	s.count++
	began := time.Now()
	p, err := s.neighbour.Start(ctx, sandbox.Command{ID: "sample" + strconv.Itoa(s.count), Path: "true"})
	if err == nil {
		_, err = sandboxtest.Finish(ctx, p)
	}
	return time.Since(began), err
}

// samples takes the time of commands until ctx ends, or there are enough.
func (s *sampler) samples(ctx context.Context, enough int) (all []time.Duration) {
	for ctx.Err() == nil && len(all) < enough {
		d, err := s.sample(ctx)
		if err != nil {
			break // wantUnharmed fails for a neighbour that runs no commands
		}
		all = append(all, d)
	}
	return all
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// slowdown runs a case, and returns how many times as long as before the neighbour's commands take beside it; 0 when the case was over before
// there were enough.
func (f *fixture) slowdown(t *testing.T, run func()) float64 {
	t.Helper()
	s := &sampler{neighbour: f.neighbour}
	idle := s.samples(f.ctx, sampleCount)
	ctx, stop := context.WithCancel(f.ctx)
	during := make(chan []time.Duration, 1)
	go func() { during <- s.samples(ctx, 100_000) }()
	defer stop()
	run()
	stop()
	loaded := <-during
	if len(idle) < sampleCount || len(loaded) < sampleCount/4 {
		return 0
	}
	return float64(median(loaded)) / float64(median(idle))
}
