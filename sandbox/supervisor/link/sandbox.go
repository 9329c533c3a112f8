package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
	"github.com/sluice-dev/sluice/schemas"
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
	// Bound stores what the sandbox is now bound to, so that it is found again. Default: nothing.
	Bound func(spec sandbox.Spec) error
}

// hungUp is how long a supervisor may be there after its connection has ended. One that lingers waits for another worker;
// while this one lives there will be none.
const hungUp = 2 * time.Second

// Sandbox is a sandbox.Sandbox over a Link.
type Sandbox struct {
	config Config
	bound  atomic.Pointer[binding]
	link   *Link
	guard  *guard
	left   atomic.Bool // Leave was called
	done   chan struct{}

	binding sync.Mutex // one change of bound at a time
}

// binding is whose a sandbox is.
type binding struct {
	spec sandbox.Spec
	home string
}

var _ sandbox.Attached = (*Sandbox)(nil)

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
	s.binding.Lock()
	defer s.binding.Unlock()
	return s.bind(&binding{spec: spec, home: home})
}

// SetOwner changes the Spec's Owner; see sandbox.Attached.
func (s *Sandbox) SetOwner(mark string) error {
	s.binding.Lock()
	defer s.binding.Unlock()
	b := *s.bound.Load()
	b.spec.Owner = mark
	return s.bind(&b)
}

// bind stores whose the sandbox is, and then makes it so. binding is held.
func (s *Sandbox) bind(b *binding) error {
	if s.config.Bound != nil {
		if err := s.config.Bound(b.spec); err != nil {
			return err
		}
	}
	s.bound.Store(b)
	return nil
}

// watch lasts as long as the sandbox; whoever waits for Done waits for it.
func (s *Sandbox) watch() {
	defer close(s.done)
	select {
	case <-s.config.Gone:
		// The supervisor's last frames may still be on their way; its end of the connection is closed, so the reader comes
		// to an end by itself.
		<-s.link.Done()
	case <-s.link.Done():
		if s.left.Load() {
			s.guard.wait()
			return
		}
		s.expectEnd()
	}
	s.guard.wait()
	if s.config.Ended != nil {
		s.config.Ended()
	}
}

// expectEnd waits for a supervisor that has been hung up on, or has hung up.
func (s *Sandbox) expectEnd() {
	late := time.NewTimer(hungUp)
	defer late.Stop()
	select {
	case <-s.config.Gone:
	case <-late.C:
		s.config.Force()
		<-s.config.Gone
	}
}

// Leave ends the connection alone: the supervisor stays for its reattachWindow, with all it has. Done is closed when it returns, and
// Config.Ended is not called.
func (s *Sandbox) Leave() {
	s.left.Store(true)
	_ = s.link.Close() // whatever it says, the connection has ended
	<-s.done
}

// Left says whether Leave was called.
func (s *Sandbox) Left() bool { return s.left.Load() }

// Spec is what the sandbox is bound to.
func (s *Sandbox) Spec() sandbox.Spec { return s.bound.Load().spec }

// Held lists the processes the supervisor has; see sandbox.Attached.
func (s *Sandbox) Held(ctx context.Context) ([]sandbox.Held, error) {
	list, err := s.link.List(ctx)
	if err != nil {
		return nil, err
	}
	held := make([]sandbox.Held, len(list))
	for i, h := range list {
		held[i] = sandbox.Held{
			ID: h.ID, PID: int(h.PID), Ended: h.Ended, Stdout: h.Stdout, Stderr: h.Stderr,
			Stdin: h.StdinTaken + h.StdinQueued, StdinClosed: h.StdinClosed, Started: time.Unix(0, h.Started),
		}
	}
	return held, nil
}

// Resume takes over a process; see sandbox.Attached.
func (s *Sandbox) Resume(ctx context.Context, id string, stdout, stderr int64) (sandbox.Process, error) {
	list, err := s.link.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, h := range list {
		if h.ID == id {
			p, err := s.link.Resume(h, stdout, stderr)
			if err != nil {
				return nil, err
			}
			s.guard.mind(p)
			return p, nil
		}
	}
	return nil, schemas.Errorf(schemas.CodeNotFound, "sandbox %s has no process %s", s.ID(), id)
}

// ID is the Spec's.
func (s *Sandbox) ID() string { return s.bound.Load().spec.ID }

// Workspace is the host's path of the workspace.
func (s *Sandbox) Workspace() string { return s.bound.Load().spec.Workspace }

// Done is closed when the sandbox has ended.
func (s *Sandbox) Done() <-chan struct{} { return s.done }

// Link is the connection, for what only a provider's own tests need.
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
