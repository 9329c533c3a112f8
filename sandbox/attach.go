package sandbox

import (
	"context"
	"time"
)

// ReattachWindow is the default of how long a sandbox without a worker waits for another one. After it, the sandbox ends with all
// its processes.
const ReattachWindow = 10 * time.Minute

// Reattacher is a Provider whose sandboxes outlive the process that created them.
type Reattacher interface {
	Provider
	// Attach takes over the sandboxes of an earlier process on the same run folder, which was killed or called Detach. It ends and
	// removes those that it cannot take over. Call it before the first Create. Errors: unavailable when the sandboxes cannot be
	// listed; they are unchanged then.
	Attach(ctx context.Context) ([]Attached, error)
	// Detach closes the connections and leaves every sandbox running, as the death of this process would: another process may
	// Attach them during their reattach window. Here their processes count as lost. Close may follow; it ends nothing more.
	Detach() error
}

// Attached is a sandbox that another process can take over.
type Attached interface {
	Sandbox
	// Spec is what the sandbox was created for, or last bound to.
	Spec() Spec
	// SetOwner changes the Spec's Owner. Errors: unavailable when it cannot be stored; the Owner is then unchanged.
	SetOwner(owner string) error
	// SetSecrets sets the Spec's Secrets, for the processes that are started from now on. Errors: invalid_argument, as for a Spec.
	SetSecrets(secrets map[string]string) error
	// Processes lists the processes that run, or that have ended and are not released. Errors: unavailable.
	Processes(ctx context.Context) ([]ProcessState, error)
	// Resume takes over a process. Its output continues at these offsets of its streams, or at the first offset that the sandbox
	// still has when that is later. Errors: not_found for an unknown process, conflict for one that is resumed already,
	// unavailable.
	Resume(ctx context.Context, id string, stdout, stderr int64) (Process, error)
}

// ProcessState is a process of a sandbox that runs, or that has ended and is not released.
type ProcessState struct {
	// ID is the Command's.
	ID string
	// PID is as Process.PID.
	PID int
	// Ended reports whether its exit record is available.
	Ended bool
	// Stdout and Stderr are the first offsets of the output that the sandbox still has: the last acked ones.
	Stdout, Stderr int64
	// Stdin is the number of bytes of standard input that the sandbox has received. StdinClosed means that there will be no more:
	// it was closed after them, or the process has ended or reads none.
	Stdin       int64
	StdinClosed bool
	// Started is the start time by the supervisor's clock.
	Started time.Time
}

// Meter is a sandbox that measures its processes.
type Meter interface {
	// Usage returns what the tree of each running process uses now, by the process's id. A process that the sandbox cannot measure is
	// missing. Errors: unavailable, ctx's.
	Usage(ctx context.Context) (map[string]Usage, error)
}

// Usage is what the tree of one process uses.
type Usage struct {
	// CPU is the CPU time of the processes that run and of their children that were waited for.
	CPU time.Duration
	// Memory is the sum of their resident sets, in bytes: pages that they share count several times.
	Memory int64
	// Processes is how many they are.
	Processes int
}
