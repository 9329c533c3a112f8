package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	// killAfter is how long after the grace a supervisor may take to end every process before Terminate kills it. The
	// supervisor itself waits 5 s for processes that hang in the kernel.
	killAfter = 10 * time.Second
	// exitAfter is how long a supervisor may live after its connection has ended. It may wait in its reattach window for
	// another worker, but none comes while this one lives.
	exitAfter = 2 * time.Second
)

// Config configures a Sandbox.
type Config struct {
	// Spec is the provider's. Its Workspace is the host's path.
	Spec sandbox.Spec
	// Home is the workspace as the processes see it. Default: Spec.Workspace.
	Home string
	// Supervisor is the supervisor's pid on this host, for what its processes hold open. Default: that is not counted.
	Supervisor int
	// Exited is closed by the provider when the supervisor has exited. Required.
	Exited <-chan struct{}
	// Kill kills the supervisor; Exited is closed soon after. Required.
	Kill func()
	// Cleanup is called once Exited is closed and the connection has ended, before Done is closed. Required.
	Cleanup func()
	// SaveSpec stores the sandbox's new Spec, for a later Attach. Required.
	SaveSpec func(spec sandbox.Spec) error
}

// Sandbox is a sandbox.Sandbox over a Link.
type Sandbox struct {
	config Config
	link   *Link
	quota  *quotaWatcher
	leave  sync.Once
	left   chan struct{} // closed by Detach
	done   chan struct{}
	spec   atomic.Pointer[sandbox.Spec] // of the last bind

	changing sync.Mutex // one change of spec at a time
}

var (
	_ sandbox.Attached = (*Sandbox)(nil)
	_ sandbox.Meter    = (*Sandbox)(nil)
	_ sandbox.Dialer   = (*Sandbox)(nil)
)

// NewSandbox takes a Link over. When config.Exited is closed, the sandbox ends and closes the Link.
func NewSandbox(l *Link, config Config) *Sandbox {
	s := &Sandbox{config: config, link: l, left: make(chan struct{}), done: make(chan struct{})}
	s.spec.Store(&config.Spec)
	s.quota = newQuotaWatcher(s.Workspace, config.Spec.Limits, config.Supervisor)
	go s.awaitEnd()
	return s
}

// Rebind gives the sandbox another id, thread, environment and workspace. The workspace must be the folder that it had from the
// start, under a new name. Rebind is for pooled sandboxes, in which no process has run. Errors: invalid_argument, or that of
// SaveSpec; the sandbox is then unchanged.
func (s *Sandbox) Rebind(spec sandbox.Spec) error {
	if err := CheckSpec(spec); err != nil {
		return err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	return s.bind(spec)
}

// SetOwner changes the Spec's Owner; see sandbox.Attached.
func (s *Sandbox) SetOwner(owner string) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	spec := s.Spec()
	spec.Owner = owner
	return s.bind(spec)
}

// SetSecrets sets the Spec's Secrets; see sandbox.Attached.
func (s *Sandbox) SetSecrets(secrets map[string]string) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	spec := s.Spec()
	spec.Secrets = secrets
	if err := CheckSpec(spec); err != nil {
		return err
	}
	s.spec.Store(&spec)
	return nil
}

// bind stores a Spec and then uses it. changing is held.
func (s *Sandbox) bind(spec sandbox.Spec) error {
	err := s.config.SaveSpec(spec)
	if err == nil {
		s.spec.Store(&spec)
	}
	return err
}

// awaitEnd runs until the sandbox has ended or was left, and then closes done.
func (s *Sandbox) awaitEnd() {
	defer close(s.done)
	select {
	case <-s.config.Exited:
		// The supervisor's last frames may still be on their way; its end of the connection is closed, so the reader ends.
		<-s.link.Done()
	case <-s.link.Done():
		s.awaitExit()
	}
	s.quota.stop()
	// A provider may close Exited for a sandbox that was left.
	if !s.Detached() {
		s.config.Cleanup()
	}
}

// awaitExit waits for the exit of a supervisor without a connection, and kills it after exitAfter. Detach ends the wait: the kernel may hold
// a process that was killed for as long as a call on a file system takes that does not answer.
func (s *Sandbox) awaitExit() {
	if s.Detached() {
		return
	}
	late := time.NewTimer(exitAfter)
	defer late.Stop()
	for {
		select {
		case <-s.config.Exited:
			return
		case <-s.left:
			return
		case <-late.C:
			s.config.Kill()
		}
	}
}

// Detach ends only the connection: the supervisor stays for its reattachWindow, with its processes. Done is closed when Detach
// returns, and Config.Cleanup is not called.
func (s *Sandbox) Detach() {
	s.leave.Do(func() { close(s.left) })
	_ = s.link.Close() // the connection has ended, whatever the error
	<-s.done
}

// Detached reports whether Detach was called.
func (s *Sandbox) Detached() bool {
	select {
	case <-s.left:
		return true
	default:
		return false
	}
}

// Spec is the Spec of the last bind.
func (s *Sandbox) Spec() sandbox.Spec { return *s.spec.Load() }

// ID is the Spec's.
func (s *Sandbox) ID() string { return s.Spec().ID }

// Workspace is the host's path of the workspace.
func (s *Sandbox) Workspace() string { return s.Spec().Workspace }

// Home is the path of the workspace as processes see it.
func (s *Sandbox) Home() string { return cmp.Or(s.config.Home, s.Workspace()) }

// Done is closed when the sandbox has ended.
func (s *Sandbox) Done() <-chan struct{} { return s.done }

// Processes lists the supervisor's processes; see sandbox.Attached.
func (s *Sandbox) Processes(ctx context.Context) ([]sandbox.ProcessState, error) {
	list, err := s.link.List(ctx)
	if err != nil {
		return nil, err
	}
	states := make([]sandbox.ProcessState, len(list))
	for i, state := range list {
		states[i] = sandbox.ProcessState{
			ID: state.ID, PID: int(state.PID), Ended: state.Ended, Stdout: state.Stdout, Stderr: state.Stderr,
			Stdin: state.StdinTaken + state.StdinQueued, StdinClosed: state.StdinClosed, Started: time.Unix(0, state.Started),
		}
	}
	return states, nil
}

// Usage measures what the processes use; see sandbox.Meter.
func (s *Sandbox) Usage(ctx context.Context) (map[string]sandbox.Usage, error) {
	m, err := s.link.list(ctx, true)
	if err != nil {
		return nil, err
	}
	byHandle := make(map[uint64]string, len(m.Processes))
	for _, p := range m.Processes {
		byHandle[p.Handle] = p.ID
	}
	usages := make(map[string]sandbox.Usage, len(m.Usages))
	for _, u := range m.Usages {
		usages[byHandle[u.Handle]] = sandbox.Usage{CPU: time.Duration(u.CPU), Memory: u.Memory, Processes: int(u.Processes)}
	}
	return usages, nil
}

// Resume takes over a process; see sandbox.Attached.
func (s *Sandbox) Resume(ctx context.Context, id string, stdout, stderr int64) (sandbox.Process, error) {
	list, err := s.link.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, state := range list {
		if state.ID == id {
			p, err := s.link.Resume(state, stdout, stderr)
			if err != nil {
				return nil, err
			}
			s.quota.watch(p)
			return p, nil
		}
	}
	return nil, schemas.Errorf(schemas.CodeNotFound, "sandbox %s has no process %s", s.ID(), id)
}

// Start runs a command; see sandbox.Sandbox. Errors: also limit_exceeded while the workspace exceeds its limits and the last commands
// made it larger.
func (s *Sandbox) Start(ctx context.Context, cmd sandbox.Command) (sandbox.Process, error) {
	if err := checkCommand(&cmd); err != nil {
		return nil, err
	}
	if cmd.Files != sandbox.FilesRead {
		if err := s.quota.quota.Admit(); err != nil {
			return nil, err
		}
	}
	spec := s.Spec()
	if cmd.Files != sandbox.NoFiles {
		cmd.Path, cmd.Dir, cmd.Args = wire.FilesPath, "", append(s.quota.room(cmd.Files), cmd.Args...)
	}
	home := s.Home()
	env, err := Environ(home, spec, cmd)
	if err != nil {
		return nil, err
	}
	dir, err := WorkingDir(spec.Workspace, home, cmd.Dir)
	if err != nil {
		return nil, err
	}
	spawn := &wire.Spawn{
		ID: cmd.ID, Path: cmd.Path, Args: cmd.Args, Env: env, Dir: dir, Stdin: cmd.Stdin,
		Timeout: int64(cmd.Timeout), Grace: int64(cmd.Grace),
	}
	if size := cmd.Terminal; size != nil {
		spawn.Rows, spawn.Cols = uint32(size.Rows), uint32(size.Cols)
	}
	p, err := s.link.Start(ctx, spawn)
	if err != nil {
		return nil, err
	}
	if cmd.Files != sandbox.FilesRead {
		s.quota.watch(p)
	}
	return p, nil
}

// Dial connects to a server in the sandbox; see sandbox.Dialer.
func (s *Sandbox) Dial(ctx context.Context, port uint16, path string) (net.Conn, error) {
	return s.link.Connect(ctx, port, path)
}

// Terminate ends every process, and the sandbox; see sandbox.Sandbox. When the context ends first, the termination goes on.
func (s *Sandbox) Terminate(ctx context.Context, grace time.Duration) error {
	_ = s.link.Terminate(grace) // it fails when the supervisor is gone already
	late := time.NewTimer(max(0, grace) + killAfter)
	defer late.Stop()
	select {
	case <-s.done:
		return nil
	case <-late.C:
	case <-ctx.Done():
		return fmt.Errorf("terminate sandbox %s: %w", s.ID(), ctx.Err())
	}
	s.config.Kill()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("kill sandbox %s", s.ID()), ctx.Err())
	}
}
