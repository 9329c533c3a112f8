package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func processCommand(g *globals) *cobra.Command {
	return withCommands(&cobra.Command{
		Use:   "process",
		Short: "Start, list, watch and end processes",
		Example: `  sluice process start --thread t1 --id web -- python3 -m http.server
  sluice process list
  sluice process wait --thread t1 web
  sluice process kill p1q2w3…`,
	}, processStartCommand(g), processListCommand(g), processGetCommand(g), processWaitCommand(g), processLogsCommand(g), processFollowCommand(g),
		processStdinCommand(g), processKillCommand(g), processCancelCommand(g), processCleanCommand(g))
}

func processListCommand(g *globals) *cobra.Command {
	var q client.ProcessQuery
	c := listProcesses(g, &q, &cobra.Command{
		Use:   "list",
		Short: "List the processes that run, or all on record",
		Long: `List the processes that run, or with --all also those that have ended, the newest first. A long list
comes in pages: --before continues it after the last process of the previous page.`,
		Example: `  sluice process list
  sluice process list --all --thread t1 --json
  sluice process list --all --limit 20 --before 4711`,
	})
	f := c.Flags()
	f.BoolVar(&q.Usage, "stats", false, "also show the CPU time, the memory and the number of processes of each that runs")
	f.BoolVarP(&q.All, "all", "a", false, "also list ended processes, as far back as events are kept")
	f.IntVar(&q.Limit, "limit", 100, "most ended processes `N`")
	f.Uint64Var(&q.Before, "before", 0, "only processes that ended before this `SEQUENCE` of events; --json shows them as seq")
	return c
}

// psCommand is `process list` without the ended processes.
func psCommand(g *globals) *cobra.Command {
	return listProcesses(g, new(client.ProcessQuery), &cobra.Command{
		Use:   "ps",
		Short: "List the processes that run",
		Example: `  sluice ps
  sluice ps --thread t1 --json`,
	})
}

// listProcesses makes c list the processes of a query.
func listProcesses(g *globals, q *client.ProcessQuery, c *cobra.Command) *cobra.Command {
	var asJSON bool
	c.Args = noArgs
	c.RunE = g.read(func(ctx context.Context, c *client.Client, _ []string) error {
		if q.All && q.Limit < 1 {
			return schemas.Errorf(schemas.CodeInvalidArgument, "--limit is %d: it must be at least 1", q.Limit)
		}
		if q.Usage && q.All && !asJSON {
			return schemas.Errorf(schemas.CodeInvalidArgument, "--stats is for what runs: leave out --all, or add --json")
		}
		if q.Before > 0 && !q.All {
			return schemas.Errorf(schemas.CodeInvalidArgument, "--before is for ended processes: add --all")
		}
		list, err := c.Processes(ctx, *q)
		if err != nil {
			return err
		}
		switch {
		case q.All:
		case q.Usage:
			return printResult(g.Main, asJSON, list, printStats)
		default:
			return printResult(g.Main, asJSON, list, printRunning)
		}
		if err := printResult(g.Main, asJSON, list, printProcesses); err != nil {
			return err
		}
		if n := len(list); n >= q.Limit && list[n-1].Seq > 0 {
			g.notice(fmt.Sprintf("there may be more: --before %d continues the list", list[n-1].Seq))
		}
		return nil
	})
	threadFlag(c, &q.Thread, "", "only processes of this `THREAD`")
	jsonFlag(c, &asJSON, "one JSON array")
	return c
}

func printRunning(m *Main, list []schemas.ProcessInfo) error {
	t, now := m.list("no process runs: `sluice process list --all` shows those that ended", "PROCESS", "THREAD…", "STATUS", "AGE", "COMMAND…").leaveOut("AGE", "STATUS", "THREAD"), time.Now()
	for _, p := range list {
		t.row(p.Process, p.Thread, string(p.Status), age(p.Started, now), commandLine(p.Command, p.Args))
	}
	return t.print()
}

func printProcesses(m *Main, list []schemas.ProcessInfo) error {
	t := m.list("no process is on record: `sluice exec` runs one", "PROCESS", "THREAD…", "STATUS", "EXIT", "STARTED", "COMMAND…").leaveOut("STARTED", "THREAD", "EXIT")
	for _, p := range list {
		exit := ""
		if p.ExitCode != nil {
			exit = fmt.Sprint(*p.ExitCode)
		}
		t.row(p.Process, p.Thread, string(p.Status), exit, localTime(p.Started), commandLine(p.Command, p.Args))
	}
	return t.print()
}

func processKillCommand(g *globals) *cobra.Command {
	var thread, signal string
	var grace time.Duration
	var all bool
	c := &cobra.Command{
		Use:   "kill PROCESS",
		Short: "Kill a process and its children, or send it a signal",
		Long: `Kill a process and its children, or send it a signal. --all kills all processes of a thread that a
worker has accepted, and prints how many.`,
		Example: `  sluice process kill p1q2w3…
  sluice process kill --thread t1 --signal SIGHUP web
  sluice process kill --all --thread t1`,
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case !all:
				return oneProcess(c, args)
			case thread == "":
				return schemas.Errorf(schemas.CodeInvalidArgument, "--all needs a --thread: only the processes of one thread are killed")
			case signal != "":
				return schemas.Errorf(schemas.CodeInvalidArgument, "--all kills: leave out --signal")
			default:
				return noArgs(c, args)
			}
		},
		RunE: g.act(func(ctx context.Context, c *client.Client, args []string) error {
			if all {
				n, err := c.KillAll(ctx, thread, grace)
				if err == nil {
					_, err = fmt.Fprintln(g.Stdout, n)
				}
				return err
			}
			p, err := process(ctx, c, thread, args[0])
			switch {
			case err != nil:
				return err
			case signal != "":
				return p.Signal(ctx, signal)
			default:
				return p.Kill(ctx, grace)
			}
		}),
	}
	threadFlag(c, &thread, "", "`THREAD` of the process; default: found by the process id")
	graceFlag(c, &grace, 10*time.Second, "")
	c.Flags().StringVarP(&signal, "signal", "s", "", "send this `SIGNAL`, such as SIGINT, to the process group instead")
	c.Flags().BoolVarP(&all, "all", "a", false, "kill all processes of the thread")
	return c
}

func processCancelCommand(g *globals) *cobra.Command {
	var thread, key string
	c := &cobra.Command{
		Use:   "cancel PROCESS",
		Short: "Keep a queued command from running, or kill its process",
		Long: `Keep a queued command from running, also when no worker runs now. A process that runs is killed
at once. A queued command has no record: name its thread, and its process, its --id or its key.`,
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
			switch {
			case key != "":
				return c.Cancel(ctx, thread, c.ProcessID(thread, key))
			case isProcessID(args[0]):
				return c.Cancel(ctx, thread, args[0])
			case thread == "":
				_, err := named(ctx, c, thread, args[0])
				return err
			default: // also without a record: it may be queued
				return c.Cancel(ctx, thread, c.ProcessID(thread, args[0]))
			}
		}),
	}
	threadFlag(c, &thread, "", "`THREAD` of the command; default: found by the process id, if it is on record")
	c.Flags().StringVar(&key, "key", "", "`KEY` of the command, in place of PROCESS")
	return c
}
