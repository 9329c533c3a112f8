package sandbox

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// Provider creates sandboxes of one kind. All its methods may be called at the same time.
type Provider interface {
	// Name is the provider's name in --provider and templates: local, jail, docker.
	Name() string
	// Create creates a sandbox and returns once its supervisor answers. When it fails it leaves nothing behind. Errors:
	// invalid_argument for a Spec that the provider cannot implement, unavailable when the machine cannot run this provider.
	Create(ctx context.Context, spec Spec) (Sandbox, error)
	// Close ends every sandbox of the provider and releases its resources.
	Close() error
}

// Spec describes a sandbox.
type Spec struct {
	// ID is the sandbox's id; see schemas.ValidID. Required, unique on the machine.
	ID string
	// Thread is the conversation that the sandbox belongs to. Processes get it as SLUICE_THREAD.
	Thread string
	// Workspace is the host folder that processes have as their working directory; at /workspace when the provider can mount it
	// there. Required; created with mode 0700 when missing.
	Workspace string
	// ReadOnly keeps processes from writing to the workspace; the worker still can. Local refuses it.
	ReadOnly bool `json:",omitempty"`
	// Env is the environment of every process, added to the provider's base (PATH, HOME, LANG, TERM). Nothing is inherited from the
	// worker.
	Env map[string]string
	// Secrets are further variables of every process, which win over Env. They are never stored: after a restart, Attached.SetSecrets gives
	// them to the sandbox again.
	Secrets map[string]string `json:"-"`
	// Image is the name or id of the image for the sandbox's root. Only docker uses it. Default: the provider's own.
	Image string
	// Limits bound what the sandbox may use. A provider that cannot enforce one reports that when it is probed; local applies only
	// those of the workspace.
	Limits Limits
	// Network is what the sandbox can reach. Default none. Local always has the worker's network.
	Network schemas.Network
	// Rootfs is a host folder for the read-only root, or a tar of one, plain or gzipped, which is unpacked once. An absolute path.
	// Only jail uses it. Default: the provider's own root.
	Rootfs string
	// Owner is the caller's ownership record, opaque to providers. Attached.Spec returns it after a restart. Its JSON name is part
	// of the registry's files: do not change it.
	Owner string `json:"Mark,omitempty"`
}

// Sandbox is one environment, with one supervisor in it. All its methods may be called at the same time.
type Sandbox interface {
	// ID is the Spec's.
	ID() string
	// Home is the path of the workspace as processes in the sandbox see it.
	Home() string
	// Start starts a command and returns once it runs. Errors: a *StartError when the command itself is the cause (not found, not
	// executable); unavailable when the sandbox is gone, which is also ErrEnded when the command cannot have started; an error that is
	// also ErrRefused when the sandbox is there and did not start it. The context bounds only the start.
	Start(ctx context.Context, cmd Command) (Process, error)
	// Done is closed when the sandbox has ended, for any reason.
	Done() <-chan struct{}
	// Terminate ends every process and the sandbox: SIGTERM, the grace period, SIGKILL. It may be called in every state, any number
	// of times, and returns once nothing is left. The workspace stays.
	Terminate(ctx context.Context, grace time.Duration) error
}

// Dialer is a Sandbox that connects its host to servers inside it, also where it has no network.
type Dialer interface {
	// Dial connects to a TCP port on the sandbox's loopback interface, or to the unix socket at path where port is 0. The connection can be
	// closed for writing, and ends with its server. Errors: not_found when nothing listens there, deadline_exceeded, unavailable.
	Dial(ctx context.Context, port uint16, path string) (net.Conn, error)
}

// Command describes a process to start.
type Command struct {
	// ID is the process id; see schemas.ProcessID. Required. The process gets it as SLUICE_PROCESS, by which the supervisor finds
	// descendants that left its process group.
	ID string
	// Files runs the supervisor's own program for files, with Args, in the workspace; Path and Dir are ignored. See package
	// sandbox/files.
	Files FilesAccess
	// Path is the program. Without a slash it is looked up in the environment's PATH.
	Path string
	// Args are its arguments, without the program's own name.
	Args []string
	// Env is added to the sandbox's environment and overrides it.
	Env map[string]string
	// Dir is the working directory, relative to the workspace and inside it. Default: the workspace itself.
	Dir string
	// Stdin gives the process a standard input that Process.WriteStdin feeds. Otherwise its standard input is empty.
	Stdin bool
	// Terminal gives the process a terminal of this size as its standard input, output and error, and as its controlling terminal. What
	// appears on it is read as stdout. Its TERM is xterm unless Env has one. Default nil: pipes.
	Terminal *schemas.TerminalSize
	// Timeout ends the whole process tree after this time. 0 means no timeout.
	Timeout time.Duration
	// Grace is the time between SIGTERM and SIGKILL when Timeout ends the tree. Default 0: SIGKILL at once.
	Grace time.Duration
}

// FilesAccess is what a process of the supervisor's program for files does to the workspace.
type FilesAccess int

// The kinds of access.
const (
	NoFiles FilesAccess = iota // the command has a program of its own
	// FilesRead adds nothing to the workspace: its limits are not checked, and do not end it.
	FilesRead
	// FilesWrite adds to the workspace: the program gets how much room is left, in front of its arguments.
	FilesWrite
)

// Process is one run. All its methods may be called at the same time.
type Process interface {
	// ID is the Command's.
	ID() string
	// PID is the process's id on the host, or in the sandbox when that has its own pid namespace.
	PID() int
	// Read returns the next piece of output, in the order the supervisor read it: never empty, at most 256 KiB, valid until the
	// next Read. It returns io.EOF after the last piece, and only then does Wait return. One reader at a time. A slow reader makes
	// the process block on its pipe; no output is lost.
	Read(ctx context.Context) (Output, error)
	// Ack confirms that the output of this stream up to this offset is stored elsewhere. Until then the supervisor holds it; when
	// it holds too much, it stops reading from the process.
	Ack(stream schemas.Stream, offset int64) error
	// WriteStdin writes to the process's standard input and returns once the supervisor has accepted the bytes. It blocks while
	// the process does not read. Errors: io.ErrClosedPipe when the process has ended or closed its standard input.
	WriteStdin(ctx context.Context, p []byte) error
	// CloseStdin closes the standard input after the bytes written before. It may be called repeatedly. A terminal gets Ctrl+D, and
	// nothing after it.
	CloseStdin() error
	// Signal sends a signal to the process group. Errors: not_found when the process has ended.
	Signal(sig Signal) error
	// Resize changes the size of the process's terminal, and sends SIGWINCH. It does nothing for a process without a terminal. Errors:
	// invalid_argument for an invalid size, not_found when the process has ended.
	Resize(size schemas.TerminalSize) error
	// Kill ends the whole process tree: SIGTERM, the grace period, SIGKILL; with grace 0 SIGKILL at once. A process with a terminal gets
	// SIGHUP with the SIGTERM, which a shell ignores. It returns before the process has ended: use Wait. Killing an ended process is no error.
	Kill(grace time.Duration) error
	// Wait returns the supervisor's exit record, which follows the last Read. When the sandbox ends without one, Reason is
	// schemas.ReasonLost. The only error is ctx's.
	Wait(ctx context.Context) (Exit, error)
	// Release makes the sandbox drop the process and its exit record, which it holds until then for a worker that reattaches. The
	// message may be sent together with the next one. Call Release once, after Wait.
	Release() error
}

// Output is a piece of a process's output.
type Output struct {
	Stream schemas.Stream
	// Offset is the number of bytes of this stream before this piece.
	Offset int64
	Data   []byte
}

// Signal is the number of a signal on the host's system.
type Signal int

// Exit is the supervisor's exit record.
type Exit struct {
	// Reason is why the process ended.
	Reason schemas.Reason
	// Code is the exit code as a shell reports it: 128+n after signal n. It is 124 after a timeout and -1 when lost.
	Code int
	// Signal is the number of the signal that ended the process; 0 if it exited.
	Signal Signal
	// Stdout and Stderr are the number of bytes written to each.
	Stdout, Stderr int64
	// UserTime and SystemTime are the CPU time of the process and of its waited-for children.
	UserTime, SystemTime time.Duration
	// MaxRSS is the largest resident set of the process, in bytes.
	MaxRSS int64
	// Limit is limit_exceeded when the process hit a limit of the workspace, or left the workspace over a limit; else nil. It does
	// not change Reason and Code.
	Limit error
	// Killed is the number of processes of its tree that still ran when it ended, and were killed then.
	Killed int
	// Started and Ended are the times by the supervisor's clock.
	Started, Ended time.Time
}

// ErrEnded is in the error of a Start after the end of the sandbox: the command has not run, so it is safe to start it in another
// sandbox.
var ErrEnded = errors.New("the sandbox has ended")

// ErrRefused is in the error of a Start that the sandbox refused: the command has not run. Any other unavailable leaves open whether
// it has.
var ErrRefused = errors.New("the sandbox refused the command")

// StartError is a start that failed because of the command itself.
type StartError struct {
	// Code is the exit code that a shell returns: 127 not found; 126 not executable, or the argument list is too long for the
	// system.
	Code int
	// Message names the program and the cause.
	Message string
}

// Error returns the message.
func (e *StartError) Error() string { return e.Message }

// SyncDir is the folder beside a workspace in which a worker keeps what it knows of the workspace's syncs. It is in no sandbox. Its name
// is the id of no thread.
func SyncDir(workspace string) string {
	dir, name := filepath.Split(filepath.Clean(workspace))
	return filepath.Join(dir, "."+name+".sync")
}

var _ io.Closer = Provider(nil)
