package schemas

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Version is the contract's version. It is the "v1" of every subject and the specversion of every command.
const Version = "1"

// MaxCommandBytes bounds an encoded command. It leaves room for headers and for the copy in the accepted record under
// NATS's default payload limit of 1 MiB, which Sluice does not ask anyone to raise.
const MaxCommandBytes = 768 << 10

// Op names what a command asks for. It is the last token of the command's subject.
type Op string

// The operations of this version.
const (
	OpExec    Op = "exec"    // run a command in the thread's sandbox, in the foreground
	OpMessage Op = "message" // have the thread's agent answer a prompt
)

// Ops lists every operation this version knows.
func Ops() []Op { return []Op{OpExec, OpMessage} }

// Retry says what may be done when a worker dies between accepting a command and its end.
type Retry string

// The retries.
const (
	RetryNever Retry = "never" // the default: the process is reported as lost
	RetrySafe  Retry = "safe"  // the caller declares that running it a second time does no harm
)

// Retries lists every retry.
func Retries() []Retry { return []Retry{RetryNever, RetrySafe} }

// Command is what a client asks a thread for. It travels on cmd.<thread>.<op> (durable) and rpc.<thread>.<op> (fast).
// Unknown fields are refused.
type Command struct {
	// SpecVersion is [Version]. Required.
	SpecVersion string `json:"specversion"`
	// Op says which of the parts below is set. Required, and the same as the subject's last token.
	Op Op `json:"op"`
	// Thread is the conversation. Required, and the same as the subject's; see [ValidID].
	Thread string `json:"thread"`
	// Key makes the command idempotent: the same key in the same thread runs once and answers the same; with another
	// body it is a conflict. Required; 1 to 256 bytes; a ULID does.
	Key string `json:"key"`
	// Provider asks for a kind of sandbox: local, jail, docker; empty is the worker's own choice. A thread that has a
	// sandbox of another kind refuses with conflict.
	Provider string `json:"provider,omitempty"`
	// Image is what the sandbox's root is made from, where the provider makes it from images; empty is the worker's own
	// choice. A thread's session keeps the first one: another is a conflict.
	Image string `json:"image,omitempty"`
	// Template is the recipe of the session that the thread gets where it has none; empty is the worker's default. A thread
	// that has another one refuses with conflict.
	Template string `json:"template,omitempty"`
	// Session is the id of the session the command is meant for; empty for whichever the thread has, or gets. Where it is
	// another by now, the command is refused with session_expired.
	Session string `json:"session,omitempty"`
	// Exec is set for op exec.
	Exec *Exec `json:"exec,omitempty"`
	// Message is set for op message.
	Message *MessageRequest `json:"message,omitempty"`
}

// Exec is a program to run in the foreground: the answer is its [Result].
type Exec struct {
	// Command is the program: looked up in the sandbox's PATH unless it holds a slash. Never a shell line. Required; at most
	// 4096 bytes.
	Command string `json:"command"`
	// Args are its arguments, without its own name.
	Args []string `json:"args,omitempty"`
	// Env is added to the sandbox's environment. Values are not written to any event or log.
	Env map[string]string `json:"env,omitempty"`
	// Cwd is the working directory, relative to the workspace, at most 4096 bytes. Default: the workspace.
	Cwd string `json:"cwd,omitempty"`
	// TimeoutMS ends the whole process tree after that many milliseconds. Default 0: no timeout.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// GraceMS is the time between SIGTERM and SIGKILL when the timeout ends it, in milliseconds. Default 0: SIGKILL at once.
	GraceMS int64 `json:"grace_ms,omitempty"`
	// Stdin is what the process reads, in base64 on the wire. End of file follows, unless StdinOpen.
	Stdin []byte `json:"stdin,omitempty"`
	// StdinOpen keeps the standard input open: more comes on ctl.<thread>.<process>.stdin.
	StdinOpen bool `json:"stdin_open,omitempty"`
	// OutputLimit is how many bytes of each stream the result keeps, from the beginning. Default 1 MiB, 0 keeps none. The
	// log keeps everything. A record must also fit NATS's payload limit, so that the result on the wire may hold less
	// and say so; the Go client fills it up from the log.
	OutputLimit *int64 `json:"output_limit,omitempty"`
	// Retry says what may be done when the worker dies. Default never.
	Retry Retry `json:"retry,omitempty"`
}

// Limits on single fields of a command.
const (
	// DefaultOutputLimit is what a result keeps of each stream, in bytes.
	DefaultOutputLimit int64 = 1 << 20
	// MaxOutputLimit is the most a caller may ask to keep of each stream, in bytes.
	MaxOutputLimit int64 = 64 << 20
	// MaxKeyBytes is the longest idempotency key.
	MaxKeyBytes = 256
	// MaxPathBytes is the longest command and the longest cwd: Linux's PATH_MAX. Records repeat the command, and must fit
	// into a message whatever it holds.
	MaxPathBytes = 4096
	// MaxImageBytes is the longest name of an image.
	MaxImageBytes = 512
	// MaxTimeoutMS is the longest timeout and the longest grace: 30 days.
	MaxTimeoutMS int64 = 30 * 24 * 3600 * 1000
)

// Limit is how many bytes of each stream the result keeps.
func (e *Exec) Limit() int64 { return limit(e.OutputLimit) }

// Limit is how many bytes of each stream the result of the command keeps.
func (c *Command) Limit() int64 {
	switch {
	case c.Exec != nil:
		return c.Exec.Limit()
	case c.Message != nil:
		return limit(c.Message.OutputLimit)
	default:
		return DefaultOutputLimit
	}
}

func limit(given *int64) int64 {
	if given == nil {
		return DefaultOutputLimit
	}
	return *given
}

// Fingerprint tells whether two commands with the same key are the same command: a hex SHA-256 over all of it. It is kept
// in the process's record. Environment values and stdin enter it only as part of the hash, and the key, which no
// record holds, keeps anyone from finding them by trial.
func (c *Command) Fingerprint() string {
	body, err := json.Marshal(c) // map keys are sorted, so equal commands have equal bytes
	if err != nil {
		// A Command holds strings, numbers and bytes alone, none of which can fail to encode.
		panic("schemas: encode command: " + err.Error())
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// DecodeCommand reads and validates a command. Every failure is an *Error: too_large over [MaxCommandBytes], else
// invalid_argument with the detail "path" naming the field where one is to blame.
func DecodeCommand(body []byte) (*Command, error) {
	if len(body) > MaxCommandBytes {
		return nil, Errorf(CodeTooLarge, "the command is %d bytes, the limit is %d: send large input on stdin or as a file",
			len(body), MaxCommandBytes)
	}
	var c Command
	if err := decodeStrict("command", body, &c); err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &c, nil
}

// EncodeCommand is the wire form of a valid command. Errors are those of [Command.Validate], and too_large.
func EncodeCommand(c *Command) ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	// Escaping what only matters inside HTML would make six bytes of one, and so a command of half the limit too large.
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(c); err != nil {
		return nil, Errorf(CodeInternal, "encode command: %w", err)
	}
	body := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if len(body) > MaxCommandBytes {
		return nil, Errorf(CodeTooLarge, "the command is %d bytes, the limit is %d: send large input on stdin or as a file",
			len(body), MaxCommandBytes)
	}
	return body, nil
}
