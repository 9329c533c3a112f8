package sandbox

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// Provider makes sandboxes of one kind. All its methods may be called at the same time.
type Provider interface {
	// Name is what --provider and templates call it: local, jail, docker.
	Name() string
	// Create makes a sandbox and returns once its supervisor answers. Errors: invalid_argument for a Spec the provider
	// cannot honour, unavailable when the machine cannot run this provider. What a failed Create had made is gone.
	Create(ctx context.Context, spec Spec) (Sandbox, error)
	// Close ends every sandbox the provider made that is still there and gives back what it holds.
	Close() error
}

// Spec says what sandbox to make.
type Spec struct {
	// ID is the sandbox's id; see schemas.ValidID. Required, unique on the machine.
	ID string
	// Thread is the conversation the sandbox belongs to. It is told to the processes as SLUICE_THREAD.
	Thread string
	// Workspace is the host folder the processes see as their working directory (/workspace, where the provider can
	// bind it there). Required; created with mode 0700 where it is missing.
	Workspace string
	// Env is the environment every process of the sandbox gets, over the provider's own base (PATH, HOME, LANG, TERM).
	// Nothing is inherited from the worker.
	Env map[string]string
	// Image is what the sandbox's root is made from, where the provider makes it from one: for docker an image's name or
	// id. Default: the provider's own.
	Image string
	// Limits bound what the sandbox may use. A provider that cannot enforce one says so where it is examined; local knows
	// those of the workspace alone.
	Limits Limits
	// Network is what the sandbox reaches. Default none. Local has the worker's own, whatever is asked for.
	Network schemas.Network
	// Rootfs is a host folder that processes see as their read-only root, instead of the provider's own, or a tar of one, plain or
	// gzipped, which is unpacked once. Absolute; empty for the provider's own. Only jail takes one.
	Rootfs string
	// Owner is the caller's ownership record, opaque to providers. Attached.Spec returns it after a restart. The registry's
	// files keep the name that this field had first.
	Owner string `json:"Mark,omitempty"`
}

// Limits are what one sandbox may use, all its processes together. Zero is the default, for each by itself.
type Limits struct {
	// MemoryBytes is the most memory, with what is in /tmp and /dev/shm. Past it a process is killed, and its end is
	// schemas.ReasonOOM. Default 512 MiB.
	MemoryBytes int64
	// CPUs is the most processors' worth of time. Default 1.
	CPUs float64
	// PIDs is the most processes and threads at a time. Default 256.
	PIDs int64
	// TmpBytes is the size of /tmp, and of /dev/shm; both count as memory. Default 64 MiB, at most a quarter of
	// MemoryBytes.
	TmpBytes int64
	// WorkspaceBytes is the most the files of the workspace may hold together. Default 500 MB. This limit and the next are looked
	// at, not enforced: after each process, and every 2 s while one runs; see package workspace.
	WorkspaceBytes int64
	// WorkspaceFiles is the most files and folders in the workspace. Default 1,000.
	WorkspaceFiles int64
	// FileBytes is the most a file may hold; where the provider isolates, the kernel ends a process that writes more with
	// SIGXFSZ. Default 100 MB, or WorkspaceBytes where that is less.
	FileBytes int64
}

// WorkspaceDefaults gives the limits of the workspace, and those alone, with the defaults in place of zeros.
func (l Limits) WorkspaceDefaults() Limits {
	if l.WorkspaceBytes == 0 {
		l.WorkspaceBytes = 500_000_000
	}
	if l.WorkspaceFiles == 0 {
		l.WorkspaceFiles = 1000
	}
	if l.FileBytes == 0 {
		l.FileBytes = min(100_000_000, l.WorkspaceBytes)
	}
	return l
}

// WithDefaults gives the limits with the defaults in place of zeros. Errors: invalid_argument for one that is negative or too
// small to run anything.
func (l Limits) WithDefaults() (Limits, error) {
	l = l.WorkspaceDefaults()
	for _, f := range []struct {
		name            string
		value           *int64
		standard, least int64
	}{
		{"memory", &l.MemoryBytes, 512 << 20, 16 << 20},
		{"workspace size", &l.WorkspaceBytes, 0, 0},
		{"file size", &l.FileBytes, 0, 0},
	} {
		if *f.value == 0 {
			*f.value = f.standard
		}
		if *f.value < f.least {
			return l, schemas.Errorf(schemas.CodeInvalidArgument, "limits: %s is %d bytes, and must be at least %d", f.name, *f.value, f.least)
		}
	}
	if l.TmpBytes == 0 {
		l.TmpBytes = 64 << 20
	}
	l.TmpBytes = min(l.TmpBytes, l.MemoryBytes/4)
	if l.CPUs == 0 {
		l.CPUs = 1
	}
	if l.PIDs == 0 {
		l.PIDs = 256
	}
	if l.TmpBytes < 4096 || l.CPUs < 0.01 || l.PIDs < 16 || l.WorkspaceFiles < 0 {
		return l, schemas.Errorf(schemas.CodeInvalidArgument,
			"limits: at least 4096 bytes of /tmp, 0.01 CPUs and 16 pids are needed to run anything, and no limit may be negative")
	}
	return l, nil
}

// Sandbox is one environment, with one supervisor in it. All its methods may be called at the same time.
type Sandbox interface {
	// ID is the Spec's.
	ID() string
	// Start runs a command and returns once it runs, or has failed to: a *StartError where the command itself is the
	// cause (not found, not executable), unavailable when the sandbox is gone; that error is also ErrEnded where the
	// command cannot have begun. The context bounds the start alone, not the run.
	Start(ctx context.Context, cmd Command) (Process, error)
	// Done is closed when the sandbox has ended, by Terminate or by itself.
	Done() <-chan struct{}
	// Terminate ends every process, and the sandbox: SIGTERM, the grace, SIGKILL. It is legal from every state, any
	// number of times, and returns once nothing is left. The workspace stays.
	Terminate(ctx context.Context, grace time.Duration) error
}

// Command says what to run.
type Command struct {
	// ID is the process id; see schemas.ProcessID. Required. It is told to the process as SLUICE_PROCESS, by which
	// descendants that left its process group are found again.
	ID string
	// Path is the program: looked up in the PATH of the environment unless it holds a slash.
	Path string
	// Args are its arguments, without the program's own name.
	Args []string
	// Env is added to the sandbox's environment, and wins over it.
	Env map[string]string
	// Dir is the working directory, relative to the workspace; empty is the workspace itself. It must not lead out.
	Dir string
	// Stdin says whether the process gets a standard input that Process.WriteStdin feeds. Otherwise it reads nothing.
	Stdin bool
	// Timeout ends the whole tree once the process has run that long; 0 is never.
	Timeout time.Duration
	// Grace is the time between SIGTERM and SIGKILL when Timeout ends the tree. Default 0: SIGKILL at once.
	Grace time.Duration
}

// Process is one run. All its methods may be called at the same time.
type Process interface {
	// ID is the Command's.
	ID() string
	// PID is the process's id as the host sees it, or as the sandbox does where it has its own.
	PID() int
	// Read returns the next piece of output, in the order the supervisor saw it: never empty, at most 256 KiB, valid
	// until the next Read. io.EOF follows the last piece; only then does the process end. One reader at a time.
	// Reading slowly makes the process block on its pipe, and loses nothing.
	Read(ctx context.Context) (Output, error)
	// Ack says that the output of this stream up to this offset is kept safe elsewhere. Until then the supervisor
	// holds it; with too much held it reads no more from the process.
	Ack(stream schemas.Stream, offset int64) error
	// WriteStdin hands bytes to the process's standard input and returns once the supervisor has taken them, blocking while
	// the process does not read. io.ErrClosedPipe when the process has ended or closed its standard input.
	WriteStdin(ctx context.Context, p []byte) error
	// CloseStdin lets the process read end of file, after what was written before. It may be called repeatedly.
	CloseStdin() error
	// Signal sends a signal to the process's group. not_found when the process has ended.
	Signal(sig Signal) error
	// Kill ends the whole tree: SIGTERM, the grace, SIGKILL; with grace 0 SIGKILL at once. It returns at once; Wait
	// tells the end. Killing an ended process is no error.
	Kill(grace time.Duration) error
	// Wait blocks for the supervisor's exit record, which comes only after the last Read. When the sandbox ends
	// without one, Reason is schemas.ReasonLost. The error is ctx's alone.
	Wait(ctx context.Context) (Exit, error)
	// Release says that the end is on record, so that the sandbox forgets the process; until then it holds the exit record
	// for whoever comes back for it. It may reach the supervisor with what is sent next. Call it once, after Wait.
	Release() error
}

// Output is a piece of what a process printed.
type Output struct {
	Stream schemas.Stream
	// Offset is the number of bytes of this stream before this piece.
	Offset int64
	Data   []byte
}

// Signal is a signal's number as the host's system counts it.
type Signal int

// Exit is the supervisor's exit record: how a process ended.
type Exit struct {
	// Reason says what ended it.
	Reason schemas.Reason
	// Code is what a shell would show: the exit code, or 128+n after signal n. It is 124 after a timeout and -1 when lost.
	Code int
	// Signal is the number of the signal that ended the process; 0 if it exited.
	Signal Signal
	// Stdout and Stderr are the bytes printed on each.
	Stdout, Stderr int64
	// UserTime and SystemTime are the CPU time of the process and of its waited-for children.
	UserTime, SystemTime time.Duration
	// MaxRSS is the largest resident set of the process, in bytes.
	MaxRSS int64
	// Limit is limit_exceeded where the process ran into a limit of the workspace, or left it with more than it may hold; nil
	// otherwise. How the process ended stands beside it.
	Limit error
	// Killed counts processes of its tree that were still there when it ended, and were killed then.
	Killed int
	// Started and Ended are the times by the supervisor's clock.
	Started, Ended time.Time
}

// ErrEnded is in the error of a Start that came too late: the sandbox had ended before it was asked, so that starting the
// command elsewhere does not run it twice.
var ErrEnded = errors.New("the sandbox has ended")

// StartError says that a command could not be started, for a reason that lies in the command.
type StartError struct {
	// Code is the exit code a shell gives for it: 127 not found, 126 found but not executable (or its argument list
	// is too long for the system).
	Code int
	// Message says what was not found, or could not be run, and why.
	Message string
}

// Error is the message.
func (e *StartError) Error() string { return e.Message }

var _ io.Closer = Provider(nil)
