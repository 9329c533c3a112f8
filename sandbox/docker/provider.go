package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/schemas"
)

// Provider makes sandboxes that are containers.
type Provider struct {
	config  Config
	dir     string
	program string
	filter  string // of system calls, as the engine takes it
	client  *client.Client
	pulling chan struct{} // one token

	mu     sync.Mutex
	boxes  map[string]*Sandbox // by Spec.ID; nil while being made
	making sync.WaitGroup
	closed bool
}

var _ sandbox.Provider = (*Provider)(nil)

// New makes the run folder and puts the supervisor there. It asks the engine nothing: whether one answers is seen by Probe
// or by Create. Errors: invalid_argument for the configuration, unavailable when the folder cannot be used or this system
// cannot run the provider.
func New(config Config) (*Provider, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults(os.Geteuid(), os.Getegid())
	dir := filepath.Join(config.RunDir, "docker")
	if err := errors.Join(privateDir(config.RunDir), privateDir(dir)); err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "run folder: %w", err)
	}
	program, err := placeProgram(dir)
	if err != nil {
		return nil, err
	}
	calls, err := filter()
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "docker: the filter of system calls: %w", err)
	}
	c, err := dial(config.Host)
	if err != nil {
		return nil, err
	}
	return &Provider{
		config: config, dir: dir, program: program, filter: calls, client: c,
		pulling: make(chan struct{}, 1), boxes: make(map[string]*Sandbox),
	}, nil
}

// Name is "docker".
func (p *Provider) Name() string { return "docker" }

// Create makes a container; see sandbox.Provider. Errors: conflict for an id that is in use; not_found for an image that
// is neither here nor in its registry; unavailable when no engine answers, or the image cannot be pulled.
func (p *Provider) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	spec, err := p.check(spec)
	if err != nil {
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

// check gives the Spec with what it leaves open.
func (p *Provider) check(spec sandbox.Spec) (sandbox.Spec, error) {
	if err := errors.Join(link.CheckSpec(spec), checkLimits(spec.Limits)); err != nil {
		return spec, err
	}
	if spec.Image == "" {
		spec.Image = p.config.Image
	}
	if spec.Image == "" {
		return spec, schemas.Errorf(schemas.CodeInvalidArgument, "image: provider docker needs one, and there is no default").With("path", "image")
	}
	spec.Limits = limits(spec.Limits, p.config.Limits).WorkspaceDefaults()
	spec.Workspace = filepath.Clean(spec.Workspace)
	return spec, nil
}

func (p *Provider) reserve(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return schemas.Errorf(schemas.CodeUnavailable, "provider docker is closed")
	}
	if _, ok := p.boxes[id]; ok {
		return schemas.Errorf(schemas.CodeConflict, "sandbox %s is there already", id)
	}
	p.boxes[id] = nil
	p.making.Add(1)
	return nil
}

func (p *Provider) create(ctx context.Context, spec sandbox.Spec) (*Sandbox, error) {
	made, err := makeWorkspace(spec.Workspace)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "workspace: %w", err).With("path", "workspace")
	}
	s, err := p.createIn(ctx, spec)
	if err != nil && made {
		// Only what is empty, and only the last folder: the ones above may be others' by now.
		_ = os.Remove(spec.Workspace)
	}
	return s, err
}

func (p *Provider) createIn(ctx context.Context, spec sandbox.Spec) (*Sandbox, error) {
	if err := own(spec.Workspace, p.config.UID, p.config.GID); err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "workspace: %w", err).With("path", "workspace")
	}
	return p.launch(ctx, spec)
}

func (p *Provider) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.boxes, id)
}

// removeTimeout bounds the removal of a container. What it did not remove, a later sweep does.
const removeTimeout = 30 * time.Second

// remove removes a container, whatever its state, and its volumes, and returns when it is gone.
func (p *Provider) remove(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	err := ignoreGone(p.client.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true}))
	if errdefs.IsConflict(err) {
		// Somebody else is removing it.
		gone, failed := p.client.ContainerWait(ctx, id, container.WaitConditionRemoved)
		select {
		case <-gone:
			err = nil
		case err = <-failed:
			err = ignoreGone(err)
		}
	}
	if err != nil {
		p.config.Warn(engineError(p.client, "remove container "+id, err))
	}
}

// Close ends every sandbox, without grace, and the connections to the engine.
func (p *Provider) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.making.Wait()
	p.mu.Lock()
	boxes := make([]*Sandbox, 0, len(p.boxes))
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
	return p.client.Close()
}
