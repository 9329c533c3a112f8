package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
)

func (m *Main) processCommand(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "process",
		Short: "List and end processes",
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
		Short: "List processes: those that run, or all on record",
		Example: `  sluice process list
  sluice process list --all --thread t1 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return m.with(cmd.Context(), g, func(ctx context.Context, c *client.Client) error {
				list, err := c.Processes(ctx, thread)
				if err != nil {
					return err
				}
				if !all {
					list = running(list)
				}
				return m.printProcesses(list, asJSON, all)
			})
		},
	}
	c.Flags().StringVarP(&thread, "thread", "t", "", "only this `THREAD`'s")
	c.Flags().BoolVarP(&all, "all", "a", false, "ended ones too, as far back as events are kept")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON array")
	return c
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
	if len(list) == 0 && !all {
		m.note("nothing runs; --all shows what has ended")
		return nil
	}
	w := tabwriter.NewWriter(m.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROCESS\tTHREAD\tSTATE\tEXIT\tSINCE\tCOMMAND")
	for _, p := range list {
		exit := "-"
		if p.ExitCode != nil {
			exit = fmt.Sprint(*p.ExitCode)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", oneLine(p.ID), oneLine(p.Thread), oneLine(p.State), exit, p.Accepted.Local().Format(time.DateTime), commandLine(p.Command, p.Args))
	}
	return w.Flush()
}

// maxShownCommand is how much of a command a table shows.
const maxShownCommand = 60

// commandLine is a command for people, on one line.
func commandLine(command string, args []string) string {
	s := oneLine(strings.Join(append([]string{command}, args...), " "))
	if r := []rune(s); len(r) > maxShownCommand {
		return string(r[:maxShownCommand]) + "…"
	}
	return s
}

func (m *Main) processKillCommand(g *globals) *cobra.Command {
	var thread, signal string
	var grace time.Duration
	c := &cobra.Command{
		Use:   "kill PROCESS",
		Short: "End a process and all it has started, or send it a signal",
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
	c.Flags().StringVarP(&thread, "thread", "t", "", "the process's `THREAD`; default: found by the process's id")
	c.Flags().StringVarP(&signal, "signal", "s", "", "send this `SIGNAL` to the process group instead, such as SIGINT")
	c.Flags().DurationVar(&grace, "grace", 10*time.Second, "time `D` between SIGTERM and SIGKILL")
	return c
}
