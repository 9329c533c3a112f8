package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/internal/node"
	"github.com/sluice-dev/sluice/schemas"
)

// terminalSession is the terminal of a process, as its user reaches it.
type terminalSession interface {
	Process() string
	Input(ctx context.Context, from io.Reader)
	Resize(ctx context.Context, size schemas.TerminalSize) error
	Close()
	// follow passes the output to write, and returns the result of the process. It calls started when the process has been seen to run.
	follow(ctx context.Context, started func() error, write func(*schemas.Chunk) error) (*schemas.Result, error)
}

// interactive is a terminal session in the foreground: the terminal of this program is that of the process.
type interactive struct {
	*globals
	own  hostOptions
	term *terminal
	keys []byte // detach keys
	open func(ctx context.Context, c *client.Client, size schemas.TerminalSize) (terminalSession, error)
}

// errDetached reports that the user has left the process.
var errDetached = errors.New("detached")

// run exits with the exit code of the process, with 0 after the detach keys, and with that of the signal that ended this program.
func (p *interactive) run(ctx context.Context) error {
	defer p.term.restore() // also when this goroutine panics
	interrupts, ctx := newInterrupts(ctx)
	defer interrupts.stop()
	c, err := p.connect(ctx, p.own)
	if err != nil {
		return err
	}
	var result *schemas.Result
	if err = c.checkLimits(p.own); err == nil {
		result, err = p.session(ctx, c, interrupts)
	}
	p.term.restore()
	err = errors.Join(err, c.close(ctx))
	switch sig := interrupts.by(); {
	case sig != 0 && result == nil:
		return exitCode(schemas.ExitSignalBase + int(sig))
	case err != nil:
		return err
	case result == nil:
		return nil
	}
	if code := p.report(result); code != 0 {
		return exitCode(code)
	}
	return nil
}

// session joins the two terminals until the process ends or the user leaves it. The result is nil then.
func (p *interactive) session(ctx context.Context, c *connection, interrupts *interrupts) (*schemas.Result, error) {
	interrupts.hold()
	defer interrupts.release()
	size := p.term.current()
	s, err := p.open(ctx, c.client, size)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	j := &joined{interactive: p, conn: c, s: s, interrupts: interrupts, leave: leave, left: make(chan struct{})}
	interrupts.forward(ctx, j)
	stopSize := func() {}
	defer func() { stopSize() }()
	started := func() error {
		if err := p.term.makeRaw(); err != nil {
			return schemas.Errorf(schemas.CodeInternal, "make the terminal raw: %w", err)
		}
		stopSize = p.term.followSize(ctx, size, s.Resize)
		s.Input(ctx, &detachReader{from: terminalInput{p.Stdin}, keys: p.keys, detach: j.detach})
		return nil
	}
	result, err := s.follow(ctx, started, j.write)
	p.term.restore()
	if j.missing > 0 {
		p.noticeMissing(j.missing)
	}
	if errors.Is(context.Cause(ctx), errDetached) {
		fmt.Fprintln(p.Stderr) // below what the process printed
		p.notice(fmt.Sprintf("process %s continues: `sluice attach %[1]s` joins it again, `sluice process kill %[1]s` ends it",
			s.Process()))
		return nil, nil
	}
	if errors.Is(err, unix.EIO) && interrupts.by() == 0 { // the terminal has closed
		p.notice(c.leaving(s.Process()))
	}
	return result, err
}

// joined is the process of an open terminal session as signals and the detach keys reach it. A worker in the process of a command ends
// with that: then the command stays until the process has ended.
type joined struct {
	*interactive
	conn       *connection
	s          terminalSession
	interrupts *interrupts
	leave      context.CancelCauseFunc
	left       chan struct{} // closed when the user has left a process whose worker is in this program

	end, missing int64 // the offset after the last chunk, and what was missing before one
}

// write shows output of the process.
func (j *joined) write(k *schemas.Chunk) error {
	if j.end > 0 {
		j.missing += max(0, k.Offset-j.end)
	}
	j.end = k.End()
	select {
	case <-j.left:
		return nil
	default:
	}
	_, err := j.Stdout.Write(k.Data)
	if errors.Is(err, unix.EIO) && j.conn.temporary() {
		return nil // the terminal has closed
	}
	return err
}

// detach leaves the process, by the detach keys. It is called once.
func (j *joined) detach() {
	if !j.conn.temporary() {
		j.leave(errDetached)
		return
	}
	close(j.left)
	j.term.restore()
	j.notice(fmt.Sprintf("process %s continues in this sluice, which has its worker: `sluice attach %[1]s` joins it from another terminal",
		j.s.Process()))
}

// Signal leaves the process: what the user types reaches it by its terminal. A command that is still queued is canceled.
func (j *joined) Signal(ctx context.Context, _ string) {
	j.term.restore()
	x, ok := j.s.(executed)
	switch queued := ok && x.Queued(); {
	case !queued:
		j.notice(j.conn.leaving(j.s.Process()))
	case x.Cancel(ctx) == nil:
		j.notice("process " + j.s.Process() + " was canceled while it was queued: it does not run")
	default:
		j.notice("process " + j.s.Process() + " is still queued, and may not be canceled: `sluice process cancel` tries again")
	}
	j.interrupts.quit()
}

// Killable reports that a second signal ends this program alone.
func (j *joined) Killable() bool { return false }

// Kill does nothing.
func (j *joined) Kill(context.Context) {}

// Detach reports whether the process goes on without this program, whose terminal has closed.
func (j *joined) Detach() bool {
	if !j.conn.temporary() {
		j.notice(j.conn.leaving(j.s.Process()))
		return true
	}
	j.notice(fmt.Sprintf("the terminal has closed: process %s continues in this sluice, and `sluice attach %[1]s` joins it", j.s.Process()))
	return false
}

// executed is the terminal session of a command that was sent.
type executed struct {
	*client.Execution
	notice func(string)
}

func (x executed) follow(ctx context.Context, started func() error, write func(*schemas.Chunk) error) (*schemas.Result, error) {
	running, waiting := false, ""
	run := func() (err error) {
		if !running {
			running, err = true, started()
		}
		return err
	}
	if x.Queued() {
		x.notice(fmt.Sprintf("no worker is free: process %s is queued and starts when a worker takes it", x.Process()))
	} else if err := run(); err != nil {
		return nil, err
	}
	for e, err := range x.Events(ctx) {
		switch {
		case err != nil:
			return nil, err
		case e.Waiting != nil:
			if e.Waiting.Message != waiting {
				waiting = e.Waiting.Message
				x.notice(waiting)
			}
		case e.Result != nil:
			return e.Result, nil
		default:
			err := run()
			if err == nil && e.Chunk != nil {
				err = write(e.Chunk)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return nil, schemas.Errorf(schemas.CodeInternal, "the output of process %s ended without a result", x.Process())
}

// attached is the terminal session of a process that ran before.
type attached struct{ *client.Attachment }

func (a attached) follow(ctx context.Context, started func() error, write func(*schemas.Chunk) error) (*schemas.Result, error) {
	if err := started(); err != nil {
		return nil, err
	}
	return a.Output(ctx, func(k schemas.Chunk) error { return write(&k) })
}

// execTerminal runs a command in a terminal: exec -t, and shell.
func (g *globals) execTerminal(ctx context.Context, req client.Request, own hostOptions, keys string) error {
	p := &interactive{globals: g, own: own}
	var err error
	if p.keys, err = parseDetachKeys(keys); err != nil {
		return err
	}
	if p.term, err = g.newTerminal(); err != nil {
		return err
	}
	g.nameTerminal(&req)
	p.open = func(ctx context.Context, c *client.Client, size schemas.TerminalSize) (terminalSession, error) {
		req.Terminal = &size
		x, err := c.ExecStream(ctx, req)
		if err != nil {
			return nil, err
		}
		return executed{x, g.notice}, nil
	}
	return p.run(ctx)
}

// nameTerminal gives a command with a terminal the type of this program's, unless it names another. The record of its end needs no
// output.
func (g *globals) nameTerminal(req *client.Request) {
	req.Stdin, req.OutputLimit = nil, -1
	if name := g.Getenv("TERM"); req.Env["TERM"] == "" && schemas.ValidTerm(name) {
		env := maps.Clone(req.Env)
		if env == nil {
			env = make(map[string]string, 1)
		}
		env["TERM"] = name
		req.Env = env
	}
}

func detachKeysFlag(c *cobra.Command, keys *string) {
	c.Flags().StringVar(keys, "detach-keys", defaultDetachKeys, "`KEYS` that leave the process, as in docker; empty for none")
}

func attachCommand(g *globals) *cobra.Command {
	var req client.AttachRequest
	var keys string
	c := &cobra.Command{
		Use:   "attach [flags] PROCESS",
		Short: "Join the terminal of a running process",
		Long: `Join the terminal of a process that exec -t or shell started. Several can be attached: each sees all
output and can type. The last screenful is printed first. Ctrl+C and Ctrl+D go to the process; the
detach keys leave it running. The exit code is the process's.`,
		Example: `  sluice attach p1q2w3…
  sluice attach --detach-keys ctrl-x p1q2w3…
  sluice attach $(sluice exec -dt --thread t1 -- bash)`,
		Args: oneProcess,
		RunE: func(cmd *cobra.Command, args []string) error {
			p := &interactive{globals: g}
			var err error
			if p.keys, err = parseDetachKeys(keys); err != nil {
				return err
			}
			if p.term, err = g.newTerminal(); err != nil {
				return err
			}
			p.open = func(ctx context.Context, c *client.Client, size schemas.TerminalSize) (_ terminalSession, err error) {
				if req.Process, err = named(ctx, c, req.Thread, args[0]); err != nil {
					return nil, err
				}
				req.Size = size
				a, err := c.AttachProcess(ctx, req)
				if err != nil {
					return nil, err
				}
				return attached{a}, nil
			}
			return p.run(cmd.Context())
		},
	}
	threadFlag(c, &req.Thread, "", "`THREAD` of the process, which a name of --id needs; default: found by the process id")
	detachKeysFlag(c, &keys)
	return c
}

// shellScript runs the best shell of a sandbox.
const shellScript = "command -v bash >/dev/null && exec bash; exec sh"

func shellCommand(g *globals) *cobra.Command {
	var req client.Request
	var keys string
	c := &cobra.Command{
		Use:   "shell [flags]",
		Short: "Open a shell in a thread's sandbox",
		Long: `Open bash, or sh where there is none, in a terminal in the thread's sandbox: short for
exec -it --thread THREAD -- bash. The detach keys leave it running, and attach joins it again.`,
		Example: `  sluice shell t1
  sluice shell --image debian:stable t2`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req.Command, req.Args = "sh", []string{"-c", shellScript}
			if err := g.checkProvider(cmd.Context(), &req); err != nil {
				return err
			}
			return g.execTerminal(cmd.Context(), req, hostOptions{worker: true, image: g.Getenv("SLUICE_IMAGE")}, keys)
		},
	}
	threadArg(c, &req.Thread, "`THREAD` whose sandbox and workspace the shell uses")
	c.Flags().StringVar(&req.Template, "template", "", "`TEMPLATE` of the session that the shell creates; default: the worker's")
	providerFlag(c, &req.Provider, g.Getenv("SLUICE_PROVIDER"), "; default: the worker's (SLUICE_PROVIDER)")
	imageFlag(c, &req.Image)
	c.Flags().StringVarP(&req.Dir, "dir", "C", "", "working `FOLDER` in the workspace")
	detachKeysFlag(c, &keys)
	return c
}

func imageFlag(c *cobra.Command, image *string) {
	c.Flags().StringVar(image, "image", "",
		"`IMAGE` of the thread's container, pulled if it is missing; implies --provider "+node.ImageProvider())
}
