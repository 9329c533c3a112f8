package schemas

import (
	"strings"
	"time"
)

// Stream is one of the two outputs of a process.
type Stream string

// The streams. Standard input is never stored.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Streams lists both streams.
func Streams() []Stream { return []Stream{Stdout, Stderr} }

// Reason is why a process ended.
type Reason string

// The reasons. Each is also the last state of the process.
const (
	ReasonExited   Reason = "exited"    // it ended by itself; the exit code is its own
	ReasonKilled   Reason = "killed"    // a signal ended it, from any sender
	ReasonTimedOut Reason = "timed_out" // its timeout ended it; the exit code is 124
	ReasonOOM      Reason = "oom"       // the memory limit ended it
	ReasonLost     Reason = "lost"      // its supervisor or worker died; how it ended is unknown
	ReasonRejected Reason = "rejected"  // it never ran
)

// Reasons lists every reason.
func Reasons() []Reason {
	return []Reason{ReasonExited, ReasonKilled, ReasonTimedOut, ReasonOOM, ReasonLost, ReasonRejected}
}

// Exit codes with a special meaning, as in timeout(1) and POSIX shells.
const (
	ExitTimedOut      = 124 // the timeout ended the process
	ExitSluiceFailed  = 125 // Sluice failed, not the command
	ExitNotExecutable = 126 // the command was found but could not run
	ExitNotFound      = 127 // the command was not found
	ExitSignalBase    = 128 // 128+n: signal n ended the process
)

// ProcessRef identifies one run of a process.
type ProcessRef struct {
	// Tenant, Thread and Process are the ids in the run's subjects.
	Tenant, Thread, Process string
	// Epoch is the session's epoch under which the run was accepted. Only the worker that writes its output needs it.
	Epoch uint64
}

// Chunk is a piece of a process's output.
type Chunk struct {
	// Seq is the chunk's sequence in the stream LOG. It orders stdout and stderr.
	Seq uint64
	// Thread and Process are the ids of the process that printed it.
	Thread, Process string
	// Stream is stdout or stderr.
	Stream Stream
	// Offset is the number of bytes of its stream before it.
	Offset int64
	// Number counts the process's chunks from 1; 0 when unknown. A chunk that is stored again keeps its number.
	Number int64
	// Epoch is the epoch of the session that wrote it.
	Epoch uint64
	// Time is when LOG stored it, by the clock of the NATS server.
	Time time.Time
	// Data is the output, valid until the callback that received it returns. It comes from inside a sandbox: do not trust it in
	// terminals and parsers.
	Data []byte
}

// End returns the offset after the chunk's last byte.
func (c *Chunk) End() int64 { return c.Offset + int64(len(c.Data)) }

// Accepted is the first record of a process. It reserves the command's key.
type Accepted struct {
	// Fingerprint is the command's fingerprint; see Command.Fingerprint.
	Fingerprint string `json:"fingerprint"`
	// Command and Args are those of the command. Arguments beyond [MaxShownArgs] bytes in total are cut.
	Command string   `json:"command"`
	Args    []string `json:"args,omitempty"`
	// ArgsTruncated says that Args was cut.
	ArgsTruncated bool `json:"args_truncated,omitempty"`
	// TimeoutMS is the command's timeout, in milliseconds.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// OutputLimit, StdinOpen and StdinFrom are those of the command, StdinBytes is the size of its stdin. A worker needs them to go on with
	// the process after a restart.
	OutputLimit *int64 `json:"output_limit,omitempty"`
	StdinOpen   bool   `json:"stdin_open,omitempty"`
	StdinBytes  int64  `json:"stdin_bytes,omitempty"`
	StdinFrom   string `json:"stdin_from,omitempty"`
	// TTY says that the process has a terminal.
	TTY bool `json:"tty,omitempty"`
	// Epoch is the session's epoch when the command was accepted.
	Epoch uint64 `json:"epoch"`
	// Retry, AutoCleanup and Main are those of the command.
	Retry       Retry `json:"retry,omitempty"`
	AutoCleanup bool  `json:"auto_cleanup,omitempty"`
	Main        bool  `json:"main,omitempty"`
	// Op is the operation, unless it is exec. User is the user of a message.
	Op   Op     `json:"op,omitempty"`
	User string `json:"user,omitempty"`
}

// Started is the second record of a process.
type Started struct {
	// Fingerprint is the command's fingerprint, so that this record alone separates a replay from a conflict.
	Fingerprint string `json:"fingerprint"`
	// Command is the program.
	Command string `json:"command"`
	// PID is the process id inside the sandbox.
	PID int `json:"pid"`
	// Sandbox is the sandbox's id.
	Sandbox string `json:"sandbox"`
	// Epoch is the session's epoch.
	Epoch uint64 `json:"epoch"`
	// Retry is that of the command.
	Retry Retry `json:"retry,omitempty"`
}

// LogGap reports that output is missing from the log.
type LogGap struct {
	// Stream is the stream that misses output.
	Stream Stream `json:"stream"`
	// From is the offset of the first missing byte.
	From int64 `json:"from"`
	// To is the offset after the last missing byte; -1 when all bytes after From are missing.
	To int64 `json:"to"`
	// Reason is why it is missing.
	Reason string `json:"reason"`
}

// ShownArgs returns args as records and results repeat them, and whether they were cut. Each argument counts one byte more than
// its length, so that many empty ones are cut too; the limit is [MaxShownArgs].
func ShownArgs(args []string) (shown []string, truncated bool) {
	left := MaxShownArgs
	for i, a := range args {
		if left == 0 {
			return args[:i:i], true
		}
		left--
		if len(a) > left {
			return append(args[:i:i], strings.ToValidUTF8(a[:left], "")), true
		}
		left -= len(a)
	}
	return args, false
}
