package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func processCommand(g *globals) *cobra.Command {
	return withCommands(&cobra.Command{
		Use:   "process",
		Short: "List, kill and cancel processes",
		Example: `  sluice process list
  sluice process kill p1q2w3…`,
	}, processListCommand(g), processKillCommand(g), processCancelCommand(g))
}

func processListCommand(g *globals) *cobra.Command {
	var all bool
	c := listProcesses(g, &all, &cobra.Command{
		Use:   "list",
		Short: "List the processes that run, or all on record",
		Example: `  sluice process list
  sluice process list --all --thread t1 --json`,
	})
	c.Flags().BoolVarP(&all, "all", "a", false, "also list ended processes, as far back as events are kept")
	return c
}

// psCommand is `process list` without the ended processes.
func psCommand(g *globals) *cobra.Command {
	return listProcesses(g, new(bool), &cobra.Command{
		Use:   "ps",
		Short: "List the processes that run",
		Example: `  sluice ps
  sluice ps --thread t1 --json`,
	})
}

// listProcesses makes c list the processes that run, or all processes on record.
func listProcesses(g *globals, all *bool, c *cobra.Command) *cobra.Command {
	var thread string
	var asJSON bool
	c.Args = noArgs
	c.RunE = g.read(func(ctx context.Context, c *client.Client, _ []string) error {
		list, err := c.Processes(ctx, thread)
		if err != nil {
			return err
		}
		if *all {
			return printResult(g.Main, asJSON, list, printProcesses)
		}
		list = slices.DeleteFunc(list, func(p client.ProcessInfo) bool { return p.Ended != nil })
		return printResult(g.Main, asJSON, list, printRunning)
	})
	threadFlag(c, &thread, "", "only processes of this `THREAD`")
	jsonFlag(c, &asJSON, "one JSON array")
	return c
}

func printRunning(m *Main, list []client.ProcessInfo) error {
	t, now := m.list("no process runs: `sluice process list --all` shows those that ended", "PROCESS", "THREAD", "STATE", "AGE", "COMMAND"), time.Now()
	for _, p := range list {
		t.row(p.ID, p.Thread, p.State, age(p.Accepted, now), commandLine(p.Command, p.Args))
	}
	return t.print()
}

func printProcesses(m *Main, list []client.ProcessInfo) error {
	t := m.list("no process is on record: `sluice exec` runs one", "PROCESS", "THREAD", "STATE", "EXIT", "ACCEPTED", "COMMAND")
	for _, p := range list {
		exit := ""
		if p.ExitCode != nil {
			exit = fmt.Sprint(*p.ExitCode)
		}
		t.row(p.ID, p.Thread, p.State, exit, localTime(p.Accepted), commandLine(p.Command, p.Args))
	}
	return t.print()
}

func processKillCommand(g *globals) *cobra.Command {
	var thread, signal string
	var grace time.Duration
	c := &cobra.Command{
		Use:   "kill PROCESS",
		Short: "Kill a process and its children, or send it a signal",
		Example: `  sluice process kill p1q2w3…
  sluice process kill --signal SIGHUP p1q2w3…`,
		Args: oneProcess,
		RunE: g.act(func(ctx context.Context, c *client.Client, args []string) error {
			if signal != "" {
				return c.Signal(ctx, thread, args[0], signal)
			}
			return c.Kill(ctx, thread, args[0], grace)
		}),
	}
	threadFlag(c, &thread, "", "`THREAD` of the process; default: found by the process id")
	graceFlag(c, &grace, 10*time.Second, "")
	c.Flags().StringVarP(&signal, "signal", "s", "", "send this `SIGNAL`, such as SIGINT, to the process group instead")
	return c
}

func processCancelCommand(g *globals) *cobra.Command {
	var thread, key string
	c := &cobra.Command{
		Use:   "cancel PROCESS",
		Short: "Keep a queued command from running, or kill its process",
		Long: `Keep a queued command from running, also when no worker runs now. A process that runs is killed
at once. A queued command has no record: name its thread, and its process or its key.`,
		Example: `  sluice process cancel --thread t1 p1q2w3…
  sluice process cancel --thread t1 --key build-42`,
		Args: func(c *cobra.Command, args []string) error {
			if key == "" {
				return oneProcess(c, args)
			}
			if thread == "" {
				return schemas.Errorf(schemas.CodeInvalidArgument, "--key needs the --thread of the command")
			}
			return noArgs(c, args)
		},
		RunE: g.act(func(ctx context.Context, c *client.Client, args []string) error {
			if key != "" {
				args = []string{schemas.ProcessID(g.tenant, thread, key)}
			}
			return c.Cancel(ctx, thread, args[0])
		}),
	}
	threadFlag(c, &thread, "", "`THREAD` of the command; default: found by the process id, if it is on record")
	c.Flags().StringVar(&key, "key", "", "`KEY` of the command, in place of PROCESS")
	return c
}
