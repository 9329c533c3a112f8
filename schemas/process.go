package schemas

// Stream names one of a process's two outputs.
type Stream string

// The streams. Stdin is not one of them: it is never stored.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Streams lists both.
func Streams() []Stream { return []Stream{Stdout, Stderr} }

// Reason says how a process ended.
type Reason string

// The reasons. Each is also the last state of the process.
const (
	ReasonExited   Reason = "exited"    // it ended by itself; the exit code is its own
	ReasonKilled   Reason = "killed"    // a signal ended it, whoever sent that
	ReasonTimedOut Reason = "timed_out" // its timeout ended it; the exit code is 124
	ReasonOOM      Reason = "oom"       // the memory limit ended it
	ReasonLost     Reason = "lost"      // its supervisor or worker is gone, so that nobody knows
	ReasonRejected Reason = "rejected"  // it never ran
)

// Reasons lists every reason.
func Reasons() []Reason {
	return []Reason{ReasonExited, ReasonKilled, ReasonTimedOut, ReasonOOM, ReasonLost, ReasonRejected}
}

// Exit codes with a meaning of their own, as timeout(1) and POSIX shells give them.
const (
	ExitTimedOut      = 124 // the timeout ended the process
	ExitSluiceFailed  = 125 // Sluice failed, not the command
	ExitNotExecutable = 126 // the command was found but could not be run
	ExitNotFound      = 127 // the command was not found
	ExitSignalBase    = 128 // 128+n: ended by signal n
)
