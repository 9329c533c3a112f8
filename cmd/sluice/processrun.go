package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

// isProcessID reports whether a user gave the id of a process, and not the name that --id gave it.
func isProcessID(arg string) bool {
	return regexp.MustCompile(`^p[0-9a-hjkmnp-tv-z]{25}$`).MatchString(arg)
}

// named is the id of a process on record, of which the user gave the id, or with the thread the name. Errors: not_found for a name,
// invalid_argument, unavailable.
func named(ctx context.Context, c *client.Client, thread, arg string) (string, error) {
	switch {
	case isProcessID(arg):
		return arg, nil
	case thread == "":
		if err := schemas.CheckID("process", arg); err != nil {
			return "", err
		}
		return "", schemas.Errorf(schemas.CodeNotFound,
			"%q is not the id of a process: `sluice process list --all` shows them; a name of --id needs its --thread", arg)
	}
	id := c.ProcessID(thread, arg)
	_, err := c.Process(ctx, thread, id)
	if errors.Is(err, schemas.ErrNotFound) {
		err = schemas.Errorf(schemas.CodeNotFound,
			"thread %s has no process %q on record: `sluice process list --all --thread %[1]s` shows those it has", thread, arg)
	}
	return id, err
}

// process returns a handle on the process that the user gave as for named.
func process(ctx context.Context, c *client.Client, thread, arg string) (*client.Process, error) {
	id, err := named(ctx, c, thread, arg)
	if err != nil {
		return nil, err
	}
	return c.Process(ctx, thread, id)
}

func processStartCommand(g *globals) *cobra.Command {
	var run commandFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "start [flags] -- COMMAND [ARG…]",
		Short: "Start a process in the background, and print its id",
		Long: `Start a process in the background, and print its id at once. It runs until it ends, is killed, or
its sandbox ends. --id gives it a name of your own, which the other commands take with --thread: a
second start of the same command under this name starts nothing, and prints the same id. It needs a
server that stays: start one with "sluice up".`,
		Example: `  sluice process start --thread t1 -- make all
  sluice process start --thread t1 --id web -- python3 -m http.server
  sluice process start --thread t1 --id sh --stdin-open -- bash
  sluice process start --thread t1 --stdin-from sh -- tee sh.log  # joins the two`,
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := run.request(cmd, g, args)
			if err != nil {
				return err
			}
			return g.detach(cmd.Context(), req, hostOptions{}, asJSON)
		},
	}
	run.add(c, g)
	threadFlag(c, &run.Thread, defaultThread, threadUsage)
	jsonFlag(c, &asJSON, "the process as one JSON object")
	c.Flags().StringVar(&run.Key, "id", "", "`NAME` of the process in its thread, which is its key; default: a new process each time")
	c.Flags().StringVar(&run.StdinFrom, "stdin-from", "", "`PROCESS` of the thread whose output is the standard input; an id, or a name of --id")
	c.Flags().BoolVar(&run.AutoCleanup, "auto-cleanup", false, "leave it out of lists once it has ended")
	c.Flags().BoolVar(&run.Main, "main", false, "end the session with it, as completed with its exit code")
	c.Flags().BoolVarP(&run.StdinOpen, "stdin-open", "i", false, "leave its standard input open, for \"sluice process stdin\"")
	return c
}

func processGetCommand(g *globals) *cobra.Command {
	var thread string
	var asJSON bool
	c := &cobra.Command{
		Use:   "get PROCESS",
		Short: "Show a process",
		Example: `  sluice process get p1q2w3…
  sluice process get --thread t1 web --json`,
		Args: oneProcess,
		RunE: g.read(func(ctx context.Context, c *client.Client, args []string) error {
			p, err := process(ctx, c, thread, args[0])
			if err != nil {
				return err
			}
			info, err := p.Info(ctx)
			if err != nil {
				return err
			}
			return printResult(g.Main, asJSON, info, printProcess)
		}),
	}
	threadFlag(c, &thread, "", "`THREAD` of the process, which a name of --id needs; default: found by the process id")
	jsonFlag(c, &asJSON, "one JSON object")
	return c
}

func printProcess(m *Main, p *schemas.ProcessInfo) error {
	t := m.table()
	t.row("process", p.Process)
	t.row("thread", p.Thread)
	t.row("status", string(p.Status))
	t.row("command", commandLine(p.Command, p.Args))
	t.row("worker", p.Worker)
	t.row("started", localTime(p.Started))
	if p.PID > 0 {
		t.row("pid", fmt.Sprint(p.PID))
	}
	if p.ExitCode != nil {
		t.row("ended", localTime(p.Ended))
		t.row("exit code", fmt.Sprint(*p.ExitCode))
		t.row("reason", string(p.Reason))
	}
	return t.print()
}

// ended is a process that `process wait` has waited for, as --json prints it.
type ended struct {
	Process  string                `json:"process"`
	Status   schemas.ProcessStatus `json:"status"`
	ExitCode *int                  `json:"exit_code,omitempty"`
}

func processWaitCommand(g *globals) *cobra.Command {
	var thread string
	var timeout time.Duration
	var anyOne, asJSON bool
	c := &cobra.Command{
		Use:   "wait PROCESS…",
		Short: "Wait until processes have ended",
		Long: `Wait until all processes have ended, or with --any one of them, and print the status of each. The
exit code is that of the process if there is one PROCESS; else 0 if all that have ended completed,
and 1 if not. It is 124 if the timeout came first: the processes go on.`,
		Example: `  sluice process wait p1q2w3…
  sluice process wait --thread t1 --timeout 5m web worker`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return oneProcess(c, args)
			}
			return nil
		},
		RunE: g.read(func(ctx context.Context, c *client.Client, args []string) error {
			list, err := waitFor(ctx, c, thread, args, timeout, anyOne)
			if err != nil {
				return err
			}
			if err := printResult(g.Main, asJSON, list, printEnded); err != nil {
				return err
			}
			return waitExit(list, anyOne)
		}),
	}
	threadFlag(c, &thread, "", "`THREAD` of the processes, which names of --id need; default: found by the process ids")
	jsonFlag(c, &asJSON, "one JSON array")
	spanVar(c.Flags(), &timeout, "timeout", 0, "most `DURATION` to wait, such as 30s; default: without an end")
	c.Flags().BoolVar(&anyOne, "any", false, "wait until one of them has ended")
	return c
}

// waitFor waits for processes, and returns what became of each.
func waitFor(ctx context.Context, c *client.Client, thread string, args []string, timeout time.Duration, anyOne bool) ([]ended, error) {
	processes := make([]*client.Process, len(args))
	for i, arg := range args {
		p, err := process(ctx, c, thread, arg)
		if err != nil {
			return nil, err
		}
		processes[i] = p
	}
	n, wait, cancel := 0, ctx, context.CancelFunc(func() {})
	if anyOne {
		n = 1
	}
	if timeout > 0 {
		wait, cancel = context.WithTimeout(ctx, timeout)
	}
	defer cancel()
	client.Wait(wait, n, processes...)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	list := make([]ended, len(args))
	for i, p := range processes {
		info, err := p.Info(ctx)
		if err != nil {
			return nil, err
		}
		list[i] = ended{info.Process, info.Status, info.ExitCode}
	}
	return list, nil
}

func printEnded(m *Main, list []ended) error {
	t := m.table()
	for _, p := range list {
		code := ""
		if p.ExitCode != nil {
			code = fmt.Sprint(*p.ExitCode)
		}
		t.row(p.Process, string(p.Status), code)
	}
	return t.print()
}

// waitExit is the exit code of a wait.
func waitExit(list []ended, anyOne bool) error {
	code, left := 0, 0
	for _, p := range list {
		switch {
		case p.ExitCode == nil:
			left++
		case len(list) == 1:
			code = *p.ExitCode
		case *p.ExitCode != 0:
			code = 1
		}
	}
	if left == len(list) || left > 0 && !anyOne {
		code = schemas.ExitTimedOut
	}
	if code == 0 {
		return nil
	}
	return exitCode(code)
}

func processLogsCommand(g *globals) *cobra.Command {
	c := logsCommand(g)
	c.Example = strings.ReplaceAll(c.Example, "sluice logs", "sluice process logs")
	return c
}

func processFollowCommand(g *globals) *cobra.Command {
	c := logsCommand(g)
	c.Use, c.Short = "follow [flags] PROCESS", "Print a process's output as it comes, until the process ends"
	c.Example = "  sluice process follow p1q2w3…"
	follow := c.Flags().Lookup("follow")
	follow.Hidden = true
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return errors.Join(follow.Value.Set("true"), run(cmd, args))
	}
	return c
}

func processCleanCommand(g *globals) *cobra.Command {
	var thread string
	c := &cobra.Command{
		Use:   "clean",
		Short: "Take the ended processes of a thread out of lists",
		Long: `Take the processes of a thread that have ended out of lists, and print how many. Their records
and output stay for their age: a process is still found by its id, and a repeated command gets its
result.`,
		Example: `  sluice process clean t1`,
		RunE: g.act(func(ctx context.Context, c *client.Client, _ []string) error {
			n, err := c.CleanProcesses(ctx, thread)
			if err == nil {
				_, err = fmt.Fprintln(g.Stdout, n)
			}
			return err
		}),
	}
	threadArg(c, &thread, "`THREAD` of the processes")
	return c
}

func processStdinCommand(g *globals) *cobra.Command {
	var thread string
	var keepOpen bool
	c := &cobra.Command{
		Use:   "stdin PROCESS",
		Short: "Write to the standard input of a process, and close it",
		Long: `Write this command's standard input to that of a process which was started with --stdin-open, and
close it at the end. One program may write at a time.`,
		Example: `  echo 'ls -l' | sluice process stdin --keep-open p1q2w3…
  sluice process stdin --thread t1 sh < script.sh`,
		Args: oneProcess,
		RunE: g.act(func(ctx context.Context, c *client.Client, args []string) error {
			id, err := named(ctx, c, thread, args[0])
			if err != nil {
				return err
			}
			p, err := c.Process(ctx, thread, id)
			if err != nil {
				return err
			}
			buf := make([]byte, events.MaxStdinPiece)
			for {
				n, err := g.Stdin.Read(buf)
				if n > 0 {
					if err := p.WriteStdin(ctx, buf[:n]); err != nil {
						return err
					}
				}
				switch {
				case errors.Is(err, io.EOF) && keepOpen:
					return nil
				case errors.Is(err, io.EOF):
					return p.CloseStdin(ctx)
				case err != nil:
					return fmt.Errorf("read standard input: %w", err)
				}
			}
		}),
	}
	threadFlag(c, &thread, "", "`THREAD` of the process, which a name of --id needs; default: found by the process id")
	c.Flags().BoolVar(&keepOpen, "keep-open", false, "leave the standard input of the process open")
	return c
}
