package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/registry"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/schemas"
)

// namePrefix and a Record's name make the name of a container.
const namePrefix = "sluice-"

// launch creates a container and connects to its supervisor. It removes everything when it fails.
func (p *Provider) launch(ctx context.Context, spec sandbox.Spec, name string) (*Sandbox, error) {
	if err := p.negotiate(ctx); err != nil {
		return nil, err
	}
	if err := p.chown(spec.Workspace); err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "workspace: %w", err).With("path", "workspace")
	}
	image, err := p.ensureImage(ctx, spec.Image)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.StartTimeout)
	defer cancel()
	handoff, err := newSocketHandoff(p.dir, name)
	if err != nil {
		return nil, err
	}
	s, err := p.start(ctx, spec, image, handoff, name)
	if err != nil {
		return nil, errors.Join(err, handoff.close(), removeFile(handoff.socketPath))
	}
	return s, nil
}

func (p *Provider) start(ctx context.Context, spec sandbox.Spec, image *imageInfo, handoff *socketHandoff, name string) (_ *Sandbox, err error) {
	id, err := p.createContainer(ctx, spec, image, handoff.requestPath, namePrefix+name)
	if err != nil {
		return nil, p.startError(ctx, "create a container", err)
	}
	defer func() {
		if err != nil {
			p.remove(id)
		}
	}()
	r := record{Record: registry.Record{ID: spec.ID, Spec: image.addEnv(spec), Name: name}, Container: id}
	if err := p.registry.Save(r); err != nil {
		return nil, err
	}
	conn, pid, err := p.connect(ctx, id, handoff)
	if err != nil {
		return nil, err
	}
	reattachWindow := p.config.ReattachWindow
	if handoff.singleConn {
		reattachWindow = 0 // no other worker could connect
	}
	l, err := link.Open(ctx, conn, reattachWindow)
	if err != nil {
		return nil, err
	}
	return p.newSandbox(r, image, l, pid), nil
}

// createContainer returns the container's id. It waits for the engine's answer also when ctx ends: the engine continues with what it
// has begun, and only its answer names the container to remove.
func (p *Provider) createContainer(ctx context.Context, spec sandbox.Spec, image *imageInfo, requestPath, name string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	uncanceled, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.config.StartTimeout)
	defer cancel()
	config, host := p.containerConfig(spec, image, requestPath)
	created, err := p.client.ContainerCreate(uncanceled, config, host, nil, nil, name)
	if err == nil {
		if err = ctx.Err(); err != nil {
			p.remove(created.ID)
		}
		return created.ID, err
	}
	if found, findErr := p.client.ContainerInspect(context.WithoutCancel(ctx), name); findErr == nil {
		p.remove(found.ID) // it was created, and the answer came after the timeout
	}
	return "", err
}

// connect starts the container, passes the listening socket to its supervisor, and connects to that. It also returns the
// supervisor's pid on the host, or 0.
func (p *Provider) connect(ctx context.Context, id string, handoff *socketHandoff) (net.Conn, int, error) {
	if err := p.client.ContainerStart(ctx, id, container.StartOptions{}); err != nil {
		return nil, 0, p.startError(ctx, "start a container", err)
	}
	// A container that ends at once never sends the request.
	handoffCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended, failed := p.client.ContainerWait(handoffCtx, id, container.WaitConditionNotRunning)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case state := <-ended:
			cancel(fmt.Errorf("the container ended at once, with exit code %d", state.StatusCode))
		case err := <-failed:
			cancel(err)
		case <-handoffCtx.Done():
		}
	}()
	conn, err := handoff.connect(handoffCtx)
	if err != nil {
		err = errors.Join(context.Cause(handoffCtx), err)
	}
	cancel(nil)
	<-watched
	if err != nil {
		if conn != nil {
			_ = conn.Close() // the container is removed
		}
		return nil, 0, p.startError(ctx, "wait for the supervisor", err)
	}
	state, err := p.client.ContainerInspect(ctx, id)
	if err != nil {
		return nil, 0, p.startError(ctx, "inspect a container", errors.Join(err, conn.Close()))
	}
	pid := 0
	if state.State != nil {
		pid = state.State.Pid
	}
	return conn, pid, nil
}

// startError returns the error of a failed start. After a cancellation that is the context's error; a timeout counts as the
// engine's failure.
func (p *Provider) startError(ctx context.Context, what string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if strings.Contains(err.Error(), "unknown or invalid runtime name") || strings.Contains(err.Error(), "Unknown runtime specified") {
		return schemas.Errorf(schemas.CodeUnavailable, "docker: the engine has no runtime %q: %w", p.config.Runtime, err)
	}
	return engineError(p.client, what, err)
}
