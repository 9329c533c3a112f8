package schemas

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Validate checks every field. The error is invalid_argument with the detail "path", such as exec.args[3].
func (c *Command) Validate() error {
	if c.SpecVersion != Version {
		return invalid("specversion", "%q is not supported: this is version %q of the contract", c.SpecVersion, Version)
	}
	if err := CheckID("thread", c.Thread); err != nil {
		return err
	}
	switch {
	case c.Key == "":
		return invalid("key", "missing: give each command an idempotency key, such as a ULID")
	case len(c.Key) > MaxKeyBytes:
		return invalid("key", "%d bytes, the limit is %d", len(c.Key), MaxKeyBytes)
	case !utf8.ValidString(c.Key):
		return invalid("key", "not valid UTF-8")
	}
	if err := checkProvider(c.Provider); err != nil {
		return err
	}
	if err := checkImage(c.Image); err != nil {
		return err
	}
	if err := checkOptionalID("template", c.Template); err != nil {
		return err
	}
	if err := checkOptionalID("session", c.Session); err != nil {
		return err
	}
	switch {
	case c.Exec != nil && c.Op == OpMessage:
		return invalid("exec", "op message makes no use of it")
	case c.Message != nil && c.Op == OpExec:
		return invalid("message", "op exec makes no use of it")
	}
	switch c.Op {
	case OpExec:
		if c.Exec == nil {
			return invalid("exec", "missing: op exec needs it")
		}
		return c.Exec.validate("exec")
	case OpMessage:
		if c.Message == nil {
			return invalid("message", "missing: op message needs it")
		}
		return c.Message.validate("message")
	case "":
		return invalid("op", "missing: one of %v", Ops())
	default:
		return invalid("op", "unknown op %q: one of %v", string(c.Op), Ops())
	}
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
	if err := checkPath(path+".cwd", e.Cwd); err != nil {
		return err
	}
	if err := checkMillis(path+".timeout_ms", e.TimeoutMS); err != nil {
		return err
	}
	if err := checkMillis(path+".grace_ms", e.GraceMS); err != nil {
		return err
	}
	if err := checkOutputLimit(path+".output_limit", e.Limit()); err != nil {
		return err
	}
	switch e.Retry {
	case "", RetryNever, RetrySafe:
	default:
		return invalid(path+".retry", "unknown retry %q: never or safe", string(e.Retry))
	}
	return nil
}

func (m *MessageRequest) validate(path string) error {
	if m.Prompt == "" {
		return invalid(path+".prompt", "missing: say what the agent is to do")
	}
	if err := checkLabel(path+".prompt", m.Prompt, MaxPromptBytes); err != nil {
		return err
	}
	if err := checkLabel(path+".user", m.User, MaxUserBytes); err != nil {
		return err
	}
	if err := checkMillis(path+".timeout_ms", m.TimeoutMS); err != nil {
		return err
	}
	return checkOutputLimit(path+".output_limit", m.Limit())
}

func checkOutputLimit(path string, limit int64) error {
	if limit < 0 || limit > MaxOutputLimit {
		return invalid(path, "%d is not between 0 and %d bytes", limit, MaxOutputLimit)
	}
	return nil
}

func checkOptionalID(field, s string) error {
	if s == "" {
		return nil
	}
	return CheckID(field, s)
}

func checkProvider(name string) error {
	if name == "" || ValidID(name) {
		return nil
	}
	return invalid("provider", "%.40q is not a provider's name", name)
}

// checkImage refuses what no engine takes for an image's name; which names are well formed, the engine says.
func checkImage(name string) error {
	for _, c := range name {
		if c <= ' ' || c > '~' {
			return invalid("image", "%.40q is not an image's name", name)
		}
	}
	if len(name) > MaxImageBytes {
		return invalid("image", "%d bytes, the limit is %d", len(name), MaxImageBytes)
	}
	return nil
}

func checkPath(path, s string) error {
	if len(s) > MaxPathBytes {
		return invalid(path, "%d bytes, the limit is %d", len(s), MaxPathBytes)
	}
	return checkText(path, s)
}

// checkText refuses what execve or a path cannot hold.
func checkText(path, s string) error {
	if strings.IndexByte(s, 0) >= 0 {
		return invalid(path, "holds a NUL byte")
	}
	if !utf8.ValidString(s) {
		return invalid(path, "not valid UTF-8")
	}
	return nil
}

func checkEnv(path, name, value string) error {
	if name == "" || strings.ContainsAny(name, "=\x00") || !utf8.ValidString(name) {
		return invalid(path, "%q is not an environment name", strings.ToValidUTF8(name, "\uFFFD"))
	}
	// The supervisor finds a process's runaway descendants by SLUICE_PROCESS: a caller must not be able to forge it.
	if strings.HasPrefix(name, "SLUICE_") {
		return invalid(path+"."+name, "names that begin with SLUICE_ are set by Sluice alone")
	}
	return checkText(path+"."+name, value)
}

func checkMillis(path string, ms int64) error {
	if ms < 0 || ms > MaxTimeoutMS {
		return invalid(path, "%d is not between 0 and %d milliseconds", ms, MaxTimeoutMS)
	}
	return nil
}

// How much an error repeats of what was sent, in bytes: it travels in an event, which must fit into a message.
const (
	maxShownPath    = 200
	maxShownMessage = 600
)

func invalid(path, format string, args ...any) error {
	path = brief(path, maxShownPath)
	return Errorf(CodeInvalidArgument, "%s", brief(path+": "+fmt.Sprintf(format, args...), maxShownMessage)).With("path", path)
}

// brief is s as valid text of about this many bytes.
func brief(s string, most int) string {
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
