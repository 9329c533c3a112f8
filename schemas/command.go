package schemas

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Version is the version of the contract: the "v1" of every subject and the specversion of every command.
const Version = "1"

// Op is the operation of a command, and the last token of its subject.
type Op string

// The operations of this version.
const (
	OpExec    Op = "exec"    // run a command in the thread's sandbox, in the foreground
	OpMessage Op = "message" // send a prompt to the thread's agent
)

// Ops lists every operation of this version.
func Ops() []Op { return []Op{OpExec, OpMessage} }

// Retry says whether a command may run again when its worker dies before the command has ended.
type Retry string

// The values of Retry.
const (
	RetryNever Retry = "never" // the default: the process is reported as lost
	RetrySafe  Retry = "safe"  // the caller declares that a second run does no harm
)

// Retries lists every value of Retry.
func Retries() []Retry { return []Retry{RetryNever, RetrySafe} }

// Command is a client's request to a thread. It is sent on cmd.<thread>.<op> (durable) or rpc.<thread>.<op> (fast). Unknown
// fields are refused.
type Command struct {
	// SpecVersion is [Version]. Required.
	SpecVersion string `json:"specversion"`
	// Op is the operation: exec needs the field exec, message the field message. Required, and the same as in the subject.
	Op Op `json:"op"`
	// Thread is the conversation's id. Required, and the same as in the subject; see [ValidID].
	Thread string `json:"thread"`
	// Key is the idempotency key. A command with the same key in the same thread runs once and has one result; the same key with
	// another body is a conflict. Required; 1 to 256 bytes, such as a ULID.
	Key string `json:"key"`
	// Provider is the sandbox's provider: jail, docker or local. Default: the worker's choice. It is a conflict when the thread
	// has a sandbox of another provider.
	Provider string `json:"provider,omitempty"`
	// Image is the image of the sandbox's root file system, for providers that use images. Default: the worker's choice. A
	// session keeps its first image; another one is a conflict.
	Image string `json:"image,omitempty"`
	// Template is the template of a new session. Default: the worker's default template. It is a conflict when the thread's
	// session has another template.
	Template string `json:"template,omitempty"`
	// Session is the id that the thread's session must have; the command is refused with session_expired when it has another.
	// Default: any session, or a new one.
	Session string `json:"session,omitempty"`
	// Exec is the command to run, for op exec.
	Exec *Exec `json:"exec,omitempty"`
	// Message is the prompt, for op message.
	Message *MessageRequest `json:"message,omitempty"`
	Origin
}

// Exec is a program to run in the foreground. Its reply is a [Result].
type Exec struct {
	// Command is the program: a path, or a name to find in the sandbox's PATH. It is never a shell line. Required; at most 4096
	// bytes.
	Command string `json:"command"`
	// Args are the program's arguments, without its name.
	Args []string `json:"args,omitempty"`
	// Env is added to the sandbox's environment. Events and logs never contain its values.
	Env map[string]string `json:"env,omitempty"`
	// Cwd is the working directory, relative to the workspace; at most 4096 bytes. Default: the workspace.
	Cwd string `json:"cwd,omitempty"`
	// TimeoutMS is the time after which the process tree is killed, in milliseconds. Default 0: no timeout.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// GraceMS is the time between SIGTERM and SIGKILL at the timeout, in milliseconds. Default 0: SIGKILL at once.
	GraceMS int64 `json:"grace_ms,omitempty"`
	// Stdin is the standard input, in base64 on the wire. End of file follows, unless StdinOpen is set.
	Stdin []byte `json:"stdin,omitempty"`
	// StdinOpen keeps the standard input open for more input on ctl.<thread>.<process>.stdin.
	StdinOpen bool `json:"stdin_open,omitempty"`
	// StdinFrom is the id of another process of the thread, accepted before and without retry safe: its standard output is the standard
	// input, also when the worker is killed and comes back. When a part is missing in the log, the process is killed. It excludes Stdin and
	// StdinOpen.
	StdinFrom string `json:"stdin_from,omitempty"`
	// TTY gives the program a terminal as its standard input, output and error. Its output is stdout. TERM is xterm unless Env has
	// another one. Default false: pipes.
	TTY bool `json:"tty,omitempty"`
	// Rows and Cols are the terminal's first size, at most [MaxTerminalSize]. Default 0: 24 rows, 80 columns. Only with TTY.
	Rows int64 `json:"rows,omitempty"`
	Cols int64 `json:"cols,omitempty"`
	// OutputLimit is the number of bytes of each stream, from its start, that the result keeps. Default 1 MiB; 0 keeps none. The
	// result may keep less, and says so, to fit into a NATS message; the Go client completes it from the log, which keeps all
	// output.
	OutputLimit *int64 `json:"output_limit,omitempty"`
	// Retry says whether the command may run again when its worker dies. Default never.
	Retry Retry `json:"retry,omitempty"`
	// AutoCleanup leaves the process out of lists once it has ended, unless it was lost with its worker. Its record and output stay.
	AutoCleanup bool `json:"auto_cleanup,omitempty"`
	// Main ends the session with the process, as completed and with its exit code: the other processes get SIGTERM, and the hooks of the end run.
	// A process that was rejected ends nothing, unless its program was not found or could not be run.
	Main bool `json:"main,omitempty"`
}

// Terminal returns the size of the program's terminal; nil without one.
func (e *Exec) Terminal() *TerminalSize {
	if !e.TTY {
		return nil
	}
	return &TerminalSize{Rows: cmp.Or(e.Rows, DefaultRows), Cols: cmp.Or(e.Cols, DefaultCols)}
}

func (e *Exec) validateTerminal(path string) error {
	switch size := e.Terminal(); {
	case size != nil:
		return first(checkTerminalSize(path+".rows", size.Rows), checkTerminalSize(path+".cols", size.Cols), checkTerm(path, e.Env))
	case e.Rows != 0:
		return invalid(path+".rows", "only a command with a terminal has a size: set tty")
	case e.Cols != 0:
		return invalid(path+".cols", "only a command with a terminal has a size: set tty")
	}
	return nil
}

// checkTerm checks the type of a terminal: programs make it part of a file's name.
func checkTerm(path string, env map[string]string) error {
	if term, ok := env["TERM"]; ok && !ValidTerm(term) {
		return invalid(path+".env.TERM", "%.40q is not the type of a terminal", term)
	}
	return nil
}

// MessageRequest is a prompt for the thread's agent: op message. Its process is the agent's run: output, end and cancellation are
// those of any process.
type MessageRequest struct {
	// Prompt is the text for the agent. Required; at most [MaxPromptBytes] bytes.
	Prompt string `json:"prompt"`
	// User is the name of the sender. It is only recorded.
	User string `json:"user,omitempty"`
	// TimeoutMS is the time after which the agent is killed, in milliseconds from its start. Default 0: the template's timeout.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// OutputLimit is the number of bytes of each stream, from its start, that the result keeps. Default 1 MiB; 0 keeps none.
	OutputLimit *int64 `json:"output_limit,omitempty"`
}

// HasStdin reports whether the process has a standard input that is not empty from the start.
func (e *Exec) HasStdin() bool { return e.StdinOpen || e.StdinFrom != "" || len(e.Stdin) > 0 }

// Limit returns the number of bytes of each stream that the result keeps.
func (e *Exec) Limit() int64 { return outputLimit(e.OutputLimit) }

// Limit returns the number of bytes of each stream that the result keeps.
func (m *MessageRequest) Limit() int64 { return outputLimit(m.OutputLimit) }

// Limit returns the number of bytes of each stream that the command's result keeps.
func (c *Command) Limit() int64 {
	switch {
	case c.Exec != nil:
		return c.Exec.Limit()
	case c.Message != nil:
		return c.Message.Limit()
	default:
		return DefaultOutputLimit
	}
}

func outputLimit(given *int64) int64 {
	if given == nil {
		return DefaultOutputLimit
	}
	return *given
}

// Fingerprint returns a hex SHA-256 of the whole command but its trace context: a client may send it again in another span. Two
// commands with the same key are the same command when their fingerprints are equal. Process records hold it. It reveals no environment
// value or input: the hash includes the key, which is in no record, so that values cannot be guessed by trial.
func (c *Command) Fingerprint() string {
	untraced := *c
	untraced.TraceParent, untraced.TraceState = "", ""
	body, err := json.Marshal(&untraced) // sorts map keys, so equal commands have equal bytes
	if err != nil {
		// A Command holds only strings, numbers and bytes, which always encode.
		panic("schemas: encode command: " + err.Error())
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// DecodeCommand decodes and validates a command. Every error is an *Error: too_large above [MaxCommandBytes], else
// invalid_argument, with the detail "path" when a field is at fault.
func DecodeCommand(body []byte) (*Command, error) {
	if err := checkCommandSize(body); err != nil {
		return nil, err
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

// EncodeCommand validates and encodes a command. Errors: those of [Command.Validate], and too_large.
func EncodeCommand(c *Command) ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // it turns one byte into six, and half a limit's worth into too much
	if err := e.Encode(c); err != nil {
		return nil, Errorf(CodeInternal, "encode command: %w", err)
	}
	body := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if err := checkCommandSize(body); err != nil {
		return nil, err
	}
	return body, nil
}

func checkCommandSize(body []byte) error {
	if len(body) <= MaxCommandBytes {
		return nil
	}
	return Errorf(CodeTooLarge, "the command is %d bytes, the limit is %d: send large input on stdin or as a file", len(body), MaxCommandBytes)
}

// Validate checks every field. The error is invalid_argument with the detail "path", such as exec.args[3].
func (c *Command) Validate() error {
	if c.SpecVersion != Version {
		return invalid("specversion", "%q is not supported: use contract version %q", c.SpecVersion, Version)
	}
	if err := first(
		CheckID("thread", c.Thread), checkKey(c.Key), checkOptionalID("provider", c.Provider), checkImage(c.Image),
		checkOptionalID("template", c.Template), checkOptionalID("session", c.Session), c.Origin.validate(),
	); err != nil {
		return err
	}
	switch {
	case c.Exec != nil && c.Op == OpMessage:
		return invalid("exec", "op message does not use it")
	case c.Message != nil && c.Op == OpExec:
		return invalid("message", "op exec does not use it")
	case c.Op == OpExec && c.Exec != nil:
		return c.Exec.validate("exec")
	case c.Op == OpExec:
		return invalid("exec", "missing: op exec needs it")
	case c.Op == OpMessage && c.Message != nil:
		return c.Message.validate("message")
	case c.Op == OpMessage:
		return invalid("message", "missing: op message needs it")
	case c.Op == "":
		return invalid("op", "missing: one of %v", Ops())
	default:
		return invalid("op", "unknown op %q: one of %v", string(c.Op), Ops())
	}
}

func checkKey(key string) error {
	switch {
	case key == "":
		return invalid("key", "missing: give each command an idempotency key, such as a ULID")
	case len(key) > MaxKeyBytes:
		return invalid("key", "%d bytes, the limit is %d", len(key), MaxKeyBytes)
	case !utf8.ValidString(key):
		return invalid("key", "not valid UTF-8")
	}
	return nil
}

func (e *Exec) validate(path string) error {
	if e.Command == "" {
		return invalid(path+".command", "missing: name the program to run")
	}
	if err := checkPath(path+".command", e.Command); err != nil {
		return err
	}
	for i, a := range e.Args {
		if err := checkText(fmt.Sprintf("%s.args[%d]", path, i), a); err != nil {
			return err
		}
	}
	for name, value := range e.Env {
		if err := checkEnv(path+".env", name, value); err != nil {
			return err
		}
	}
	if err := first(
		checkPath(path+".cwd", e.Cwd), checkMillis(path+".timeout_ms", e.TimeoutMS), checkMillis(path+".grace_ms", e.GraceMS),
		checkOutputLimit(path+".output_limit", e.Limit()), checkOptionalID(path+".stdin_from", e.StdinFrom), e.validateTerminal(path),
	); err != nil {
		return err
	}
	if e.StdinFrom != "" && (e.StdinOpen || len(e.Stdin) > 0) {
		return invalid(path+".stdin_from", "it excludes stdin and stdin_open")
	}
	return oneOf(path+".retry", e.Retry, Retries())
}

func (m *MessageRequest) validate(path string) error {
	if m.Prompt == "" {
		return invalid(path+".prompt", "missing: give the agent a prompt")
	}
	return first(
		checkLabel(path+".prompt", m.Prompt, MaxPromptBytes), checkLabel(path+".user", m.User, MaxUserBytes),
		checkMillis(path+".timeout_ms", m.TimeoutMS), checkOutputLimit(path+".output_limit", m.Limit()),
	)
}
