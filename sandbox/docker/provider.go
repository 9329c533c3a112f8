package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/registry"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/schemas"
)

// Provider makes sandboxes that are containers.
type Provider struct {
	config   Config
	dir      string
	program  string
	filter   string // of system calls, as the engine takes it
	client   *client.Client
	pulling  chan struct{} // one token
	version  chan bool     // one token: whether the API's version is agreed on
	registry *registry.Registry[*Sandbox]
}

var _ sandbox.Reattacher = (*Provider)(nil)

// New makes the run folder and puts the supervisor there. It asks the engine nothing: whether one answers is seen by Probe
// or by Create. Errors: invalid_argument for the configuration, unavailable when the folder cannot be used or this system
// cannot run the provider.
func New(config Config) (*Provider, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults(os.Geteuid(), os.Getegid())
	dir := filepath.Join(config.RunDir, "docker")
	if err := errors.Join(registry.PrivateDir(config.RunDir), registry.PrivateDir(dir)); err != nil {
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
	kept, err := registry.New[*Sandbox](name, dir)
	if err != nil {
		return nil, err
	}
	c, err := dial(config.Host)
	if err != nil {
		return nil, err
	}
	p := &Provider{
		config: config, dir: dir, program: program, filter: calls, client: c, registry: kept,
		pulling: make(chan struct{}, 1), version: make(chan bool, 1),
	}
	p.version <- false
	return p, nil
}

const name = "docker"

// Name is "docker".
func (p *Provider) Name() string { return name }

// Create makes a container; see sandbox.Provider. Errors: conflict for an id that is in use; not_found for an image that
// is neither here nor in its registry; unavailable when no engine answers, or the image cannot be pulled.
func (p *Provider) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	spec, err := p.check(spec)
	if err != nil {
		return nil, err
	}
	name := newName()
	s, err := p.registry.Create(spec, name, func() (*Sandbox, error) { return p.create(ctx, spec, name) })
	if err != nil {
		return nil, err
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

func (p *Provider) create(ctx context.Context, spec sandbox.Spec, name string) (*Sandbox, error) {
	if err := p.agree(ctx); err != nil {
		return nil, err
	}
	if err := own(spec.Workspace, p.config.UID, p.config.GID); err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "workspace: %w", err).With("path", "workspace")
	}
	return p.launch(ctx, spec, name)
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

// Leave gives every container up without ending it; see sandbox.Reattacher.
func (p *Provider) Leave() error {
	p.registry.Leave()
	return p.client.Close()
}

// Close ends every sandbox, without grace, and the connections to the engine.
func (p *Provider) Close() error {
	p.registry.Close()
	return p.client.Close()
}
