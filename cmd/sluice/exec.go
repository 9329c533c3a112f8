package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/cmd/internal/node"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/local"
	"github.com/sluice-dev/sluice/schemas"
)

// defaultThread is the conversation of a person at a command line.
const defaultThread = "default"

func (m *Main) execCommand(g *globals) *cobra.Command {
	var (
		req     client.Request
		env     []string
		noStdin bool
		asJSON  bool
		retry   string
		limits  sandbox.Limits
	)
	c := &cobra.Command{
		Use:   "exec [flags] -- COMMAND [ARG…]",
		Short: "Run a command in a thread's sandbox; output streams through, the exit code is the command's",
		Long: `Run a command in a thread's sandbox. Output streams through as it comes, standard input is passed on, Ctrl+C goes to the
command as a signal (a second one leaves at once), and the exit code is the command's: 124 after a timeout, 127 and 126 for a
command that was not found or could not be run, 128+n after signal n, 125 where Sluice failed.

With no server configured and none running, it starts what it needs inside itself; the limits of workspaces are then those given
here, otherwise the worker's.`,
		Example: `  sluice exec --provider local -- bash -c 'echo out; echo err >&2; exit 3'
  sluice exec --provider local --thread t1 --timeout 30s --env CI=1 -- make test
  sluice exec --provider local --key build-42 --json -- date      # the same key runs once
  sluice exec --image debian:stable --thread t2 -- cat /etc/debian_version
  tar c . | sluice exec --provider local --thread t1 -- tar x`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return schemas.Errorf(schemas.CodeInvalidArgument, "there is no command to run: name it after --, as in `sluice exec -- ls -l`")
			}
			req.Command, req.Args, req.Retry = args[0], args[1:], schemas.Retry(retry)
			var err error
			if req.Env, err = parseEnv(env, m.Getenv); err != nil {
				return err
			}
			if err := m.checkProvider(cmd.Context(), g, &req); err != nil {
				return err
			}
			if _, err := limits.WithDefaults(); err != nil {
				return err
			}
			if !noStdin {
				req.Stdin = m.Stdin
			}
			return m.exec(cmd.Context(), g, req, limits, asJSON)
		},
	}
	f := c.Flags()
	f.SetInterspersed(false)
	f.StringVarP(&req.Thread, "thread", "t", defaultThread, "`THREAD` whose sandbox and workspace it runs in")
	f.StringVar(&req.Provider, "provider", m.Getenv("SLUICE_PROVIDER"), "kind of sandbox: `PROVIDER` auto, jail, docker or local; local isolates nothing (SLUICE_PROVIDER)")
	f.StringVar(&req.Image, "image", "", "`IMAGE` the thread's container is made from, which means --provider docker; pulled where it is missing")
	f.StringVar(&req.Template, "template", "", "recipe `NAME` of the thread's session, where it has none yet")
	f.StringVar(&req.Session, "session", "", "only in the session with this `ID`: session_expired where it has ended")
	f.DurationVar(&req.Timeout, "timeout", 0, "end the whole process tree after `D`, such as 30s; default: never")
	f.DurationVar(&req.Grace, "grace", 0, "time between SIGTERM and SIGKILL at the timeout")
	f.StringArrayVarP(&env, "env", "e", nil, "`K=V` for the command's environment, or K to pass this one's on; may be repeated")
	f.StringVarP(&req.Dir, "dir", "C", "", "working `FOLDER` in the workspace")
	f.StringVar(&req.Key, "key", "", "idempotency `KEY`: the same key runs once and answers the same")
	f.StringVar(&retry, "retry", "", "`never` or safe: whether a run that was lost with its worker may be repeated")
	f.BoolVarP(&noStdin, "no-stdin", "n", false, "do not pass standard input on")
	m.addLimitFlags(c, &limits)
	f.BoolVar(&asJSON, "json", false, "print the result as one JSON object instead of the output")
	return c
}

// checkProvider says how to get on where nothing on this machine isolates, before a server is asked.
func (m *Main) checkProvider(ctx context.Context, g *globals, req *client.Request) error {
	if req.Image != "" && (req.Provider == "" || req.Provider == node.Auto) {
		req.Provider = node.Docker
	}
	if g.nats != "" || req.Provider == node.Local {
		return nil
	}
	if a, ok := (&folder{path: g.data}).readAddress(); ok && a.URL != "" {
		return nil // a server is running: its worker decides
	}
	_, err := node.Choose(ctx, req.Provider)
	return err
}

// parseEnv reads K=V, and K for a variable of the caller's own.
func parseEnv(list []string, getenv func(string) string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(list))
	for _, kv := range list {
		k, v, ok := strings.Cut(kv, "=")
		if k == "" {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "--env %q: write K=V, or K", kv)
		}
		if !ok {
			v = getenv(k)
		}
		out[k] = v
	}
	return out, nil
}

func (m *Main) exec(ctx context.Context, g *globals, req client.Request, limits sandbox.Limits, asJSON bool) error {
	if g.nats == "" && req.Provider == node.Local {
		m.note("warning: " + local.Warning)
	}
	return m.attend(ctx, g, task{
		own: hosting{limits: limits, image: m.Getenv("SLUICE_IMAGE")}, json: asJSON, stdout: m.Stdout,
		start: func(ctx context.Context, c *client.Client) (*client.Execution, error) { return c.ExecStream(ctx, req) },
	})
}
