package sandboxtest

import (
	"runtime"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
)

var usageTests = []test{
	{"EachTree", func(t *testing.T, f *fixture) {
		meter, ok := f.Sandbox.(sandbox.Meter)
		if !ok || runtime.GOOS != "linux" {
			t.Skip("this sandbox does not measure")
		}
		usage := func() map[string]sandbox.Usage {
			t.Helper()
			all, err := meter.Usage(f.ctx)
			testkit.Must(t, err)
			return all
		}
		testkit.Equal(t, "usages without a process", len(usage()), 0)
		busy := f.start(t, sandbox.Command{Path: "sh", Args: []string{"-c", "(while :; do :; done) & wait"}})
		idle := f.start(t, sandbox.Command{Path: "sleep", Args: []string{"300"}})
		all := usage()
		for all[busy.ID()].CPU < 50*time.Millisecond || all[busy.ID()].Processes != 2 || all[idle.ID()].Memory == 0 { // the kernel counts small memory late
			if f.ctx.Err() != nil {
				t.Fatalf("usages are %+v, want two busy processes in %s, and memory of %s", all, busy.ID(), idle.ID())
			}
			all = usage()
		}
		testkit.Equal(t, "number of usages", len(all), 2)
		u := all[idle.ID()]
		testkit.Equal(t, "processes of the idle one", u.Processes, 1)
		if u.CPU >= all[busy.ID()].CPU {
			t.Errorf("the idle process uses %+v, the busy one %+v", u, all[busy.ID()])
		}
		testkit.Must(t, busy.Kill(0))
		_, err := busy.Wait(f.ctx)
		testkit.Must(t, err)
		if _, ok := usage()[busy.ID()]; ok {
			t.Error("the process that has ended has a usage")
		}
	}},
}
