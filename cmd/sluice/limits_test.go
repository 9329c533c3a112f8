package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 11: `limits` shows every limit, how much of it is used, and what happens beyond it.
func TestLimitsShowsWhatIsUsed(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("limits").wantError(t, schemas.CodeUnavailable, c.data, "sluice up", "--nats")
	c.up("--log-bytes", "100000000", "--log-process-bytes", "1000000", "--log-tenant-bytes", "50000000", "--event-bytes", "8000000",
		"--max-processes", "7", "--thread-processes", "3", "--max-sessions", "160", "--max-sandboxes", "80", "--tenant-memory", "2GiB", "--tenant-cpus", "3", "--workspace-files", "123")
	x := c.spawn(execArgs("-n", "--", "bash", "-c", "echo ready; read -r line < "+c.fifo("go"))...)
	x.wantLine("ready")
	loud := c.exec("--json", "--", "bash", "-c", "yes 0123456789 | head -c 8000000").result(t)

	limits := func(args ...string) map[string]limitLine {
		t.Helper()
		by := make(map[string]limitLine)
		for _, l := range decode[[]limitLine](t, c.run(append([]string{"limits", "--json"}, args...)...).stdout) {
			by[l.Name] = l
			if l.Unit == "" || l.Beyond == "" {
				t.Errorf("limit %+v has no unit, or does not say what happens beyond it", l)
			}
		}
		return by
	}
	by := limits()
	for by["processes"].Used != nil && *by["processes"].Used != 1 { // it is as old as the worker's last renewal of its lease
		by = limits()
	}
	for name, most := range map[string]int64{
		"commands": 256 << 20, "records": 7_000_000, "output": 100_000_000, "tenant_output": 50_000_000, "process_output": 1_000_000,
		"messages": 1 << 30, "dead_letters": 64 << 20, "processes": 7, "tenant_processes": 7, "thread_processes": 3, "sessions": 160, "tenant_sessions": 140, "sandboxes": 80, "tenant_sandboxes": 70, "tenant_memory": 2 << 30, "tenant_cpus": 3,
		"workspace_bytes": 2_000_000_000, "workspace_files": 123, "file_bytes": 1_000_000_000,
	} {
		testkit.Equal(t, "most of "+name, by[name].Max, most)
		used, bound := by[name].Used != nil, !strings.Contains(name, "workspace") && !slices.Contains([]string{"tenant_processes", "thread_processes", "tenant_sessions", "tenant_sandboxes", "tenant_memory", "tenant_cpus", "file_bytes", "process_output"}, name)
		testkit.Equal(t, name+" says how much is used", used, bound)
	}
	testkit.Equal(t, "running processes", *by["processes"].Used, int64(1))
	for _, name := range []string{"records", "output"} {
		testkit.Equal(t, name+" are used", *by[name].Used > 0, true)
	}
	if kept := limits("--process", loud.Process)["process_output"].Used; kept == nil || *kept != loud.StdoutBytes-loud.Log.StdoutFrom {
		t.Errorf("output of the process = %v, want %d", kept, loud.StdoutBytes-loud.Log.StdoutFrom)
	}
	c.run("limits", "--process", "pnone").wantError(t, schemas.CodeNotFound, "pnone")
	c.run("limits", "--process", loud.Process).check(t).exits(0).reportsNothing().
		printsMatch(`(?m)^LIMIT +WORKER +USED +MOST +FULL +BEYOND IT$`).
		printsMatch(`(?m)^records \(EVT\) +- +\S+ \S+ +6.7 MiB +\d+% +direct commands are refused, queued ones wait$`).
		printsMatch(`(?m)^output of a process +- +\d+\.\d KiB +976.6 KiB +\d+% +its own oldest`).
		printsMatch(`(?m)^processes at once +\S+ +1 +7 +14% `).
		printsMatch(`(?m)^files of a workspace +\S+ +- +123 +- `)
	c.release("go", "on")
	x.wantExit(0)
}
