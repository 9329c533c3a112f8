package sandbox

import (
	"cmp"

	"github.com/sluice-dev/sluice/schemas"
)

// Limits bound what one sandbox may use, all its processes together. Each field that is zero has its default.
type Limits struct {
	// MemoryBytes includes what /tmp and /dev/shm hold. The kernel kills a process above the limit, and its exit has the reason
	// schemas.ReasonOOM. Default 512 MiB.
	MemoryBytes int64
	// CPUs is the CPU time, in CPUs. Default 1.
	CPUs float64
	// PIDs is the number of processes and threads at a time. Default 256.
	PIDs int64
	// OpenFiles is the number of descriptors that one process may have open, where the provider isolates: jail and docker. Opening more
	// fails with EMFILE. A process may raise it to [Limits.HardOpenFiles]. Default 1,024.
	OpenFiles int64 `json:",omitempty"`
	// TmpBytes is the size of /tmp, and of /dev/shm; both count as memory. Default 64 MiB; jail allows at most a quarter of
	// MemoryBytes.
	TmpBytes int64
	// WorkspaceBytes is the size of all files of the workspace together. Default 2 GB. This limit and the next are checked after each
	// process, and every 2 s while one runs; see package workspace.
	WorkspaceBytes int64
	// WorkspaceFiles is the number of files and folders in the workspace. Default 100,000.
	WorkspaceFiles int64
	// MinFreeBytes is what is kept free of the workspace's file system: while less than half of it is, processes of a workspace that grows
	// are killed. Default 1 GiB, or a 20th of the file system where that is less.
	MinFreeBytes int64 `json:",omitempty"`
	// FileBytes is the size of one file. Where the provider isolates, the kernel sends SIGXFSZ to a process that writes more.
	// Default 1 GB, or WorkspaceBytes when that is less.
	FileBytes int64
}

// NoLimit in all limits of the workspace stands for none: the workspace is not measured. It is 1 EB, or as many files.
const NoLimit = 1_000_000_000_000_000_000

// What the kernel counts by user, and no Limits set: the providers that isolate limit it for each sandbox, or for each process.
const (
	MaxPendingSignals = 1024    // queued signals and timers
	MaxLockedBytes    = 8 << 20 // memory that is kept from being swapped
	MaxQueueBytes     = 1 << 16 // what POSIX message queues hold
)

// DefaultLimits returns the defaults that depend on no other limit: all but FileBytes.
func DefaultLimits() Limits {
	return Limits{MemoryBytes: 512 << 20, CPUs: 1, PIDs: 256, OpenFiles: 1024, TmpBytes: 64 << 20, WorkspaceBytes: 2_000_000_000, WorkspaceFiles: 100_000}
}

// defaultFileBytes is the default of FileBytes where WorkspaceBytes is not less.
const defaultFileBytes = 1_000_000_000

// LimitsOf returns the limits that a template sets.
func LimitsOf(t *schemas.TemplateLimits) Limits {
	return Limits{
		MemoryBytes: t.MemoryBytes, CPUs: t.CPUs, PIDs: t.PIDs, OpenFiles: t.OpenFiles, TmpBytes: t.TmpBytes,
		WorkspaceBytes: t.WorkspaceBytes, WorkspaceFiles: t.WorkspaceFiles, FileBytes: t.FileBytes,
	}
}

// Or returns the limits with the fields of fallback in place of zeros, as cmp.Or does for each field.
func (l Limits) Or(fallback Limits) Limits {
	return Limits{
		MemoryBytes: cmp.Or(l.MemoryBytes, fallback.MemoryBytes), CPUs: cmp.Or(l.CPUs, fallback.CPUs),
		PIDs: cmp.Or(l.PIDs, fallback.PIDs), OpenFiles: cmp.Or(l.OpenFiles, fallback.OpenFiles), TmpBytes: cmp.Or(l.TmpBytes, fallback.TmpBytes),
		WorkspaceBytes: cmp.Or(l.WorkspaceBytes, fallback.WorkspaceBytes), WorkspaceFiles: cmp.Or(l.WorkspaceFiles, fallback.WorkspaceFiles),
		FileBytes: cmp.Or(l.FileBytes, fallback.FileBytes), MinFreeBytes: cmp.Or(l.MinFreeBytes, fallback.MinFreeBytes),
	}
}

// WorkspaceDefaults returns the limits with defaults in place of the workspace's zeros; the other limits are unchanged.
func (l Limits) WorkspaceDefaults() Limits {
	d := DefaultLimits()
	l = l.Or(Limits{WorkspaceBytes: d.WorkspaceBytes, WorkspaceFiles: d.WorkspaceFiles})
	l.FileBytes = cmp.Or(l.FileBytes, min(defaultFileBytes, l.WorkspaceBytes))
	return l
}

// Validate returns invalid_argument when a limit is negative, or more than schemas.MaxCPUs and schemas.MaxPIDs allow.
func (l Limits) Validate() error {
	if min(l.MemoryBytes, l.PIDs, l.OpenFiles, l.TmpBytes, l.WorkspaceBytes, l.WorkspaceFiles, l.MinFreeBytes, l.FileBytes) < 0 {
		return schemas.Errorf(schemas.CodeInvalidArgument, "limits: a limit is negative").With("path", "limits")
	}
	if !schemas.ValidCPUs(l.CPUs) {
		return schemas.Errorf(schemas.CodeInvalidArgument, "limits: %v CPUs are not between 0 and %d", l.CPUs, schemas.MaxCPUs).With("path", "limits.cpus")
	}
	if l.PIDs > schemas.MaxPIDs {
		return schemas.Errorf(schemas.CodeInvalidArgument, "limits: %d pids are more than %d", l.PIDs, schemas.MaxPIDs).With("path", "limits.pids")
	}
	return nil
}

// The descriptors that a supervisor needs: three pipes of each process, and its own connections.
const (
	filesOfProcess    = 3
	filesOfSupervisor = 256
	maxHardOpenFiles  = 1 << 20 // more than that the kernel refuses, unless fs.nr_open is raised
)

// SocketBytes is what TCP sockets may buffer where the kernel does not count that as memory: cgroups v1.
func (l Limits) SocketBytes() int64 { return l.MemoryBytes / 4 }

// HardOpenFiles is the hard limit of open files in a sandbox. It is OpenFiles, unless the supervisor needs more for as many processes: it is
// the first process, whose limit the others inherit. With the default limits it is 1,024.
func (l Limits) HardOpenFiles() int64 {
	return max(l.OpenFiles, min(filesOfProcess*l.PIDs+filesOfSupervisor, maxHardOpenFiles))
}

// WithDefaults returns the limits with the defaults in place of zeros, and TmpBytes reduced to a quarter of MemoryBytes. Errors:
// invalid_argument for a limit that is negative, or too small to run anything.
func (l Limits) WithDefaults() (Limits, error) {
	if err := l.Validate(); err != nil {
		return l, err
	}
	l = l.Or(DefaultLimits()).WorkspaceDefaults()
	if l.MemoryBytes < schemas.MinMemoryBytes {
		return l, schemas.Errorf(schemas.CodeInvalidArgument, "limits: memory is %d bytes; the minimum is %d", l.MemoryBytes, schemas.MinMemoryBytes)
	}
	l.TmpBytes = min(l.TmpBytes, l.MemoryBytes/4)
	if l.TmpBytes < schemas.MinTmpBytes || l.CPUs < schemas.MinCPUs || l.PIDs < schemas.MinPIDs || l.OpenFiles < schemas.MinOpenFiles {
		return l, schemas.Errorf(schemas.CodeInvalidArgument,
			"limits: too small to run anything; the minimum is %d bytes of /tmp, %g CPUs, %d pids and %d open files", schemas.MinTmpBytes, schemas.MinCPUs, schemas.MinPIDs, schemas.MinOpenFiles)
	}
	return l, nil
}
