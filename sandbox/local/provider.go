package local

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/hostproc"
	"github.com/sluice-dev/sluice/sandbox/registry"
	"github.com/sluice-dev/sluice/sandbox/supervisor/bin"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/schemas"
)

// Provider creates sandboxes whose supervisors are ordinary child processes.
type Provider struct {
	dir            string
	reattachWindow time.Duration
	registry       *registry.Registry[*link.Sandbox, record]

	mu      sync.Mutex
	command []string // runs a supervisor; empty until the first sandbox is created
}

// record is what reattaching to a sandbox takes.
type record struct {
	registry.Record
	hostproc.Ref // the supervisor
}

var _ sandbox.Reattacher = (*Provider)(nil)

// New makes the run folder. Errors: invalid_argument for the configuration, unavailable when the folder cannot be used.
func New(config Config) (*Provider, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	dir := filepath.Clean(config.RunDir)
	if err := registry.PrivateDir(dir); err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "run folder: %w", err)
	}
	sandboxes, err := registry.New[*link.Sandbox, record](schemas.ProviderLocal, dir, func(err error) { config.Warn(err.Error()) })
	if err != nil {
		return nil, err
	}
	config.Warn(Warning)
	return &Provider{dir: dir, command: config.Supervisor, reattachWindow: registry.ReattachWindow(config.ReattachWindow), registry: sandboxes}, nil
}

// supervisor returns the command that runs a supervisor. The first call extracts the program into the run folder, so that a worker
// does not wait for it at start. After an error the next call tries again.
func (p *Provider) supervisor() ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.command) > 0 {
		return p.command, nil
	}
	path, err := bin.Extract(p.dir)
	switch {
	case err == nil:
		p.command = []string{path}
	case errors.Is(err, bin.ErrNotEmbedded):
		p.command, err = ownProgram()
	default:
		err = schemas.Errorf(schemas.CodeUnavailable, "run folder: %w", err)
	}
	return p.command, err
}

// Name is schemas.ProviderLocal.
func (p *Provider) Name() string { return schemas.ProviderLocal }

func (p *Provider) socket(name string) string { return filepath.Join(p.dir, name+".sock") }

// removeSocket removes a sandbox's socket. The supervisor may have removed it already.
func (p *Provider) removeSocket(name string) { _ = os.Remove(p.socket(name)) }

// Create starts a supervisor; see sandbox.Provider. It takes a few milliseconds. Errors: conflict for an id in use, invalid_argument for
// a read-only workspace, unavailable when the supervisor cannot be extracted or started.
func (p *Provider) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if err := link.CheckSpec(spec); err != nil {
		return nil, err
	}
	if spec.ReadOnly {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "provider local cannot make a workspace read-only: use provider jail or docker")
	}
	spec.Workspace = filepath.Clean(spec.Workspace)
	return p.registry.Create(spec, registry.NameOf(spec.ID), func() (*link.Sandbox, error) { return p.launch(ctx, spec) })
}

func (p *Provider) launch(ctx context.Context, spec sandbox.Spec) (*link.Sandbox, error) {
	r := record{Record: registry.Record{ID: spec.ID, Spec: spec, Name: registry.NameOf(spec.ID)}}
	command, err := p.supervisor()
	if err != nil {
		return nil, err
	}
	v, err := p.start(ctx, r.Name, command)
	if err != nil {
		return nil, err
	}
	if r.Ref, err = hostproc.RefOf(v.cmd.Process.Pid); err == nil {
		err = p.registry.Save(r)
	}
	if err != nil {
		p.discard(v, r.Name)
		return nil, err
	}
	l, err := link.Open(ctx, v.conn, p.reattachWindow)
	if err != nil {
		p.discard(v, r.Name)
		return nil, err
	}
	return p.open(l, r, v.gone, v.kill), nil
}

// supervisorProcess is a supervisor that this process has started.
type supervisorProcess struct {
	cmd  *exec.Cmd
	conn net.Conn
	gone chan struct{} // closed when it has ended
}

// kill ends the supervisor, and with it its child processes.
func (v *supervisorProcess) kill() { _ = v.cmd.Process.Kill() }

// start makes the listening socket, starts a supervisor that inherits it, and connects. The kernel queues the connection until the
// supervisor accepts it, so start does not wait.
func (p *Provider) start(ctx context.Context, name string, command []string) (*supervisorProcess, error) {
	socket := p.socket(name)
	listener, err := link.Listen(ctx, socket)
	if err != nil {
		return nil, err
	}
	v := &supervisorProcess{gone: make(chan struct{})}
	if v.cmd, err = hostproc.Start(command, listener); err == nil {
		go func() {
			// The exit status is not used: the exit records came over the socket.
			_ = v.cmd.Wait()
			close(v.gone)
		}()
		v.conn, err = (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	if err = errors.Join(err, listener.Close()); err != nil {
		p.discard(v, name)
		return nil, schemas.Errorf(schemas.CodeUnavailable, "start the supervisor: %w", err)
	}
	return v, nil
}

// discard ends a supervisor that cannot be used, or that has not been started.
func (p *Provider) discard(v *supervisorProcess, name string) {
	if v.cmd != nil {
		v.kill()
		<-v.gone
	}
	if v.conn != nil {
		_ = v.conn.Close() // its other end is gone
	}
	p.removeSocket(name)
}

// Attach takes over the sandboxes of an earlier process; see sandbox.Reattacher.
func (p *Provider) Attach(ctx context.Context) ([]sandbox.Attached, error) {
	found, err := p.registry.Attach(ctx, p.reattach)
	if err == nil {
		p.registry.SweepSockets(p.dir)
	}
	return found, err
}

func (p *Provider) reattach(ctx context.Context, r record) (*link.Sandbox, error) {
	supervisor, err := hostproc.Find(r.Ref)
	if err != nil {
		p.removeSocket(r.Name)
		return nil, err
	}
	l, err := link.TakeOver(ctx, p.socket(r.Name), p.reattachWindow, supervisor.Kill, supervisor.Gone)
	if err != nil {
		p.removeSocket(r.Name)
		return nil, err
	}
	return p.open(l, r, supervisor.Gone, supervisor.Kill), nil
}

func (p *Provider) open(l *link.Link, r record, gone <-chan struct{}, kill func()) *link.Sandbox {
	return link.NewSandbox(l, link.Config{
		Spec: r.Spec, Exited: gone, Kill: kill,
		Cleanup: func() {
			p.removeSocket(r.Name)
			p.registry.Remove(r.ID)
		},
		SaveSpec: func(spec sandbox.Spec) error { return p.registry.SaveSpec(r, spec) },
	})
}

// Detach leaves every sandbox running; see sandbox.Reattacher.
func (p *Provider) Detach() error {
	p.registry.Detach()
	return nil
}

// Close ends every sandbox without a grace period.
func (p *Provider) Close() error {
	p.registry.Close()
	return nil
}
