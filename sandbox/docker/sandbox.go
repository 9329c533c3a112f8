package docker

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/sluice-dev/sluice/internal/shortage"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/hostproc"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/schemas"
)

// Sandbox is a container with a supervisor in it.
type Sandbox struct {
	*link.Sandbox
	provider    *Provider
	cgroups     []string // folders on this host; none where the engine is elsewhere
	id          string   // the container's
	uid         int      // of the user in it; 0 for the worker's
	image       *imageInfo
	oom         *oomCounter
	terminating atomic.Bool   // Terminate was called
	oomKilled   atomic.Bool   // the memory limit ended the supervisor; valid once examined is closed
	examined    chan struct{} // closed when the cause of the container's end is known
	removed     chan struct{} // closed when the container is removed
}

var _ sandbox.Attached = (*Sandbox)(nil)

// newSandbox returns the sandbox of a container whose supervisor has answered. pid is the supervisor's on the host.
func (p *Provider) newSandbox(r record, image *imageInfo, l *link.Link, pid int) *Sandbox {
	pid, cgroups := ownCgroups(pid, r.Container)
	limitSockets(cgroups, r.Spec.Limits.SocketBytes())
	s := &Sandbox{
		cgroups:  cgroups,
		provider: p, id: r.Container, uid: r.UID, image: image, oom: openOOMCounter(pid),
		examined: make(chan struct{}), removed: make(chan struct{}),
	}
	s.Sandbox = link.NewSandbox(l, link.Config{
		Spec: r.Spec, Home: home, Supervisor: pid, Exited: s.removed, Kill: s.kill,
		Cleanup: func() {
			if err := removeFile(p.socket(r.Name)); err != nil {
				p.config.Warn(err)
			}
			p.registry.Remove(r.ID)
		},
		SaveSpec: func(spec sandbox.Spec) error { return p.registry.SaveSpec(r, spec) },
	})
	go s.watch(l)
	return s
}

// limitSockets bounds what TCP sockets buffer on a host with cgroups v1, which do not count it as memory. runc ignores the engine's setting
// for it since 1.0.
func limitSockets(cgroups []string, limit int64) {
	for _, dir := range cgroups {
		// Only the controller of v1 for memory has the file, and only root may write to it.
		_ = os.WriteFile(filepath.Join(dir, "memory.kmem.tcp.limit_in_bytes"), strconv.AppendInt(nil, limit, 10), 0)
	}
}

// ownCgroups returns the pid of a container's process and the folders of its cgroups; none where it is no process of this host, because the
// engine runs elsewhere.
func ownCgroups(pid int, container string) (int, []string) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil || container == "" {
		return 0, nil
	}
	dirs := cgroupDirs(b)
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return !strings.Contains(filepath.Base(dir), container) })
	if len(dirs) == 0 {
		return 0, nil
	}
	return pid, dirs
}

// cgroupsOf returns the folders of a container's cgroups on this host where no process of it is known: those of the engine's drivers,
// cgroupfs and systemd, in both versions of cgroups.
func cgroupsOf(container string) (dirs []string) {
	if container == "" {
		return nil
	}
	for _, pattern := range []string{"docker/" + container, "*/docker/" + container, "system.slice/docker-" + container + ".scope", "*/system.slice/docker-" + container + ".scope"} {
		found, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", pattern)) // the pattern is valid: an id is hexadecimal
		dirs = append(dirs, found...)
	}
	return dirs
}

// Container is the engine's id of the container.
func (s *Sandbox) Container() string { return s.id }

// Start starts a command; see sandbox.Sandbox.
func (s *Sandbox) Start(ctx context.Context, cmd sandbox.Command) (sandbox.Process, error) {
	// The worker may have written files to the workspace since the last start.
	if err := s.ChownWorkspace(); err != nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrRefused, err)
	}
	killed, _ := s.oom.count()
	p, err := s.Sandbox.Start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return s.process(p, killed), nil
}

// Resume takes over a process; see sandbox.Attached. The OOM kills before its start are not known any more.
func (s *Sandbox) Resume(ctx context.Context, id string, stdout, stderr int64) (sandbox.Process, error) {
	p, err := s.Sandbox.Resume(ctx, id, stdout, stderr)
	if err != nil {
		return nil, err
	}
	return s.process(p, 0), nil
}

func (s *Sandbox) process(p sandbox.Process, oomBefore int64) sandbox.Process {
	inner, ok := p.(*link.Process) // always, from a link.Sandbox
	if !ok {
		return p
	}
	return &Process{Process: inner, sandbox: s, oomBefore: oomBefore}
}

// Terminate ends every process and removes the container; see sandbox.Sandbox.
func (s *Sandbox) Terminate(ctx context.Context, grace time.Duration) error {
	s.terminating.Store(true)
	return s.Sandbox.Terminate(ctx, grace)
}

// Rebind binds a sandbox in which nothing has run to another Spec: its id, thread and environment. The Spec's workspace must be the
// same folder under a new name. Errors: invalid_argument; the sandbox is then unchanged.
func (s *Sandbox) Rebind(spec sandbox.Spec) error {
	if err := s.Sandbox.Rebind(s.image.addEnv(spec)); err != nil {
		return err
	}
	return s.ChownWorkspace()
}

// ChownWorkspace gives everything in the workspace to the container's user. Start calls it; call it for files that the worker writes
// while a process runs. When the worker is not root, the container has the worker's user, and there is nothing to do. Errors:
// unavailable.
func (s *Sandbox) ChownWorkspace() error {
	if err := chown(s.Workspace(), s.uid); err != nil {
		return shortage.Explain(schemas.Errorf(schemas.CodeUnavailable, "workspace: %w", err))
	}
	return nil
}

// addEnv adds the image's environment to the Spec's, which overrides it.
func (i *imageInfo) addEnv(spec sandbox.Spec) sandbox.Spec {
	env := maps.Clone(i.env)
	maps.Copy(env, spec.Env)
	spec.Env = env
	return spec
}

// watch waits for the end of the supervisor, and then removes the container.
func (s *Sandbox) watch(l *link.Link) {
	defer close(s.removed)
	<-l.Done()
	if s.Detached() {
		close(s.examined)
		s.oom.close()
		return
	}
	s.examine()
	if !s.provider.remove(s.id) {
		hostproc.KillCgroup(s.cgroups) // without the engine, which removes it later
	}
	s.provider.releaseUser(s.uid)
	s.oom.close()
}

// examineTimeout bounds the requests about a container that has ended. Its removal does not depend on their answers.
const examineTimeout = 5 * time.Second

// examine determines whether the memory limit ended the supervisor.
func (s *Sandbox) examine() {
	defer close(s.examined)
	if s.terminating.Load() {
		return
	}
	// The kernel's counter exists until the engine has noticed the end.
	n, counted := s.oom.count()
	ctx, cancel := context.WithTimeout(context.Background(), examineTimeout)
	defer cancel()
	ended, failed := s.provider.client.ContainerWait(ctx, s.id, container.WaitConditionNotRunning)
	select {
	case <-ended:
	case err := <-failed:
		if err := ignoreNotFound(err); err != nil {
			s.provider.config.Warn(engineError(s.provider.client, "wait for container "+s.id, err))
		}
	}
	if state, err := s.provider.client.ContainerInspect(ctx, s.id); err == nil && state.State != nil {
		s.oomKilled.Store(state.State.OOMKilled && (!counted || n > 0) && state.State.ExitCode == killedCode)
	}
}

// killTimeout bounds the engine's answer to a kill.
const killTimeout = 5 * time.Second

// kill kills the supervisor, and with it the container: by its cgroups, and only where it may not by the engine. An engine answers after it
// has handled what it was notified of before: a container that ran out of memory a few thousand times delays that for seconds.
func (s *Sandbox) kill() {
	if hostproc.KillCgroup(s.cgroups) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	err := ignoreNotFound(s.provider.client.ContainerKill(ctx, s.id, "KILL"))
	if err != nil && !errdefs.IsConflict(err) { // a conflict: it does not run any more
		s.provider.config.Warn(engineError(s.provider.client, "kill container "+s.id, err))
	}
}

// Process is a process in a container. It adds to the exit record what its supervisor cannot know: an end by the memory limit.
type Process struct {
	*link.Process
	sandbox       *Sandbox
	oomBefore     int64       // OOM kills before its start
	killRequested atomic.Bool // by Signal or Kill

	once sync.Once
	exit sandbox.Exit
}

var _ sandbox.Process = (*Process)(nil)

// Signal sends a signal to the process group; see sandbox.Process.
func (p *Process) Signal(sig sandbox.Signal) error {
	if sig == sandbox.Signal(syscall.SIGKILL) {
		p.killRequested.Store(true)
	}
	return p.Process.Signal(sig)
}

// Kill ends the whole process tree; see sandbox.Process.
func (p *Process) Kill(grace time.Duration) error {
	p.killRequested.Store(true)
	return p.Process.Kill(grace)
}

// killedCode is the exit code that a shell returns for a command killed by SIGKILL.
const killedCode = schemas.ExitSignalBase + int(syscall.SIGKILL)

// Wait returns the exit record; see sandbox.Process. The reason is schemas.ReasonOOM for a process that SIGKILL ended, or a shell
// whose command it ended, while the kernel killed something for the container's memory limit, unless the kill was requested. It is
// also the reason of a process that was lost because the memory limit ended the supervisor.
func (p *Process) Wait(ctx context.Context) (sandbox.Exit, error) {
	exit, err := p.Process.Wait(ctx)
	if err != nil {
		return exit, err
	}
	if exit.Reason == schemas.ReasonLost {
		select {
		case <-p.sandbox.examined:
		case <-ctx.Done():
			return sandbox.Exit{}, ctx.Err()
		}
	}
	p.once.Do(func() {
		if p.outOfMemory(exit) {
			exit.Reason, exit.Code = schemas.ReasonOOM, killedCode
		}
		p.exit = exit
	})
	return p.exit, nil
}

func (p *Process) outOfMemory(exit sandbox.Exit) bool {
	switch {
	case exit.Reason == schemas.ReasonLost:
		return p.sandbox.oomKilled.Load()
	case exit.Code != killedCode || p.killRequested.Load() || p.sandbox.terminating.Load():
		return false
	case exit.Reason == schemas.ReasonKilled || exit.Reason == schemas.ReasonExited:
		return p.sandbox.oom.claim(p.oomBefore)
	default:
		return false
	}
}
