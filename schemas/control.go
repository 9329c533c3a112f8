package schemas

import "regexp"

// MaxControlBytes bounds the JSON of a control or place request.
const MaxControlBytes = 64 << 10

// SignalPattern is what the name of a signal looks like. Whether there is such a signal is for the sandbox to say: they
// differ between systems.
const SignalPattern = `^[A-Za-z0-9+-]{1,32}$`

var signalName = regexp.MustCompile(SignalPattern)

// SignalRequest asks for a signal to a process's group. It travels on ctl.<thread>.<process>.signal.
type SignalRequest struct {
	// Signal is the signal's name, such as SIGINT, with or without SIG, or its number.
	Signal string `json:"signal"`
}

// DecodeSignalRequest reads and validates a signal request as strictly as [DecodeCommand] reads a command. The errors are the
// same.
func DecodeSignalRequest(body []byte) (*SignalRequest, error) {
	var r SignalRequest
	if err := decodeControl("signal request", body, &r); err != nil {
		return nil, err
	}
	if !signalName.MatchString(r.Signal) {
		return nil, invalid("signal", "%.40q is not a signal: name one, such as SIGINT, or give its number", r.Signal)
	}
	return &r, nil
}

// KillRequest asks for the end of a process's whole tree. It travels on ctl.<thread>.<process>.kill.
type KillRequest struct {
	// GraceMS is the time between SIGTERM and SIGKILL, in milliseconds. Default 0: SIGKILL at once.
	GraceMS int64 `json:"grace_ms,omitempty"`
}

// DecodeKillRequest reads and validates a kill request as strictly as [DecodeCommand] reads a command. The errors are the same.
func DecodeKillRequest(body []byte) (*KillRequest, error) {
	var r KillRequest
	if err := decodeControl("kill request", body, &r); err != nil {
		return nil, err
	}
	if err := checkMillis("grace_ms", r.GraceMS); err != nil {
		return nil, err
	}
	return &r, nil
}

// PlaceRequest asks for a worker to take a thread. It travels on api.place, which one worker of all answers.
type PlaceRequest struct {
	// Thread is the conversation.
	Thread string `json:"thread"`
	// Provider is the kind of sandbox it needs; empty for the template's, or the worker's own choice.
	Provider string `json:"provider,omitempty"`
	// Template is the recipe of a new session; empty for the worker's default. A session of another one is a conflict.
	Template string `json:"template,omitempty"`
	// User and Tags are a new session's.
	User string            `json:"user,omitempty"`
	Tags map[string]string `json:"tags,omitempty"`
	// IdleTimeoutMS and MaxLifetimeMS are a new session's, in milliseconds; 0 for the template's.
	IdleTimeoutMS int64 `json:"idle_timeout_ms,omitempty"`
	MaxLifetimeMS int64 `json:"max_lifetime_ms,omitempty"`
	// Existing makes no session: a thread that has none is not_found.
	Existing bool `json:"existing,omitempty"`
	// Start makes the sandbox, with its cold-start hooks, before the answer.
	Start bool `json:"start,omitempty"`
}

// DecodePlaceRequest reads and validates a place request as strictly as [DecodeCommand] reads a command. The errors are the
// same.
func DecodePlaceRequest(body []byte) (*PlaceRequest, error) {
	var r PlaceRequest
	if err := decodeControl("place request", body, &r); err != nil {
		return nil, err
	}
	if err := CheckID("thread", r.Thread); err != nil {
		return nil, err
	}
	if err := checkProvider(r.Provider); err != nil {
		return nil, err
	}
	if err := r.checkSession(); err != nil {
		return nil, err
	}
	return &r, nil
}

// checkSession checks what a new session is to be.
func (r *PlaceRequest) checkSession() error {
	if r.Template != "" {
		if err := CheckID("template", r.Template); err != nil {
			return err
		}
	}
	if err := checkLabel("user", r.User, MaxUserBytes); err != nil {
		return err
	}
	if len(r.Tags) > MaxTags {
		return invalid("tags", "%d tags, the limit is %d", len(r.Tags), MaxTags)
	}
	for name, value := range r.Tags {
		if name == "" {
			return invalid("tags", "a tag without a name")
		}
		if err := checkLabel("tags", name, MaxTagBytes); err != nil {
			return err
		}
		if err := checkLabel("tags."+name, value, MaxTagBytes); err != nil {
			return err
		}
	}
	if err := checkMillis("idle_timeout_ms", r.IdleTimeoutMS); err != nil {
		return err
	}
	return checkMillis("max_lifetime_ms", r.MaxLifetimeMS)
}

func checkLabel(path, s string, limit int) error {
	if len(s) > limit {
		return invalid(path, "%d bytes, the limit is %d", len(s), limit)
	}
	return checkText(path, s)
}

func decodeControl(what string, body []byte, into any) error {
	if len(body) > MaxControlBytes {
		return Errorf(CodeTooLarge, "the %s is %d bytes, the limit is %d", what, len(body), MaxControlBytes)
	}
	return decodeStrict(what, body, into)
}

// PlaceReply says who owns a thread now.
type PlaceReply struct {
	// Worker is the owner.
	Worker string `json:"worker,omitempty"`
	// Session is the thread's, and Created says that it was made for this request.
	Session *Session `json:"session,omitempty"`
	Created bool     `json:"created,omitempty"`
	// Error says why nobody could take it.
	Error *Error `json:"error,omitempty"`
}

// StdinPiece is input for a running process. It travels on ctl.<thread>.<process>.stdin as raw bytes and headers.
type StdinPiece struct {
	// Offset is how many bytes of input came before.
	Offset int64
	// Data is the input.
	Data []byte
	// End closes the process's standard input after it.
	End bool
}
