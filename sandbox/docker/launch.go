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
	uid, err := p.allocateUser(spec.Workspace)
	if err != nil {
		return nil, err
	}
	s, err := p.launchAs(ctx, spec, name, uid)
	if err != nil {
		p.releaseUser(uid)
		return nil, err
	}
	return s, nil
}

func (p *Provider) launchAs(ctx context.Context, spec sandbox.Spec, name string, uid int) (*Sandbox, error) {
	if err := chown(spec.Workspace, uid); err != nil {
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
	r := record{Record: registry.Record{ID: spec.ID, Spec: image.addEnv(spec), Name: name}, UID: uid}
	s, err := p.start(ctx, r, image, handoff)
	if err != nil {
		return nil, errors.Join(err, handoff.close(), removeFile(handoff.socketPath))
	}
	return s, nil
}

func (p *Provider) start(ctx context.Context, r record, image *imageInfo, handoff *socketHandoff) (_ *Sandbox, err error) {
	if r.Container, err = p.createContainer(ctx, r, image, handoff.requestPath); err != nil {
		return nil, p.startError(ctx, "create a container", err)
	}
	defer func() {
		if err != nil {
			p.remove(r.Container)
		}
	}()
	if err := p.registry.Save(r); err != nil {
		return nil, err
	}
	conn, pid, err := p.connect(ctx, r.Container, handoff)
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
func (p *Provider) createContainer(ctx context.Context, r record, image *imageInfo, requestPath string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	uncanceled, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.config.StartTimeout)
	defer cancel()
	name := namePrefix + r.Name
	config, host := p.containerConfig(r.Spec, image, requestPath)
	config.User = userOf(r.UID)
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
