package attack

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
)

const (
	busyLoops = 360
	// maxSlowdown is how many times as long as on an idle host a neighbour's command may take while the loops run. Without limits of CPU
	// time it has no bound: the kernel then shares the CPUs among all processes alike.
	maxSlowdown = 10
)

// loadCPU runs busy loops in a sandbox of their own, and compares how long the neighbour's commands take with and without them.
func (f *fixture) loadCPU(t *testing.T) {
	t.Helper()
	busy := f.create(t, sandbox.Spec{ID: "busy", Workspace: f.workspace, Limits: sandbox.Limits{PIDs: busyLoops + 40}})
	idle := f.median(t)
	p, err := f.start(busy, sandbox.Command{Path: "sh", Args: []string{"-c",
		"i=0; while [ $i -lt " + strconv.Itoa(busyLoops) + " ]; do (while :; do :; done) & i=$((i+1)); done; echo ready; wait"}})
	testkit.Must(t, err)
	for printed := ""; !strings.Contains(printed, "ready"); {
		out, err := p.Read(f.ctx)
		if err != nil {
			t.Fatalf("read the report of the loops after %q: %v", printed, err)
		}
		printed += string(out.Data)
	}
	loaded := f.median(t)
	testkit.Must(t, p.Kill(0))
	f.finish(t, p)
	testkit.Must(t, busy.Terminate(f.ctx, 0))
	t.Logf("a neighbour's command takes %v, and %v (%.1f times as long) beside %d busy loops; limits of CPU time: %v",
		idle, loaded, float64(loaded)/float64(idle), busyLoops, !f.factory.MemoryByProcess)
	if loaded > maxSlowdown*idle && !f.factory.MemoryByProcess {
		t.Errorf("a neighbour's command takes %v beside %d busy loops, want at most %d times the %v without them", loaded, busyLoops, maxSlowdown, idle)
	}
}

// median is that of the times which commands of the neighbour take.
func (f *fixture) median(t *testing.T) time.Duration {
	t.Helper()
	var all []time.Duration
	for range 21 {
		began := time.Now()
		f.wantAlive(t, f.neighbour)
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
