package docker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"path/filepath"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/hostproc"
	"github.com/sluice-dev/sluice/sandbox/registry"
	"github.com/sluice-dev/sluice/sandbox/supervisor/bin"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/sandbox/userids"
	"github.com/sluice-dev/sluice/schemas"
)

// Provider creates sandboxes that are containers.
type Provider struct {
	config     Config
	dir        string
	program    string // the supervisor's file
	folder     string // the name of the run folder, which no other has
	seccomp    string // the profile, as the engine takes it
	client     *client.Client
	pulling    chan struct{} // capacity 1: held during a pull
	negotiated chan bool     // capacity 1: whether the API version is negotiated
	registry   *registry.Registry[*Sandbox, record]
	users      *userids.Block // nil for an ordinary user
}

// record is what reattaching to a container takes.
type record struct {
	registry.Record
	Container string `json:"container,omitempty"` // the engine's id
	UID       int    `json:"uid,omitempty"`       // the user in the container; 0 for the worker's
}

var _ sandbox.Reattacher = (*Provider)(nil)

// New makes the run folder and extracts the supervisor into it. It does not contact the engine: use Probe for that, or Create.
// Errors: invalid_argument for the configuration, unavailable when the folder cannot be used or this system cannot run the provider.
func New(config Config) (*Provider, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	dir := filepath.Join(config.RunDir, "docker")
	if err := errors.Join(registry.PrivateDir(config.RunDir), registry.PrivateDir(dir)); err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "run folder: %w", err)
	}
	program, err := bin.Extract(dir)
	switch {
	case errors.Is(err, bin.ErrNotEmbedded):
		return nil, schemas.Errorf(schemas.CodeUnavailable, "docker: %w: this provider needs Linux on amd64 or arm64", err)
	case err != nil:
		return nil, schemas.Errorf(schemas.CodeUnavailable, "run folder: %w", err)
	}
	folder, err := folderName(dir)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "run folder: %w", err)
	}
	seccomp, err := seccompProfile()
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "docker: seccomp profile: %w", err)
	}
	sandboxes, err := registry.New[*Sandbox, record](schemas.ProviderDocker, dir, config.Warn)
	if err != nil {
		return nil, err
	}
	c, err := newClient(config.Host)
	if err != nil {
		return nil, err
	}
	p := &Provider{
		config: config, dir: dir, folder: folder, program: program, seccomp: seccomp, client: c, registry: sandboxes,
		pulling: make(chan struct{}, 1), negotiated: make(chan bool, 1),
	}
	p.negotiated <- false
	if err := p.reserveUsers(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return p, nil
}

// Name is schemas.ProviderDocker.
func (p *Provider) Name() string { return schemas.ProviderDocker }

func (p *Provider) socket(name string) string { return filepath.Join(p.dir, name+".sock") }

// Create creates a container; see sandbox.Provider. Errors: conflict for an id in use; not_found for an image that is neither on this
// machine nor in its registry; unavailable when no engine answers, or the image cannot be pulled.
func (p *Provider) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	spec, err := p.complete(spec)
	if err != nil {
		return nil, err
	}
	name := registry.NameOf(rand.Text())
	return p.registry.Create(spec, name, func() (*Sandbox, error) { return p.launch(ctx, spec, name) })
}

// complete checks the Spec, and fills in the image and the limits.
func (p *Provider) complete(spec sandbox.Spec) (sandbox.Spec, error) {
	if err := errors.Join(link.CheckSpec(spec), checkLimits(spec.Limits)); err != nil {
		return spec, err
	}
	if spec.Image = cmp.Or(spec.Image, p.config.Image); spec.Image == "" {
		return spec, schemas.Errorf(schemas.CodeInvalidArgument, "image: provider docker needs an image, and there is no default").With("path", "image")
	}
	spec.Limits = spec.Limits.Or(p.config.Limits).WorkspaceDefaults()
	spec.Workspace = filepath.Clean(spec.Workspace)
	return spec, nil
}

const (
	// removeTimeout bounds the removal of a container. A later sweep removes what remains.
	removeTimeout = 30 * time.Second
	// removeTries bounds how often an engine is asked that fails: version 20.10 fails when a container ends just as it is killed.
	removeTries = 5
)

// remove removes a container in any state, and its volumes, and returns when it is gone.
func (p *Provider) remove(id string) (removed bool) {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	err := backoff.Retry(func() error {
		err := ignoreNotFound(p.client.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true}))
		if errdefs.IsInternal(err) {
			return err
		}
		return backoff.Permanent(err)
	}, backoff.WithContext(backoff.WithMaxRetries(backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond)), removeTries-1), ctx))
	if errdefs.IsConflict(err) {
		// Its removal is in progress already.
		gone, failed := p.client.ContainerWait(ctx, id, container.WaitConditionRemoved)
		select {
		case <-gone:
			err = nil
		case err = <-failed:
			err = ignoreNotFound(err)
		}
	}
	if err != nil {
		p.config.Warn(engineError(p.client, "remove container "+id, err))
	}
	return err == nil
}

// Attach takes over the containers of an earlier process; see sandbox.Reattacher. There are none under a runtime in which the
// supervisor could not take the listening socket, like runsc: such a container ends with its worker. Errors: unavailable, also when
// no engine answers and there are record files.
func (p *Provider) Attach(ctx context.Context) ([]sandbox.Attached, error) {
	orphans, err := p.registry.Orphans()
	if err != nil {
		return nil, err
	}
	defer p.registry.SweepSockets(p.dir)
	if len(orphans) == 0 {
		return nil, nil
	}
	if err := p.negotiate(ctx); err != nil {
		return nil, err
	}
	return p.registry.Attach(ctx, p.reattach)
}

func (p *Provider) reattach(ctx context.Context, r record) (*Sandbox, error) {
	s, err := p.reopen(ctx, r)
	if err != nil {
		if !p.remove(namePrefix + r.Name) {
			hostproc.KillCgroup(cgroupsOf(r.Container)) // without the engine: a later sweep removes it
		}
		p.releaseUser(r.UID)
		return nil, errors.Join(err, removeFile(p.socket(r.Name)))
	}
	return s, nil
}

func (p *Provider) reopen(ctx context.Context, r record) (*Sandbox, error) {
	state, err := p.client.ContainerInspect(ctx, namePrefix+r.Name)
	switch {
	case err != nil:
		return nil, err
	case state.State == nil || !state.State.Running || state.ID != r.Container:
		return nil, schemas.Errorf(schemas.CodeUnavailable, "container %s is not running", r.Name)
	}
	l, err := link.Reopen(ctx, p.socket(r.Name), p.config.ReattachWindow)
	if err != nil {
		return nil, err
	}
	return p.newSandbox(r, &imageInfo{id: state.Image, env: make(map[string]string)}, l, state.State.Pid), nil
}

// Detach leaves every container running; see sandbox.Reattacher.
func (p *Provider) Detach() error {
	p.registry.Detach()
	return p.client.Close()
}

// Close ends every sandbox without a grace period, and closes the connections to the engine.
func (p *Provider) Close() error {
	p.registry.Close()
	return p.client.Close()
}
