package docker

import (
	"context"
	"errors"
	"net"
	"path/filepath"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/registry"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/schemas"
)

func (p *Provider) socket(name string) string { return filepath.Join(p.dir, name+".sock") }

// Attach takes over the containers that an earlier process left; see sandbox.Reattacher. Under a runtime in which the supervisor
// could not be given a socket, like runsc, there are none: such a container ends with its worker. Errors: unavailable, also when
// no engine answers though there are containers to find.
func (p *Provider) Attach(ctx context.Context) ([]sandbox.Attached, error) {
	left, err := p.registry.Left()
	if err != nil {
		return nil, err
	}
	defer p.registry.SweepSockets(p.dir)
	if len(left) == 0 {
		return nil, nil
	}
	if err := p.agree(ctx); err != nil {
		return nil, err
	}
	return p.registry.Attach(ctx, p.reattach)
}

func (p *Provider) reattach(ctx context.Context, r registry.Record) (*Sandbox, error) {
	s, err := p.reopen(ctx, r)
	if err != nil {
		p.remove(namePrefix + r.Name)
		return nil, errors.Join(err, remove(p.socket(r.Name)))
	}
	return s, nil
}

// reopen connects to a container's supervisor.
func (p *Provider) reopen(ctx context.Context, r registry.Record) (*Sandbox, error) {
	state, err := p.client.ContainerInspect(ctx, namePrefix+r.Name)
	switch {
	case err != nil:
		return nil, err
	case state.State == nil || !state.State.Running || state.ID != r.Container:
		return nil, schemas.Errorf(schemas.CodeUnavailable, "container %s does not run", r.Name)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", p.socket(r.Name))
	if err != nil {
		return nil, err
	}
	l, err := link.Reopen(ctx, conn, p.config.ReattachWindow)
	if err != nil {
		return nil, err
	}
	return p.box(r, &recipe{id: state.Image, env: make(map[string]string)}, l, state.State.Pid), nil
}
