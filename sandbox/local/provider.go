package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/bin"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/schemas"
)

// Provider makes sandboxes that are plain child processes.
type Provider struct {
	dir     string
	command []string

	mu     sync.Mutex
	boxes  map[string]*link.Sandbox // by id; nil while being made
	making sync.WaitGroup
	closed bool
}

var _ sandbox.Provider = (*Provider)(nil)

// New makes the run folder and puts the supervisor there. Errors: invalid_argument for the configuration, unavailable
// when the folder cannot be used.
func New(config Config) (*Provider, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	dir := filepath.Clean(config.RunDir)
	if err := privateDir(dir); err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "run folder: %w", err)
	}
	command := config.Supervisor
	if len(command) == 0 {
		path, err := bin.Extract(dir)
		switch {
		case err == nil:
			command = []string{path}
		case errors.Is(err, bin.ErrNone):
			if command, err = self(); err != nil {
				return nil, err
			}
		default:
			return nil, schemas.Errorf(schemas.CodeUnavailable, "run folder: %w", err)
		}
	}
	config.Warn(Warning)
	return &Provider{dir: dir, command: command, boxes: make(map[string]*link.Sandbox)}, nil
}

// privateDir makes a folder that only this user can enter, or refuses one that somebody else could.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a folder of this user", dir)
	}
	if info.Mode().Perm() != 0o700 {
		return os.Chmod(dir, 0o700)
	}
	return nil
}

// Name is "local".
func (p *Provider) Name() string { return "local" }

// Create starts a supervisor; see sandbox.Provider. It takes a few milliseconds. Errors: conflict for an id that is in use.
func (p *Provider) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if err := link.CheckSpec(spec); err != nil {
		return nil, err
	}
	if err := p.reserve(spec.ID); err != nil {
		return nil, err
	}
	defer p.making.Done()
	s, err := p.create(ctx, spec)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		delete(p.boxes, spec.ID)
		return nil, err
	}
	select {
	case <-s.Done(): // forget has been called already
		delete(p.boxes, spec.ID)
	default:
		if _, ok := p.boxes[spec.ID]; ok {
			p.boxes[spec.ID] = s
		}
	}
	return s, nil
}

func (p *Provider) reserve(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return schemas.Errorf(schemas.CodeUnavailable, "provider local is closed")
	}
	if _, ok := p.boxes[id]; ok {
		return schemas.Errorf(schemas.CodeConflict, "sandbox %s is there already", id)
	}
	p.boxes[id] = nil
	p.making.Add(1)
	return nil
}

func (p *Provider) create(ctx context.Context, spec sandbox.Spec) (*link.Sandbox, error) {
	spec.Workspace = filepath.Clean(spec.Workspace)
	made, err := makeWorkspace(spec.Workspace)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "workspace: %w", err).With("path", "workspace")
	}
	s, err := p.launch(ctx, spec)
	if err != nil && made {
		// Only what is empty, and only the last folder: the ones above may be others' by now.
		_ = os.Remove(spec.Workspace)
	}
	return s, err
}

func makeWorkspace(dir string) (made bool, err error) {
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return false, nil
	case err == nil:
		return false, fmt.Errorf("%s is not a folder", dir)
	case !os.IsNotExist(err):
		return false, err
	}
	return true, os.MkdirAll(dir, 0o700)
}

func (p *Provider) launch(ctx context.Context, spec sandbox.Spec) (*link.Sandbox, error) {
	run, err := start(ctx, p.dir, p.command, spec.ID)
	if err != nil {
		return nil, err
	}
	l, err := link.Open(ctx, run.conn, 0)
	if err != nil {
		run.force()
		<-run.gone
		run.remove()
		return nil, err
	}
	return link.NewSandbox(l, link.Config{
		Spec: spec, Gone: run.gone, Force: run.force,
		Ended: func() {
			run.remove()
			p.forget(spec.ID)
		},
	}), nil
}

func (p *Provider) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.boxes, id)
}

// Close ends every sandbox, without grace.
func (p *Provider) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.making.Wait()
	p.mu.Lock()
	boxes := make([]*link.Sandbox, 0, len(p.boxes))
	for _, s := range p.boxes {
		boxes = append(boxes, s)
	}
	p.mu.Unlock()
	var all sync.WaitGroup
	for _, s := range boxes {
		// Terminate fails by its context alone, and this one has no end.
		all.Go(func() { _ = s.Terminate(context.Background(), 0) })
	}
	all.Wait()
	return nil
}
