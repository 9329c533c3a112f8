package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/internal/node"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// defaultThread is the thread of commands that name none.
const defaultThread = "default"

func execCommand(g *globals) *cobra.Command {
	var (
		run     commandFlags
		noStdin bool
		asJSON  bool
		detach  bool
		tty     bool
		keys    string
		limits  sandbox.Limits
		network string
	)
	c := &cobra.Command{
		Use:   "exec [flags] -- COMMAND [ARG…]",
		Short: "Run a command in a thread's sandbox",
		Long: `Run a command in a thread's sandbox. Its output is printed as it comes, and standard input is passed
to it. Ctrl+C is sent to the command as a signal, and cancels one that is still queued; a second
Ctrl+C kills it, and a third exits at once. When the terminal closes, the command continues. The
exit code is the command's, or 124 after a timeout, 127 if the command is not found, 126 if it
cannot be run, 128+n after signal n, and 125 if Sluice failed.

Without a server, exec starts what it needs in its own process. --memory, --cpus, --pids, --network
and the limits of workspaces are then those of the flags below. With a server they are the
worker's, or the template's, and these flags are refused.`,
		Example: `  sluice exec -- bash -c 'echo out; echo err >&2; exit 3'
  sluice exec --thread t1 --timeout 30s --env CI=1 -- make test
  sluice exec --key build-42 --json -- date      # the same key runs once
  sluice exec --image debian:stable --thread t2 -- cat /etc/debian_version
  sluice exec -d --thread t1 -- make all         # prints the process id; logs -f follows it
  sluice exec --label user=ann -- make test      # sluice events --label user=ann
  sluice exec -it --thread t1 -- bash            # a shell: sluice shell t1 is the same
  tar c . | sluice exec --thread t1 -- tar x`,
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := run.request(cmd, g, args)
			if err != nil {
				return err
			}
			switch {
			case req.Encoding == client.EncodingAuto:
			case !asJSON || detach:
				return schemas.Errorf(schemas.CodeInvalidArgument, "--encoding is for the result: add --json, without --detach")
			case req.Encoding == client.EncodingRaw:
				return schemas.Errorf(schemas.CodeInvalidArgument, "--encoding raw: JSON cannot hold every byte; leave out --json to get the output as it is")
			}
			if _, err := limits.WithDefaults(); err != nil {
				return err
			}
			if err := checkNetwork(network); err != nil {
				return err
			}
			own := hostOptions{worker: true, limits: limits, network: schemas.Network(network), named: givenLimit(cmd), image: g.Getenv("SLUICE_IMAGE")}
			if !noStdin && !detach {
				req.Stdin = standardInput{g.Stdin}
				if term.IsTerminal(int(g.Stdin.Fd())) {
					req.Stdin = terminalInput{g.Stdin}
				}
			}
			if tty && (noStdin || asJSON) {
				return schemas.Errorf(schemas.CodeInvalidArgument,
					"a terminal needs its input, and its output is for people: -t goes with neither --no-stdin nor --json")
			}
			if warning := node.Warning(req.Provider); g.nats == "" && warning != "" {
				g.notice("warning: " + warning)
			}
			switch {
			case tty && detach:
				g.nameTerminal(&req)
				req.Terminal = &schemas.TerminalSize{}
			case tty:
				return g.execTerminal(cmd.Context(), req, own, keys)
			}
			if detach {
				return g.detach(cmd.Context(), req, own, asJSON)
			}
			p := &foreground{
				globals: g, own: own, json: asJSON, stdout: g.Stdout,
				start: func(ctx context.Context, c *client.Client) (*client.Execution, error) { return c.ExecStream(ctx, req) },
			}
			return p.run(cmd.Context())
		},
	}
	run.add(c, g)
	c.Flags().StringVar(&run.Thread, "thread", defaultThread, threadUsage)
	c.Flags().BoolVarP(&tty, "tty", "t", false, "give the command a terminal, that of this program")
	c.Flags().BoolP("interactive", "i", true, "pass standard input to the command: the default, for those used to -it")
	detachKeysFlag(c, &keys)
	keyFlag(c, &run.Key)
	jsonFlag(c, &asJSON, "the result as one JSON object instead of the output")
	g.limitFlags(c, &limits, &network)
	f := c.Flags()
	f.StringVar((*string)(&run.Encoding), "encoding", "", "`ENCODING` of output with --json: utf-8, with what is none replaced, or base64; default: base64 for what is no UTF-8")
	f.BoolVarP(&detach, "detach", "d", false, "print the process id and exit; the command goes on, without standard input, on a server that stays")
	f.BoolVarP(&noStdin, "no-stdin", "n", false, "do not pass standard input to the command")
	return c
}

// commandFlags are the flags that say which command runs, and where.
type commandFlags struct {
	client.Request
	env, labels []string
	retry       string
}

// threadUsage describes the --thread of a command. Each adds it itself: -t of exec is --tty, as in docker.
const threadUsage = "`THREAD` whose sandbox and workspace the command uses"

func (r *commandFlags) add(c *cobra.Command, g *globals) {
	sessionFlag(c, &r.Session)
	c.Flags().StringVar(&r.Template, "template", "", "`TEMPLATE` of the session that the command creates; default: the worker's")
	providerFlag(c, &r.Provider, g.Getenv("SLUICE_PROVIDER"), "; default: the worker's (SLUICE_PROVIDER)")
	labelFlag(c, &r.labels, "label `NAME=VALUE` that all events of the command carry; may be repeated")
	graceFlag(c, &r.Grace, 0, ", at the timeout; default: SIGKILL at once")
	f := c.Flags()
	f.SetInterspersed(false)
	imageFlag(c, &r.Image)
	f.DurationVar(&r.Timeout, "timeout", 0, "kill the command and its children after `DURATION`, such as 30s; default: never")
	f.StringArrayVarP(&r.env, "env", "e", nil, "environment variable `K=V`, or K to pass on this process's; may be repeated")
	f.StringVarP(&r.Dir, "dir", "C", "", "working `FOLDER` in the workspace")
	f.StringVar(&r.retry, "retry", "", "`MODE` never or safe: whether a command that is lost with its worker may run again")
}

// request is the request of the flags and the arguments. Errors: invalid_argument, and those of a provider that this machine cannot run.
func (r *commandFlags) request(cmd *cobra.Command, g *globals, args []string) (client.Request, error) {
	req := r.Request
	if len(args) == 0 {
		return req, schemas.Errorf(schemas.CodeInvalidArgument, "there is no command to run: write it after --, as in `%s -- ls -l`", cmd.CommandPath())
	}
	req.Command, req.Args, req.Retry = args[0], args[1:], schemas.Retry(r.retry)
	var err error
	if req.Env, err = parseEnv(r.env, g.Getenv); err != nil {
		return req, err
	}
	if req.Origin, err = g.origin(r.labels); err != nil {
		return req, err
	}
	return req, g.checkProvider(cmd.Context(), &req)
}

// checkProvider fails before a host is started where no provider that isolates runs on this machine.
func (g *globals) checkProvider(ctx context.Context, req *client.Request) error {
	if req.Image != "" && (req.Provider == "" || req.Provider == schemas.ProviderAuto) {
		req.Provider = node.ImageProvider()
	}
	// With an unknown name it would wait for a worker that has such a provider.
	if err := node.CheckName(req.Provider); err != nil || g.nats != "" {
		return err
	}
	if a, ok := (&dataFolder{path: g.data}).readAddress(); ok && a.URL != "" {
		return nil // a server is running: its worker decides
	}
	dir, err := openFolder(g.data)
	if err != nil {
		return err
	}
	run, err := dir.runFolder()
	if err != nil {
		return err
	}
	_, err = node.Choose(ctx, req.Provider, run)
	return err
}

// parseEnv reads K=V, and K for a variable of this process.
func parseEnv(list []string, getenv func(string) string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(list))
	for _, kv := range list {
		k, v, ok := strings.Cut(kv, "=")
		if k == "" {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "--env %q has no name: write K=V, or K", kv)
		}
		if !ok {
			v = getenv(k)
		}
		out[k] = v
	}
	return out, nil
}
