package docker

import (
	"strconv"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Paths in a container.
const (
	home              = "/workspace"
	supervisorPath    = "/sluice/supervisor"
	requestSocketPath = "/sluice/socket"
)

// The labels of a container. A worker finds its containers by the first two.
const (
	labelCell    = "dev.sluice.cell"
	labelWorker  = "dev.sluice.worker"
	labelFolder  = "dev.sluice.folder"
	labelSandbox = "dev.sluice.sandbox"
	labelThread  = "dev.sluice.thread"
)

// supervisorPIDs is the number of threads for the supervisor, added to the sandbox's limit of pids.
const supervisorPIDs = 32

// maskedPaths are the files in /proc and /sys that reveal the host: the list of the newest engine, whatever the engine's version,
// /proc/softirqs, and all of /sys/kernel.
var maskedPaths = []string{
	"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/kallsyms", "/proc/latency_stats", "/proc/modules",
	"/proc/sched_debug", "/proc/scsi", "/proc/softirqs", "/proc/timer_list", "/proc/timer_stats",
	"/sys/devices/virtual/powercap", "/sys/firmware", "/sys/kernel",
}

// containerConfig returns the engine's configuration of a container, without its user. The Spec's limits must be set.
func (p *Provider) containerConfig(spec sandbox.Spec, image *imageInfo, requestPath string) (*container.Config, *container.HostConfig) {
	config := &container.Config{
		Image:      image.id,
		Entrypoint: []string{supervisorPath},
		Cmd:        []string{"receive", requestSocketPath},
		WorkingDir: "/",
		// The supervisor ignores every signal that a process could send too.
		StopSignal: "SIGKILL",
		Hostname:   "sandbox",
		// The image's health check would be one more process.
		Healthcheck:     &container.HealthConfig{Test: []string{"NONE"}},
		NetworkDisabled: spec.Network != schemas.NetworkHost,
		Labels: map[string]string{
			labelCell: p.config.Cell, labelWorker: p.config.Worker, labelFolder: p.folder, labelSandbox: spec.ID, labelThread: spec.Thread,
		},
	}
	l := spec.Limits
	pids := l.PIDs + supervisorPIDs
	// /tmp is not noexec: the workspace is not either, so noexec here would only break compilers.
	tmp := "rw,exec,nosuid,nodev,mode=1777,size=" + strconv.FormatInt(l.TmpBytes, 10)
	tmpfs := map[string]string{"/tmp": tmp}
	for _, path := range image.volumes {
		if path != home && path != "/tmp" {
			tmpfs[path] = tmp
		}
	}
	host := &container.HostConfig{
		NetworkMode:    "none",
		Runtime:        p.config.Runtime,
		ReadonlyRootfs: true,
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges", "seccomp=" + p.seccomp},
		MaskedPaths:    maskedPaths,
		IpcMode:        "private",
		ShmSize:        l.TmpBytes,
		Tmpfs:          tmpfs,
		// Output goes over the socket; the engine's own log would grow without bound.
		LogConfig: container.LogConfig{Type: "none"},
		Resources: container.Resources{
			Memory:     l.MemoryBytes,
			MemorySwap: l.MemoryBytes, // the sum of both: no swap
			NanoCPUs:   int64(l.CPUs * 1e9),
			PidsLimit:  &pids,
			Ulimits: []*container.Ulimit{
				ulimit("fsize", l.FileBytes), {Name: "nofile", Soft: l.OpenFiles, Hard: l.HardOpenFiles()},
				ulimit("sigpending", sandbox.MaxPendingSignals), ulimit("memlock", sandbox.MaxLockedBytes), ulimit("msgqueue", sandbox.MaxQueueBytes),
			},
		},
		Mounts: []mount.Mount{
			bind(p.program, supervisorPath, true), bind(requestPath, requestSocketPath, true), bind(spec.Workspace, home, spec.ReadOnly),
		},
	}
	if spec.Network == schemas.NetworkHost {
		// The engine refuses a host name for a container in the host's network.
		host.NetworkMode, config.Hostname = "host", ""
	}
	return config, host
}

func ulimit(name string, value int64) *container.Ulimit {
	return &container.Ulimit{Name: name, Soft: value, Hard: value}
}

func bind(source, target string, readOnly bool) mount.Mount {
	return mount.Mount{
		Type: mount.TypeBind, Source: source, Target: target, ReadOnly: readOnly,
		BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate},
	}
}
