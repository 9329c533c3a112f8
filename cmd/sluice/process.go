package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
)

func (m *Main) processCommand(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "process",
		Short: "List and kill processes",
		Example: `  sluice process list
  sluice process kill p1q2w3…`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	c.AddCommand(m.processListCommand(g), m.processKillCommand(g))
	return c
}

func (m *Main) processListCommand(g *globals) *cobra.Command {
	var thread string
	var asJSON, all bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the processes that run, or all on record",
		Example: `  sluice process list
  sluice process list --all --thread t1 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return m.listProcesses(cmd.Context(), g, thread, all, asJSON)
		},
	}
	threadFlag(c, &thread, "", "only processes of this `THREAD`")
	jsonFlag(c, &asJSON, "one JSON array")
	c.Flags().BoolVarP(&all, "all", "a", false, "also list ended processes, as far back as events are kept")
	return c
}

// psCommand is `process list` without the ended processes.
func (m *Main) psCommand(g *globals) *cobra.Command {
	var thread string
	var asJSON bool
	c := &cobra.Command{
		Use:   "ps",
		Short: "List the processes that run",
		Example: `  sluice ps
  sluice ps --thread t1 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return m.listProcesses(cmd.Context(), g, thread, false, asJSON)
		},
	}
	threadFlag(c, &thread, "", "only processes of this `THREAD`")
	jsonFlag(c, &asJSON, "one JSON array")
	return c
}

func (m *Main) listProcesses(ctx context.Context, g *globals, thread string, all, asJSON bool) error {
	return m.with(ctx, g, func(ctx context.Context, c *client.Client) error {
		list, err := c.Processes(ctx, thread)
		if err != nil {
			return err
		}
		if !all {
			list = running(list)
		}
		return m.printProcesses(list, asJSON, all)
	})
}

func running(list []client.ProcessInfo) []client.ProcessInfo {
	out := make([]client.ProcessInfo, 0, len(list))
	for _, p := range list {
		if p.Ended == nil {
			out = append(out, p)
		}
	}
	return out
}

func (m *Main) printProcesses(list []client.ProcessInfo, asJSON, all bool) error {
	if asJSON {
		return m.printJSON(list)
	}
	if !all && len(list) == 0 {
		m.notice("no process runs: `sluice process list --all` shows those that ended")
		return nil
	}
	now := time.Now()
	if !all {
		t := m.table("PROCESS", "THREAD", "STATE", "AGE", "COMMAND")
		for _, p := range list {
			t.row(p.ID, p.Thread, p.State, age(p.Accepted, now), commandLine(p.Command, p.Args))
		}
		return t.print()
	}
	t := m.table("PROCESS", "THREAD", "STATE", "EXIT", "ACCEPTED", "COMMAND")
	for _, p := range list {
		exit := ""
		if p.ExitCode != nil {
			exit = fmt.Sprint(*p.ExitCode)
		}
		t.row(p.ID, p.Thread, p.State, exit, localTime(p.Accepted), commandLine(p.Command, p.Args))
	}
	return t.print()
}

func (m *Main) processKillCommand(g *globals) *cobra.Command {
	var thread, signal string
	var grace time.Duration
	c := &cobra.Command{
		Use:   "kill PROCESS",
		Short: "Kill a process and its children, or send it a signal",
		Example: `  sluice process kill p1q2w3…
  sluice process kill --signal SIGHUP p1q2w3…`,
		Args: oneProcess,
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.with(cmd.Context(), g, func(ctx context.Context, c *client.Client) error {
				if signal != "" {
					return c.Signal(ctx, thread, args[0], signal)
				}
				return c.Kill(ctx, thread, args[0], grace)
			})
		},
	}
	threadFlag(c, &thread, "", "`THREAD` of the process; default: found by the process id")
	graceFlag(c, &grace, 10*time.Second, "")
	c.Flags().StringVarP(&signal, "signal", "s", "", "send this `SIGNAL`, such as SIGINT, to the process group instead")
	return c
}
