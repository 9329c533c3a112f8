package docker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
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

// launch makes a container and connects to its supervisor. What a failure leaves is removed.
func (p *Provider) launch(ctx context.Context, spec sandbox.Spec, name string) (*Sandbox, error) {
	image, err := p.ensureImage(ctx, spec.Image)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.StartTimeout)
	defer cancel()
	meeting, err := meet(p.dir, name)
	if err != nil {
		return nil, err
	}
	s, err := p.start(ctx, spec, image, meeting, name)
	err = errors.Join(err, meeting.close())
	if err != nil {
		if s != nil {
			<-s.Done()
		}
		return nil, errors.Join(err, remove(meeting.socket))
	}
	return s, nil
}

// namePrefix comes before the name of a container's sockets in its own.
const namePrefix = "sluice-"

// newName names a container and its sockets.
func newName() string {
	var b [10]byte
	// It never fails, as its documentation says.
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (p *Provider) start(ctx context.Context, spec sandbox.Spec, image *recipe, meeting *rendezvous, name string) (*Sandbox, error) {
	made, err := p.make(ctx, spec, image, meeting.ask, namePrefix+name)
	if err != nil {
		return nil, p.startError(ctx, "create a container", err)
	}
	r := registry.Record{ID: spec.ID, Spec: image.complete(spec), Name: name, Container: made.ID}
	if err := p.registry.Save(r); err != nil {
		p.remove(made.ID)
		return nil, err
	}
	conn, pid, err := p.connect(ctx, made.ID, meeting)
	if err != nil {
		p.remove(made.ID)
		return nil, err
	}
	reattachWindow := p.config.ReattachWindow
	if meeting.kept {
		reattachWindow = 0 // nobody could come back for it
	}
	l, err := link.Open(ctx, conn, reattachWindow)
	if err != nil {
		p.remove(made.ID)
		return nil, err
	}
	return p.box(r, image, l, pid), nil
}

// make has the engine make a container. The answer is waited for even if the caller is in no mood to wait any more: the engine goes on
// with what it has begun, and only its answer says what there is to be removed.
func (p *Provider) make(ctx context.Context, spec sandbox.Spec, image *recipe, ask, name string) (container.CreateResponse, error) {
	if err := ctx.Err(); err != nil {
		return container.CreateResponse{}, err
	}
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.config.StartTimeout)
	defer cancel()
	config, host := p.describe(spec, image, ask)
	made, err := p.client.ContainerCreate(patient, config, host, nil, nil, name)
	if err == nil {
		if err = ctx.Err(); err != nil {
			p.remove(made.ID)
		}
		return made, err
	}
	if made, findErr := p.client.ContainerInspect(context.WithoutCancel(ctx), name); findErr == nil {
		p.remove(made.ID) // it was made, and the answer came too late
	}
	return made, err
}

// box is a container whose supervisor answers.
func (p *Provider) box(r registry.Record, image *recipe, l *link.Link, pid int) *Sandbox {
	s := &Sandbox{
		provider: p, id: r.Container, image: image, tally: openTally(pid),
		examined: make(chan struct{}), gone: make(chan struct{}),
	}
	s.Sandbox = link.NewSandbox(l, link.Config{
		Spec: r.Spec, Home: home, Exited: s.gone, Kill: s.force,
		Cleanup: func() {
			if err := remove(p.socket(r.Name)); err != nil {
				p.config.Warn(fmt.Errorf("remove a socket: %w", err))
			}
			p.registry.Forget(r.ID)
		},
		SaveSpec: func(spec sandbox.Spec) error {
			r := r
			r.Spec = spec
			return p.registry.Save(r)
		},
	})
	go s.watch(l)
	return s
}

// connect starts the container, hands its supervisor the listening socket, and connects to that.
func (p *Provider) connect(ctx context.Context, id string, meeting *rendezvous) (net.Conn, int, error) {
	if err := p.client.ContainerStart(ctx, id, container.StartOptions{}); err != nil {
		return nil, 0, p.startError(ctx, "start a container", err)
	}
	// A container that ends at once would never ask.
	meetCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended, failed := p.client.ContainerWait(meetCtx, id, container.WaitConditionNotRunning)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case state := <-ended:
			cancel(fmt.Errorf("the container ended at once, with exit code %d", state.StatusCode))
		case err := <-failed:
			cancel(err)
		case <-meetCtx.Done():
		}
	}()
	conn, err := meeting.open(meetCtx)
	if err != nil {
		err = errors.Join(context.Cause(meetCtx), err)
	}
	cancel(nil)
	<-watched
	if err != nil {
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

// startError is why no sandbox came of it. Only the caller's own end of patience is not the engine's fault.
func (p *Provider) startError(ctx context.Context, what string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if strings.Contains(err.Error(), "unknown or invalid runtime name") || strings.Contains(err.Error(), "Unknown runtime specified") {
		return schemas.Errorf(schemas.CodeUnavailable, "docker: the engine has no runtime %q: %w", p.config.Runtime, err)
	}
	return engineError(p.client, what, err)
}
