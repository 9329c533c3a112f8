package docker

import (
	"strconv"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Where things are in a container.
const (
	home           = "/workspace"
	supervisorPath = "/sluice/supervisor"
	askPath        = "/sluice/socket"
)

// The labels of a container. By the first two a worker knows its own.
const (
	labelCell    = "dev.sluice.cell"
	labelWorker  = "dev.sluice.worker"
	labelSandbox = "dev.sluice.sandbox"
	labelThread  = "dev.sluice.thread"
)

// spare is how many threads the supervisor itself may have beside what a sandbox's limit gives its processes.
const spare = 32

// describe is a container, as the engine wants it said. spec is complete: its limits are set.
func (p *Provider) describe(spec sandbox.Spec, r *recipe, ask string) (*container.Config, *container.HostConfig) {
	config := &container.Config{
		Image:      r.id,
		Entrypoint: []string{supervisorPath},
		Cmd:        []string{"receive", askPath},
		User:       strconv.Itoa(p.config.UID) + ":" + strconv.Itoa(p.config.GID),
		WorkingDir: "/",
		Hostname:   "sandbox",
		// An image's check would be a process that nobody asked for.
		Healthcheck:     &container.HealthConfig{Test: []string{"NONE"}},
		NetworkDisabled: spec.Network != schemas.NetworkHost,
		Labels: map[string]string{
			labelCell: p.config.Cell, labelWorker: p.config.Worker, labelSandbox: spec.ID, labelThread: spec.Thread,
		},
	}
	l := spec.Limits
	pids := l.PIDs + spare
	// /tmp may hold programs: the workspace may too, so that refusing it here would only break compilers.
	tmp := "rw,exec,nosuid,nodev,mode=1777,size=" + strconv.FormatInt(l.TmpBytes, 10)
	tmpfs := map[string]string{"/tmp": tmp}
	for _, path := range r.volumes {
		if path != home && path != "/tmp" {
			tmpfs[path] = tmp
		}
	}
	host := &container.HostConfig{
		NetworkMode:    "none",
		Runtime:        p.config.Runtime,
		ReadonlyRootfs: true,
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges"},
		IpcMode:        "private",
		ShmSize:        l.TmpBytes,
		Tmpfs:          tmpfs,
		// What is printed goes over the socket; an engine's own log would grow without bound.
		LogConfig: container.LogConfig{Type: "none"},
		Resources: container.Resources{
			Memory:     l.MemoryBytes,
			MemorySwap: l.MemoryBytes, // the sum of both: no swap
			NanoCPUs:   int64(l.CPUs * 1e9),
			PidsLimit:  &pids,
		},
		Mounts: []mount.Mount{
			bind(p.program, supervisorPath, true), bind(ask, askPath, true), bind(spec.Workspace, home, false),
		},
	}
	if spec.Network == schemas.NetworkHost {
		// The engine does not let a container name itself where it shares the host's names.
		host.NetworkMode, config.Hostname = "host", ""
	}
	return config, host
}

func bind(source, target string, readOnly bool) mount.Mount {
	return mount.Mount{
		Type: mount.TypeBind, Source: source, Target: target, ReadOnly: readOnly,
		BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate},
	}
}
