package local

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/registry"
	"github.com/sluice-dev/sluice/sandbox/supervisor/bin"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/schemas"
)

// Provider makes sandboxes that are plain child processes.
type Provider struct {
	dir            string
	reattachWindow time.Duration
	registry       *registry.Registry[*link.Sandbox]

	mu      sync.Mutex
	command []string // empty until the first sandbox is made
}

var _ sandbox.Reattacher = (*Provider)(nil)

// New makes the run folder. Errors: invalid_argument for the configuration, unavailable
// when the folder cannot be used.
func New(config Config) (*Provider, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	dir := filepath.Clean(config.RunDir)
	if err := registry.PrivateDir(dir); err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "run folder: %w", err)
	}
	kept, err := registry.New[*link.Sandbox](name, dir)
	if err != nil {
		return nil, err
	}
	config.Warn(Warning)
	return &Provider{dir: dir, command: config.Supervisor, reattachWindow: registry.ReattachWindow(config.ReattachWindow), registry: kept}, nil
}

// supervisor is what starts a supervisor. The program is put into the run folder when the first sandbox is made: a worker that
// starts need not wait for that. What failed is tried again at the next sandbox.
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
		p.command, err = self()
	default:
		err = schemas.Errorf(schemas.CodeUnavailable, "run folder: %w", err)
	}
	return p.command, err
}

const name = "local"

// Name is "local".
func (p *Provider) Name() string { return name }

// Create starts a supervisor; see sandbox.Provider. It takes a few milliseconds. Errors: conflict for an id that is in use,
// unavailable where the run folder takes no supervisor.
func (p *Provider) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if err := link.CheckSpec(spec); err != nil {
		return nil, err
	}
	spec.Workspace = filepath.Clean(spec.Workspace)
	s, err := p.registry.Create(spec, socketName(spec.ID), func() (*link.Sandbox, error) { return p.launch(ctx, spec) })
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (p *Provider) launch(ctx context.Context, spec sandbox.Spec) (*link.Sandbox, error) {
	r := registry.Record{ID: spec.ID, Spec: spec, Name: socketName(spec.ID)}
	command, err := p.supervisor()
	if err != nil {
		return nil, err
	}
	run, err := start(ctx, p.socket(r.Name), command)
	if err != nil {
		return nil, err
	}
	r.PID = run.cmd.Process.Pid
	if r.Start, err = registry.StartTime(r.PID); err == nil {
		err = p.registry.Save(r)
	}
	if err != nil {
		run.force()
		<-run.gone
		run.remove()
		return nil, errors.Join(err, run.conn.Close())
	}
	return p.open(ctx, link.Open, r, run.conn, run.gone, run.force)
}

// Attach takes over what an earlier process left; see sandbox.Reattacher.
func (p *Provider) Attach(ctx context.Context) ([]sandbox.Attached, error) {
	found, err := p.registry.Attach(ctx, p.reattach)
	if err == nil {
		p.registry.SweepSockets(p.dir)
	}
	return found, err
}

func (p *Provider) reattach(ctx context.Context, r registry.Record) (*link.Sandbox, error) {
	survivor, err := registry.Find(r.PID, r.Start)
	if err != nil {
		_ = os.Remove(p.socket(r.Name)) // gone already where the supervisor ended in order
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", p.socket(r.Name))
	if err != nil {
		survivor.Kill()
		<-survivor.Gone
		_ = os.Remove(p.socket(r.Name))
		return nil, err
	}
	return p.open(ctx, link.Reopen, r, conn, survivor.Gone, survivor.Kill)
}

// greeting is link.Open or link.Reopen.
type greeting func(ctx context.Context, conn net.Conn, reattachWindow time.Duration) (*link.Link, error)

// open greets a supervisor, and ends it where it does not answer.
func (p *Provider) open(ctx context.Context, greet greeting, r registry.Record, conn net.Conn, gone <-chan struct{}, force func()) (*link.Sandbox, error) {
	remove := func() { _ = os.Remove(p.socket(r.Name)) } // which the supervisor may have done already
	l, err := greet(ctx, conn, p.reattachWindow)
	if err != nil {
		force()
		<-gone
		remove()
		return nil, err
	}
	return link.NewSandbox(l, link.Config{
		Spec: r.Spec, Exited: gone, Kill: force,
		Cleanup: func() {
			remove()
			p.registry.Forget(r.ID)
		},
		SaveSpec: func(spec sandbox.Spec) error {
			r := r
			r.Spec = spec
			return p.registry.Save(r)
		},
	}), nil
}

// Leave gives every sandbox up without ending it; see sandbox.Reattacher.
func (p *Provider) Leave() error {
	p.registry.Leave()
	return nil
}

// Close ends every sandbox, without grace.
func (p *Provider) Close() error {
	p.registry.Close()
	return nil
}
