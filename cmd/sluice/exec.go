package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/cmd/internal/node"
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
	)
	c := &cobra.Command{
		Use:   "exec [flags] -- COMMAND [ARG…]",
		Short: "Run a command in a thread's sandbox; output streams through, the exit code is the command's",
		Long: `Run a command in a thread's sandbox. Output streams through as it comes, standard input is passed on, Ctrl+C goes to the
command as a signal (a second one leaves at once), and the exit code is the command's: 124 after a timeout, 127 and 126 for a
command that was not found or could not be run, 128+n after signal n, 125 where Sluice failed.

With no server configured and none running, it starts what it needs inside itself.`,
		Example: `  sluice exec --provider local -- bash -c 'echo out; echo err >&2; exit 3'
  sluice exec --provider local --thread t1 --timeout 30s --env CI=1 -- make test
  sluice exec --provider local --key build-42 --json -- date      # the same key runs once
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
			if err := m.checkProvider(g, req.Provider); err != nil {
				return err
			}
			if !noStdin {
				req.Stdin = m.Stdin
			}
			return m.exec(cmd.Context(), g, req, asJSON)
		},
	}
	f := c.Flags()
	f.SetInterspersed(false)
	f.StringVarP(&req.Thread, "thread", "t", defaultThread, "`THREAD` whose sandbox and workspace it runs in")
	f.StringVar(&req.Provider, "provider", m.Getenv("SLUICE_PROVIDER"), "kind of sandbox: `PROVIDER` auto, jail, docker or local; local isolates nothing (SLUICE_PROVIDER)")
	f.StringVar(&req.Template, "template", "", "recipe `NAME` of the thread's session, where it has none yet")
	f.StringVar(&req.Session, "session", "", "only in the session with this `ID`: session_expired where it has ended")
	f.DurationVar(&req.Timeout, "timeout", 0, "end the whole process tree after `D`, such as 30s; default: never")
	f.DurationVar(&req.Grace, "grace", 0, "time between SIGTERM and SIGKILL at the timeout")
	f.StringArrayVarP(&env, "env", "e", nil, "`K=V` for the command's environment, or K to pass this one's on; may be repeated")
	f.StringVarP(&req.Dir, "dir", "C", "", "working `FOLDER` in the workspace")
	f.StringVar(&req.Key, "key", "", "idempotency `KEY`: the same key runs once and answers the same")
	f.StringVar(&retry, "retry", "", "`never` or safe: whether a run that was lost with its worker may be repeated")
	f.BoolVarP(&noStdin, "no-stdin", "n", false, "do not pass standard input on")
	f.BoolVar(&asJSON, "json", false, "print the result as one JSON object instead of the output")
	return c
}

// checkProvider says how to get on where nothing on this machine isolates, before a server is asked.
func (m *Main) checkProvider(g *globals, name string) error {
	if g.nats != "" || name == node.Local {
		return nil
	}
	if a, ok := (&folder{path: g.data}).readAddress(); ok && a.URL != "" {
		return nil // a server is running: its worker decides
	}
	_, err := node.ChooseProvider(name)
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

func (m *Main) exec(ctx context.Context, g *globals, req client.Request, asJSON bool) error {
	interrupts, ctx := newInterrupts(ctx)
	defer interrupts.stop()
	if g.nats == "" && req.Provider == node.Local {
		m.note("warning: " + local.Warning)
	}
	r, err := m.reach(ctx, g)
	if err != nil {
		return m.failed(interrupts, err, asJSON)
	}
	code, err := m.runExec(ctx, r, interrupts, req, asJSON)
	err = errors.Join(err, r.close(ctx, m.note))
	if err != nil {
		return m.failed(interrupts, err, asJSON)
	}
	if code != 0 {
		return exitCode(code)
	}
	return nil
}

// failed is what an exec that has no result ends with: silence where the person left, else the error, which a program that asked for
// JSON gets as JSON.
func (m *Main) failed(i *interrupts, err error, asJSON bool) error {
	if sig := i.by(); sig != 0 {
		return exitCode(schemas.ExitSignalBase + int(sig))
	}
	if asJSON {
		type failure struct {
			Error *schemas.Error `json:"error"`
		}
		err = errors.Join(err, m.printJSON(failure{schemas.AsError(err)}))
	}
	return err
}

func (m *Main) printJSON(v any) error {
	enc := json.NewEncoder(m.Stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return nil
}

// note tells a person something that is no failure.
func (m *Main) note(text string) { fmt.Fprintln(m.Stderr, "sluice: "+printable(text)) }

func (m *Main) runExec(ctx context.Context, r *reached, interrupts *interrupts, req client.Request, asJSON bool) (int, error) {
	interrupts.hold()
	defer interrupts.release()
	x, err := r.client.ExecStream(ctx, req)
	if err != nil {
		return 0, err
	}
	defer x.Close()
	if x.Queued() {
		m.note(fmt.Sprintf("no worker can take this now: process %s is queued and will run when one comes", x.Process()))
	}
	interrupts.forward(ctx, func(ctx context.Context, signal string) {
		err := x.Signal(ctx, signal)
		switch {
		case err == nil, ctx.Err() != nil:
		case x.Queued():
			m.note(fmt.Sprintf("process %s is still queued, so that there is nothing to signal: Ctrl+C again leaves, and it will run when a worker comes", x.Process()))
		case !errors.Is(err, schemas.ErrNotFound): // it has ended, which is about to be told
			m.say(err)
		}
	})
	out := newOutput(m.Stdout, m.Stderr, asJSON)
	for e, err := range x.Events(ctx) {
		switch {
		case err != nil:
			if interrupts.by() != 0 {
				m.note(r.leaving(x.Process()))
			}
			return 0, err
		case e.Result != nil:
			return m.ended(e.Result, out)
		case out.write(e.Chunk):
			// Who reads this has left, as head does. The process is told as it would be behind a pipe whose reader is gone, and
			// ends of that or goes on; either way its end is waited for.
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), passPatience)
			_ = x.Signal(stop, "SIGPIPE") // it may have ended
			cancel()
		}
	}
	return 0, schemas.Errorf(schemas.CodeInternal, "the output of process %s ended without a result: see `sluice events --process %s`", x.Process(), x.Process())
}
