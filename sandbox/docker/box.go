package docker

import (
	"context"
	"maps"
	"sync/atomic"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/schemas"
)

// Sandbox is a container with a supervisor in it.
type Sandbox struct {
	*link.Sandbox
	provider *Provider
	id       string // the container's
	image    *recipe
	tally    *tally
	ending   atomic.Bool   // Terminate was called
	oom      atomic.Bool   // the memory limit ended the supervisor; told once examined is closed
	examined chan struct{} // closed when it is known how the container ended
	gone     chan struct{} // closed when the container is removed
}

var _ sandbox.Attached = (*Sandbox)(nil)

// Container is the engine's id of the container.
func (s *Sandbox) Container() string { return s.id }

// Start runs a command; see sandbox.Sandbox.
func (s *Sandbox) Start(ctx context.Context, cmd sandbox.Command) (sandbox.Process, error) {
	// The worker may have put files there since.
	if err := s.Adopt(); err != nil {
		return nil, err
	}
	before, _ := s.tally.count()
	p, err := s.Sandbox.Start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return s.process(p, before), nil
}

// Resume takes over a process; see sandbox.Attached. What its memory limit had ended when it began is not known any more.
func (s *Sandbox) Resume(ctx context.Context, id string, stdout, stderr int64) (sandbox.Process, error) {
	p, err := s.Sandbox.Resume(ctx, id, stdout, stderr)
	if err != nil {
		return nil, err
	}
	return s.process(p, 0), nil
}

func (s *Sandbox) process(p sandbox.Process, before int64) sandbox.Process {
	// A link makes no other kind.
	inner, ok := p.(*link.Process)
	if !ok {
		return p
	}
	return &Process{Process: inner, box: s, before: before}
}

// Terminate ends every process, and removes the container; see sandbox.Sandbox.
func (s *Sandbox) Terminate(ctx context.Context, grace time.Duration) error {
	s.ending.Store(true)
	return s.Sandbox.Terminate(ctx, grace)
}

// Rebind makes a sandbox in which nothing has run yet another's: its id, thread and environment; its workspace must be the
// folder it has, under a new name. Errors: invalid_argument, and it is as it was.
func (s *Sandbox) Rebind(spec sandbox.Spec) error {
	if err := s.Sandbox.Rebind(s.image.complete(spec)); err != nil {
		return err
	}
	return s.Adopt()
}

// Adopt gives everything in the workspace to the container's user, which Start does by itself: it is for files that the worker
// puts there while a process runs. Where the worker is not root, that is the same user, and there is nothing to do. Errors:
// unavailable.
func (s *Sandbox) Adopt() error {
	config := s.provider.config
	if err := own(s.Workspace(), config.UID, config.GID); err != nil {
		return schemas.Errorf(schemas.CodeUnavailable, "workspace: %w", err)
	}
	return nil
}

// complete adds the image's environment to what the Spec says, which wins.
func (r *recipe) complete(spec sandbox.Spec) sandbox.Spec {
	env := maps.Clone(r.env)
	maps.Copy(env, spec.Env)
	spec.Env = env
	return spec
}

// watch lasts until the container is removed, which the end of its supervisor brings about.
func (s *Sandbox) watch(l *link.Link) {
	defer close(s.gone)
	<-l.Done()
	if s.Left() {
		close(s.examined)
		s.tally.close()
		return
	}
	s.examine()
	s.provider.remove(s.id)
	s.tally.close()
}

// examineTimeout bounds the questions about a container that has ended; removing it does not wait for the answers.
const examineTimeout = 5 * time.Second

// examine finds out whether the memory limit ended the supervisor.
func (s *Sandbox) examine() {
	defer close(s.examined)
	if s.ending.Load() {
		return
	}
	// The kernel's own count is there until the engine has noticed the end.
	n, counted := s.tally.count()
	ctx, cancel := context.WithTimeout(context.Background(), examineTimeout)
	defer cancel()
	ended, failed := s.provider.client.ContainerWait(ctx, s.id, container.WaitConditionNotRunning)
	select {
	case <-ended:
	case err := <-failed:
		if err := ignoreGone(err); err != nil {
			s.provider.config.Warn(engineError(s.provider.client, "wait for container "+s.id, err))
		}
	}
	if state, err := s.provider.client.ContainerInspect(ctx, s.id); err == nil && state.State != nil {
		s.oom.Store(state.State.OOMKilled && (!counted || n > 0) && state.State.ExitCode == killedCode)
	}
}

// force ends the supervisor by force, and with it the container.
func (s *Sandbox) force() {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	if err := ignoreGone(s.provider.client.ContainerKill(ctx, s.id, "KILL")); err != nil {
		s.provider.config.Warn(engineError(s.provider.client, "kill container "+s.id, err))
	}
}
