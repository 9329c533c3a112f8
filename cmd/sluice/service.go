package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func serviceCommand(g *globals) *cobra.Command {
	return withCommands(&cobra.Command{
		Use:   "service",
		Short: "Start, list and stop services: processes that are supervised",
		Long: `Start, list and stop services. A service is a process of a thread that runs until it is stopped,
with a health check. Its worker starts it again when it ends or does not answer, three times in a
row at most. A worker that is killed and comes back goes on with its services.`,
		Example: `  sluice service start --health-port 8000 --health-path /health t1 web -- python3 server.py
  sluice service list
  sluice service logs t1 web
  sluice service stop t1 web`,
	}, serviceStartCommand(g), serviceListCommand(g), serviceGetCommand(g), serviceLogsCommand(g), serviceStopCommand(g))
}

// serviceArgs checks the arguments THREAD NAME.
func serviceArgs(c *cobra.Command, args []string) error {
	return exactArgs(2, "THREAD and NAME")(c, args)
}

// serviceError adds the way out to the error of a service that does not exist.
func serviceError(err error) error {
	if !errors.Is(err, schemas.ErrNotFound) {
		return err
	}
	return schemas.Errorf(schemas.CodeNotFound, "%w: `sluice service list` shows those on record", err)
}

func serviceStartCommand(g *globals) *cobra.Command {
	var req client.ServiceRequest
	var check schemas.HealthCheck
	var health []string
	var env []string
	var start, grace, interval, timeout time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use:   "start [flags] THREAD NAME -- COMMAND [ARG…]",
		Short: "Start a service, and wait until it is healthy",
		Long: `Start a service, and wait until it is healthy: until its health check succeeds, or without one until
its process runs. A service that runs is joined, if its command is the same. A start that fails is
tried twice again; "sluice service logs" shows what it printed.`,
		Example: `  sluice service start --health-port 8000 --health-path /health t1 web -- python3 server.py
  sluice service start --health-socket /tmp/db.sock t1 db -- ./db --socket /tmp/db.sock
  sluice service start --health-command ./check --dir app t1 w -- ./work`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 2 || len(args) < 3 {
				return schemas.Errorf(schemas.CodeInvalidArgument,
					"`%s` takes THREAD NAME -- COMMAND, such as t1 web -- python3 server.py: see `%[1]s --help`", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			place := client.Request{Provider: req.Provider, Image: req.Image}
			if err = g.checkProvider(cmd.Context(), &place); err != nil {
				return err
			}
			req.Provider = place.Provider
			if req.Env, err = parsePairs("--env", env); err != nil {
				return err
			}
			req.Name, req.Command, req.Args = args[1], args[2], args[3:]
			req.StartTimeoutMS, req.GraceMS = start.Milliseconds(), grace.Milliseconds()
			check.IntervalMS, check.TimeoutMS, check.Command = interval.Milliseconds(), timeout.Milliseconds(), health
			if req.Health, err = oneCheck(cmd.Flags(), &check); err != nil {
				return err
			}
			return g.with(cmd.Context(), hostOptions{}, func(ctx context.Context, c *client.Client) error {
				services := c.Services(args[0])
				s, err := services.Start(ctx, req)
				if err != nil {
					if s, lookErr := services.Get(ctx, req.Name); lookErr == nil && s.State == schemas.ServiceFailed {
						err = schemas.Errorf(schemas.CodeOf(err),
							"%w: `sluice service logs %s %s` shows what it printed", err, args[0], req.Name)
					}
					return err
				}
				return printResult(g.Main, asJSON, infoOf(s), printService)
			})
		},
	}
	f := c.Flags()
	f.Int64Var(&check.Port, "health-port", 0, "TCP `PORT` in the sandbox that has to accept connections")
	f.StringVar(&check.Socket, "health-socket", "", "unix socket `PATH` in the sandbox that has to accept connections")
	f.StringArrayVar(&health, "health-command", nil, "`PROGRAM` that has to exit with 0; repeat it for each argument")
	f.StringVar(&check.Path, "health-path", "", "`PATH` of an HTTP request to the port or socket that has to be answered with 2xx; default: a connection is enough")
	f.DurationVar(&interval, "health-interval", 0, "`DURATION` between two checks of a running service; default 10s")
	f.DurationVar(&timeout, "health-timeout", 0, "`DURATION` of one check at most; default 2s")
	f.DurationVar(&start, "start-timeout", 0, "`DURATION` until it has to be healthy; default 30s")
	graceFlag(c, &grace, 0, "; default 5s")
	f.StringVarP(&req.Cwd, "dir", "C", "", "working `FOLDER` in the workspace")
	f.StringArrayVarP(&env, "env", "e", nil, "environment `NAME=VALUE`; may be repeated")
	imageFlag(c, &req.Image)
	f.StringVar(&req.Template, "template", "", "`TEMPLATE` of the session that the service creates; default: the worker's")
	providerFlag(c, &req.Provider, "", "; default: the template's")
	jsonFlag(c, &asJSON, "one JSON object")
	return c
}

// oneCheck returns the health check that flags describe, nil for none. Errors: invalid_argument.
func oneCheck(f *pflag.FlagSet, check *schemas.HealthCheck) (*schemas.HealthCheck, error) {
	ways := 0
	for _, flag := range []string{"health-port", "health-socket", "health-command"} {
		if f.Changed(flag) {
			ways++
		}
	}
	switch {
	case f.Changed("health-port") && check.Port == 0:
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "--health-port is 0: name the port that the service listens on, or leave it out for no check")
	case f.Changed("health-socket") && check.Socket == "":
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "--health-socket is empty: name the socket that the service listens on, or leave it out for no check")
	case ways > 1:
		return nil, schemas.Errorf(schemas.CodeInvalidArgument,
			"a service has one health check: use one of --health-port, --health-socket and --health-command")
	case ways == 1:
		return check, nil
	case check.Path != "":
		return nil, schemas.Errorf(schemas.CodeInvalidArgument,
			"--health-path is requested from a port or a socket: add --health-port or --health-socket")
	default:
		return nil, nil
	}
}

func serviceListCommand(g *globals) *cobra.Command {
	var thread string
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List services",
		Long: `List the services of all threads, or of one, as their workers last recorded them. One that has
ended is listed as long as events are kept.`,
		Example: `  sluice service list
  sluice service list --thread t1 --json`,
		Args: noArgs,
		RunE: g.read(func(ctx context.Context, c *client.Client, _ []string) error {
			list, err := c.Services(thread).List(ctx)
			if err != nil {
				return err
			}
			infos := make([]serviceInfo, len(list))
			for i := range list {
				infos[i] = infoOf(&list[i])
			}
			return printResult(g.Main, asJSON, infos, printServices)
		}),
	}
	threadFlag(c, &thread, "", "`THREAD` of the services; default: all")
	jsonFlag(c, &asJSON, "one JSON array")
	return c
}

func serviceGetCommand(g *globals) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "get [flags] THREAD NAME",
		Aliases: []string{"status"},
		Short:   "Show a service",
		Example: `  sluice service get t1 web`,
		Args:    serviceArgs,
		RunE: g.read(func(ctx context.Context, c *client.Client, args []string) error {
			s, err := c.Services(args[0]).Get(ctx, args[1])
			if err != nil {
				return serviceError(err)
			}
			return printResult(g.Main, asJSON, infoOf(s), printService)
		}),
	}
	jsonFlag(c, &asJSON, "one JSON object")
	return c
}

func serviceLogsCommand(g *globals) *cobra.Command {
	tail := 100
	var asJSON bool
	c := &cobra.Command{
		Use:   "logs [flags] THREAD NAME",
		Short: "Print the last lines of a service, over its restarts",
		Long: `Print the last lines of a service, of both streams and over its restarts, each with its time.
All of the output is that of its process: "sluice service get" shows the id, and "sluice logs -f"
follows it.`,
		Example: `  sluice service logs --tail 20 t1 web
  sluice service logs t1 web --json`,
		Args: serviceArgs,
		RunE: g.read(func(ctx context.Context, c *client.Client, args []string) error {
			if tail < 1 || tail > client.MaxServiceLines {
				return schemas.Errorf(schemas.CodeInvalidArgument, "--tail is %d: it must be from 1 to %d", tail, client.MaxServiceLines)
			}
			lines, err := c.Services(args[0]).Logs(ctx, args[1], tail)
			if asJSON && err == nil {
				return g.printJSON(append([]string{}, lines...))
			}
			for _, line := range lines {
				fmt.Fprintln(g.Stdout, printable(line))
			}
			return serviceError(err)
		}),
	}
	jsonFlag(c, &asJSON, "one JSON array of lines")
	c.Flags().IntVar(&tail, "tail", tail, "at most the last `N` lines, up to 1000")
	return c
}

func serviceStopCommand(g *globals) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "stop THREAD NAME",
		Short: "Stop a service, and wait for its end",
		Long: `Stop a service, and wait for its end: its process and all that it started get SIGTERM, and SIGKILL
after the grace of its start. One that has ended before is no error.`,
		Example: `  sluice service stop t1 web`,
		Args:    serviceArgs,
		RunE: g.read(func(ctx context.Context, c *client.Client, args []string) error {
			s, err := c.Services(args[0]).Stop(ctx, args[1])
			if err != nil {
				return serviceError(err)
			}
			if asJSON {
				return g.printJSON(infoOf(s))
			}
			g.notice(fmt.Sprintf("service %s of thread %s is %s", s.Name, s.Thread, s.State))
			return nil
		}),
	}
	jsonFlag(c, &asJSON, "one JSON object")
	return c
}

// serviceInfo is a service as it is shown: its record, and what follows from it.
type serviceInfo struct {
	*schemas.Service
	BaseURL         string `json:"base_url,omitempty"`
	Healthy         bool   `json:"healthy"`
	RestartAttempts int    `json:"restart_attempts"`
	LogLines        int    `json:"log_lines"` // at most, that `service logs` prints
}

func infoOf(s *schemas.Service) serviceInfo {
	return serviceInfo{s.Public(), s.BaseURL(), s.Healthy(), s.RestartAttempts, client.MaxServiceLines}
}

func printService(m *Main, s serviceInfo) error { return printServices(m, []serviceInfo{s}) }

func printServices(m *Main, list []serviceInfo) error {
	t := m.list("no service is on record: `sluice service start` starts one",
		"THREAD…", "NAME…", "STATE", "SINCE", "RESTARTS", "URL…", "PROCESS", "COMMAND…", "ERROR…").leaveOut("PROCESS", "SINCE", "RESTARTS", "COMMAND", "URL")
	for _, s := range list {
		why := ""
		if s.Error != nil {
			why = s.Error.Message
		}
		t.row(s.Thread, s.Name, string(s.State), localTime(s.Since), strconv.Itoa(s.RestartAttempts), s.BaseURL, s.Process(), commandLine(s.Spec.Command, s.Spec.Args), why)
	}
	return t.print()
}
