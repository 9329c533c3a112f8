package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

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
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
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
	f.StringVar(&req.Provider, "provider", m.Getenv("SLUICE_PROVIDER"), "kind of sandbox: `PROVIDER` auto, jail or local; local isolates nothing (SLUICE_PROVIDER)")
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
	interrupts := newInterrupts()
	defer interrupts.stop()
	ctx = interrupts.bound(ctx)
	if g.nats == "" && req.Provider == node.Local {
		fmt.Fprintln(m.Stderr, "sluice: warning: "+local.Warning)
	}
	r, err := m.reach(ctx, g)
	if err != nil {
		return err
	}
	code, err := m.runExec(ctx, r, interrupts, req, asJSON)
	closeErr := r.close(ctx, func(text string) { fmt.Fprintln(m.Stderr, "sluice: "+text) })
	switch {
	case interrupts.left():
		return exitCode(schemas.ExitSignalBase + int(unix.SIGINT))
	case err != nil:
		return err
	case closeErr != nil:
		return closeErr
	case code != 0:
		return exitCode(code)
	}
	return nil
}

// queuedNotice is how long a command may wait for a worker before that is said.
const queuedNotice = time.Second

func (m *Main) runExec(ctx context.Context, r *reached, interrupts *interrupts, req client.Request, asJSON bool) (int, error) {
	x, err := r.client.ExecStream(ctx, req)
	if err != nil {
		return 0, err
	}
	defer x.Close()
	if x.Queued() {
		fmt.Fprintf(m.Stderr, "sluice: no worker can take this now: process %s is queued and will run when one comes\n", x.Process())
	}
	stopSignals := interrupts.forward(ctx, func(ctx context.Context, signal string) {
		if err := x.Signal(ctx, signal); err != nil {
			fmt.Fprintln(m.Stderr, "sluice: "+printable(err.Error()))
		}
	})
	defer stopSignals()
	keep := asJSON
	var stdout, stderr bounded
	for e, err := range x.Events(ctx) {
		switch {
		case err != nil:
			return 0, err
		case e.Result != nil:
			return m.ended(e.Result, keep, &stdout, &stderr)
		case keep && e.Chunk.Stream == schemas.Stderr:
			stderr.Write(e.Chunk.Data)
		case keep:
			stdout.Write(e.Chunk.Data)
		default:
			to := m.Stdout
			if e.Chunk.Stream == schemas.Stderr {
				to = m.Stderr
			}
			// Who reads this may have left, as head does; the process goes on to its end, as it would behind a pipe
			// whose reader is gone, and dies of that itself if it cares.
			if _, err := to.Write(e.Chunk.Data); err != nil {
				stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
				_ = x.Signal(stop, "SIGPIPE") // it may have ended
				cancel()
				m.Stdout = io.Discard
			}
		}
	}
	return 0, schemas.Errorf(schemas.CodeInternal, "the output ended without a result")
}

// ended prints what is to be said of the end, and returns the exit code.
func (m *Main) ended(r *schemas.Result, asJSON bool, stdout, stderr *bounded) (int, error) {
	if asJSON {
		// The record may have had room for less than was streamed.
		r.SetOutput(schemas.Stdout, stdout.data, r.StdoutBytes)
		r.SetOutput(schemas.Stderr, stderr.data, r.StderrBytes)
		enc := json.NewEncoder(m.Stdout)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		if err := enc.Encode(r); err != nil {
			return 0, fmt.Errorf("print the result: %w", err)
		}
		return r.ExitCode, nil
	}
	switch {
	case r.Error != nil:
		fmt.Fprintln(m.Stderr, "sluice: "+printable(r.Error.Message))
	case r.Reason == schemas.ReasonTimedOut:
		fmt.Fprintf(m.Stderr, "sluice: timed out after %s: the process tree was ended\n", time.Duration(r.DurationMS*float64(time.Millisecond)).Round(time.Millisecond))
	}
	return r.ExitCode, nil
}

// bounded keeps the beginning of what is written to it.
type bounded struct{ data []byte }

// Write keeps what there is room for.
func (b *bounded) Write(p []byte) {
	if room := int(schemas.DefaultOutputLimit) - len(b.data); room > 0 {
		b.data = append(b.data, p[:min(room, len(p))]...)
	}
}

// interrupts turns signals to this program into signals to the process: the first of a kind is passed on, a second interrupt
// leaves at once.
type interrupts struct {
	ch     chan os.Signal
	cancel context.CancelFunc
	gone   chan struct{}
	to     chan func(context.Context, string)
}

func newInterrupts() *interrupts {
	i := &interrupts{ch: make(chan os.Signal, 4), gone: make(chan struct{}), to: make(chan func(context.Context, string))}
	signal.Notify(i.ch, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	return i
}

// bound is ctx, ended when the person leaves.
func (i *interrupts) bound(ctx context.Context) context.Context {
	ctx, i.cancel = context.WithCancel(ctx)
	go i.run(ctx)
	return ctx
}

func (i *interrupts) run(ctx context.Context) {
	var pass func(context.Context, string)
	var waiting []string // signals that came before there was a process
	count := 0
	for {
		select {
		case sig, ok := <-i.ch:
			if !ok {
				return
			}
			if count++; count > 1 {
				close(i.gone)
				i.cancel()
				return
			}
			name := unix.SignalName(sig.(unix.Signal))
			if pass == nil {
				waiting = append(waiting, name)
				continue
			}
			go pass(ctx, name)
		case pass = <-i.to:
			for _, name := range waiting {
				go pass(ctx, name)
			}
			waiting = nil
		}
	}
}

// forward passes signals on to a process until stop is called.
func (i *interrupts) forward(ctx context.Context, pass func(context.Context, string)) (stop func()) {
	select {
	case i.to <- pass:
	case <-ctx.Done():
	}
	return func() {}
}

// left says that the person has left.
func (i *interrupts) left() bool {
	select {
	case <-i.gone:
		return true
	default:
		return false
	}
}

func (i *interrupts) stop() {
	signal.Stop(i.ch)
	close(i.ch)
	if i.cancel != nil {
		i.cancel()
	}
}
