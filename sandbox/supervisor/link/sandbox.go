package link

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

// forceAfter is how long after the grace a supervisor may take to end everything before the provider ends it by force. The
// supervisor itself waits 5 s for what hangs in the kernel.
const forceAfter = 10 * time.Second

// Config says what a Sandbox is made of.
type Config struct {
	// Spec is the provider's. Its Workspace is the host's path.
	Spec sandbox.Spec
	// Home is the workspace as the processes see it. Default: Spec.Workspace.
	Home string
	// Gone is closed by the provider when the supervisor is gone. Required.
	Gone <-chan struct{}
	// Force ends the supervisor by force; Gone is closed soon after. Required.
	Force func()
	// Ended is called once Gone is closed and the connection has ended, before Done is closed. Default: nothing.
	Ended func()
}

// Sandbox is a sandbox.Sandbox over a Link.
type Sandbox struct {
	config Config
	bound  atomic.Pointer[binding]
	link   *Link
	guard  *guard
	done   chan struct{}
}

// binding is whose a sandbox is.
type binding struct {
	spec sandbox.Spec
	home string
}

var _ sandbox.Sandbox = (*Sandbox)(nil)

// NewSandbox takes a Link over. It ends, and closes the Link, when config.Gone is closed.
func NewSandbox(l *Link, config Config) *Sandbox {
	if config.Home == "" {
		config.Home = config.Spec.Workspace
	}
	s := &Sandbox{config: config, link: l, done: make(chan struct{})}
	s.bound.Store(&binding{spec: config.Spec, home: config.Home})
	s.guard = newGuard(s.Workspace, config.Spec.Limits)
	go s.watch()
	return s
}

// Rebind makes the sandbox another's: its id, its thread, its environment, and its workspace, which must be the folder it
// has had from the start, under a new name. It is for sandboxes that were made before it was known for whom, and in
// which nothing has run. Errors: invalid_argument, and the sandbox is as it was.
func (s *Sandbox) Rebind(spec sandbox.Spec) error {
	if err := CheckSpec(spec); err != nil {
		return err
	}
	home := s.config.Home
	if home == s.config.Spec.Workspace {
		home = spec.Workspace
	}
	s.bound.Store(&binding{spec: spec, home: home})
	return nil
}

// watch lasts as long as the sandbox; whoever waits for Done waits for it.
func (s *Sandbox) watch() {
	defer close(s.done)
	<-s.config.Gone
	// The supervisor's last frames may still be on their way; its end of the connection is closed, so the reader comes
	// to an end by itself.
	<-s.link.Done()
	s.guard.all.Wait()
	if s.config.Ended != nil {
		s.config.Ended()
	}
}

// ID is the Spec's.
func (s *Sandbox) ID() string { return s.bound.Load().spec.ID }

// Workspace is the host's path of the workspace.
func (s *Sandbox) Workspace() string { return s.bound.Load().spec.Workspace }

// Done is closed when the sandbox has ended.
func (s *Sandbox) Done() <-chan struct{} { return s.done }

// Link is the connection, for what only a provider's own tests and a reattaching worker need.
func (s *Sandbox) Link() *Link { return s.link }

// Start runs a command; see sandbox.Sandbox. Errors: also limit_exceeded while the workspace holds too much and the last commands
// made that worse.
func (s *Sandbox) Start(ctx context.Context, cmd sandbox.Command) (sandbox.Process, error) {
	if err := check(&cmd); err != nil {
		return nil, err
	}
	if err := s.guard.Admit(); err != nil {
		return nil, err
	}
	b := s.bound.Load()
	env, err := Environ(b.home, b.spec, cmd)
	if err != nil {
		return nil, err
	}
	dir, err := Dir(b.spec.Workspace, b.home, cmd.Dir)
	if err != nil {
		return nil, err
	}
	p, err := s.link.Start(ctx, &wire.Spawn{
		ID: cmd.ID, Path: cmd.Path, Args: cmd.Args, Env: env, Dir: dir, Stdin: cmd.Stdin,
		Timeout: int64(cmd.Timeout), Grace: int64(cmd.Grace),
	})
	if err != nil {
		return nil, err
	}
	s.guard.mind(p)
	return p, nil
}

// Terminate ends every process, and the sandbox; see sandbox.Sandbox. When the context ends first, the termination goes on.
func (s *Sandbox) Terminate(ctx context.Context, grace time.Duration) error {
	// Gone already is what is wanted.
	_ = s.link.Terminate(grace)
	late := time.NewTimer(max(0, grace) + forceAfter)
	defer late.Stop()
	select {
	case <-s.done:
		return nil
	case <-late.C:
	case <-ctx.Done():
		return fmt.Errorf("terminate sandbox %s: %w", s.ID(), ctx.Err())
	}
	s.config.Force()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("terminate sandbox %s by force", s.ID()), ctx.Err())
	}
}
