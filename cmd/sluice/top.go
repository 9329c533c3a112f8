package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// printStats prints what processes use.
func printStats(m *Main, list []schemas.ProcessInfo) error {
	t := m.list("no process runs: `sluice process list --all` shows those that ended", "PROCESS", "THREAD…", "STATUS", "CPU TIME", "MEMORY", "PIDS", "COMMAND…").leaveOut("STATUS", "PIDS", "CPU TIME", "THREAD", "COMMAND")
	for _, p := range list {
		cpu, memory, pids := "", "", ""
		if u := p.Usage; u != nil {
			cpu, memory, pids = cpuTime(u).Round(10*time.Millisecond).String(), byteSize(u.MemoryBytes), fmt.Sprint(u.Processes)
		}
		t.row(p.Process, p.Thread, string(p.Status), cpu, memory, pids, commandLine(p.Command, p.Args))
	}
	return t.print()
}

func cpuTime(u *schemas.ProcessUsage) time.Duration {
	return time.Duration(u.CPUMS * float64(time.Millisecond))
}

// sample is what the processes of a thread used at a time.
type sample struct {
	at    time.Time
	usage map[string]*schemas.ProcessUsage
}

func topCommand(g *globals) *cobra.Command {
	var interval time.Duration
	var count int
	var asJSON bool
	c := &cobra.Command{
		Use:   "top THREAD",
		Short: "Show what the processes of a thread use, again and again",
		Long: `Show the CPU, the memory and the number of processes of each process of a thread with its
descendants, measured in their sandbox, again and again until Ctrl+C. A CPU of 100% is one whole
core. Memory is the sum of resident sets: pages that processes share count several times.`,
		Example: `  sluice top t1
  sluice top --count 1 t1
  sluice top --json t1`,
		Args: exactArgs(1, "one THREAD"),
		RunE: g.read(func(ctx context.Context, c *client.Client, args []string) error {
			if interval < 100*time.Millisecond {
				return schemas.Errorf(schemas.CodeInvalidArgument, "--interval is %v: it must be at least 100ms", interval)
			}
			if count < 0 {
				return schemas.Errorf(schemas.CodeInvalidArgument, "--count is %d: it must be at least 1, or left out", count)
			}
			return g.top(ctx, c, args[0], interval, count, asJSON)
		}),
	}
	c.Flags().DurationVar(&interval, "interval", time.Second, "`DURATION` between two measurements")
	c.Flags().IntVarP(&count, "count", "n", 0, "end after `N` tables; default: never")
	jsonFlag(c, &asJSON, "each table as one line of JSON")
	return c
}

// topLine is a process in a table of `sluice top --json`.
type topLine struct {
	schemas.ProcessInfo
	// CPU is the share of one core since the last measurement; nil where there was none.
	CPU *float64 `json:"cpu_percent,omitempty"`
}

// top prints a table after each interval. The first one needs two measurements.
func (g *globals) top(ctx context.Context, c *client.Client, thread string, interval time.Duration, count int, asJSON bool) error {
	_, redraw := g.terminal(g.Stdout)
	redraw = redraw && !asJSON
	print := jsonLines[[]topLine](g.Main)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for n, last := 0, (sample{}); ; n++ {
		list, err := c.Processes(ctx, client.ProcessQuery{Thread: thread, Usage: true})
		if err != nil {
			return err
		}
		now := sample{time.Now(), make(map[string]*schemas.ProcessUsage, len(list))}
		for _, p := range list {
			now.usage[p.Process] = p.Usage
		}
		if n > 0 {
			if redraw {
				fmt.Fprint(g.Stdout, "\x1b[H\x1b[2J")
			}
			lines := topLines(list, last, now)
			switch {
			case asJSON:
				err = print(lines)
			case n == 1 || len(list)+len(last.usage) > 0: // that nothing runs is printed once
				err = g.printTop(thread, lines, now)
			}
			if err != nil {
				return err
			}
			if n == count {
				return nil
			}
		}
		last = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// topLines adds what processes used since the last measurement.
func topLines(list []schemas.ProcessInfo, last, now sample) []topLine {
	lines := make([]topLine, len(list))
	for i, p := range list {
		lines[i].ProcessInfo = p
		if before := last.usage[p.Process]; p.Usage != nil && before != nil {
			// A descendant that ended without its parent's wait takes its time with it.
			used := max(0, cpuTime(p.Usage)-cpuTime(before))
			percent := 100 * used.Seconds() / now.at.Sub(last.at).Seconds()
			lines[i].CPU = &percent
		}
	}
	return lines
}

func (g *globals) printTop(thread string, lines []topLine, now sample) error {
	t := g.list("no process of thread "+thread+" runs: `sluice ps` shows those of all threads", "PROCESS", "CPU", "MEMORY", "PIDS", "CPU TIME", "AGE", "COMMAND…").
		leaveOut("AGE", "CPU TIME", "PIDS", "COMMAND", "MEMORY")
	for _, p := range lines {
		cpu, memory, pids, total := "", "", "", ""
		if u := p.Usage; u != nil {
			total, memory, pids = cpuTime(u).Round(10*time.Millisecond).String(), byteSize(u.MemoryBytes), fmt.Sprint(u.Processes)
		}
		if p.CPU != nil {
			cpu = fmt.Sprintf("%.1f%%", *p.CPU)
		}
		t.row(p.Process, cpu, memory, pids, total, age(p.Started, now.at), commandLine(p.Command, p.Args))
	}
	return t.print()
}
