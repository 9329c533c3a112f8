package schemas

import (
	"encoding/json"
	"strings"
	"time"
)

// EventSpecVersion is the CloudEvents version whose attribute names events use.
const EventSpecVersion = "1.0"

// EventType names what happened, as class.name.
type EventType string

// The event types of this version.
const (
	TypeProcessAccepted  EventType = "process.accepted"   // data: Accepted
	TypeProcessStarted   EventType = "process.started"    // data: Started
	TypeProcessExited    EventType = "process.exited"     // data: Result
	TypeProcessLost      EventType = "process.lost"       // data: Result with reason lost
	TypeProcessRejected  EventType = "process.rejected"   // data: Result with reason rejected
	TypeSessionCreated   EventType = "session.created"    // data: Session
	TypeSessionReused    EventType = "session.reused"     // data: Session
	TypeSessionExpired   EventType = "session.expired"    // data: Session
	TypeSessionEnded     EventType = "session.terminated" // data: Session
	TypeSandboxPending   EventType = "sandbox.pending"    // data: SandboxInfo
	TypeSandboxCreating  EventType = "sandbox.creating"   // data: SandboxInfo
	TypeSandboxRunning   EventType = "sandbox.running"    // data: SandboxInfo
	TypeSandboxCompleted EventType = "sandbox.completed"  // data: SandboxInfo: it ended by itself, or was parked
	TypeSandboxFailed    EventType = "sandbox.failed"     // data: SandboxInfo
	TypeSandboxEnded     EventType = "sandbox.terminated" // data: SandboxInfo
	TypeHookStarted      EventType = "hook.started"       // data: HookRun
	TypeHookFinished     EventType = "hook.finished"      // data: HookRun
	TypeHookFailed       EventType = "hook.failed"        // data: HookRun
	TypeColdStart        EventType = "coldstart.finished" // data: ColdStart
	TypeMessageSaved     EventType = "message.saved"      // data: Message, without its text
	TypeStreamFinished   EventType = "stream.finished"    // data: StreamFinish
	TypeSyncPulled       EventType = "sync.pulled"        // data: SyncReport
	TypeSyncPushed       EventType = "sync.pushed"        // data: SyncReport
	TypeSyncConflict     EventType = "sync.conflict"      // data: SyncReport
	TypeLogGap           EventType = "log.gap"            // data: LogGap
	TypeValidationFailed EventType = "validation.failed"  // data: Error
	TypeLimitExceeded    EventType = "limit.exceeded"     // data: Error
)

// EventTypes lists every event type this version publishes.
func EventTypes() []EventType {
	return []EventType{
		TypeProcessAccepted, TypeProcessStarted, TypeProcessExited, TypeProcessLost, TypeProcessRejected,
		TypeSessionCreated, TypeSessionReused, TypeSessionExpired, TypeSessionEnded,
		TypeSandboxPending, TypeSandboxCreating, TypeSandboxRunning, TypeSandboxCompleted, TypeSandboxFailed, TypeSandboxEnded,
		TypeHookStarted, TypeHookFinished, TypeHookFailed, TypeColdStart, TypeMessageSaved, TypeStreamFinished,
		TypeSyncPulled, TypeSyncPushed, TypeSyncConflict,
		TypeLogGap, TypeValidationFailed, TypeLimitExceeded,
	}
}

// Terminal says whether no event of this process may follow.
func (t EventType) Terminal() bool {
	return t == TypeProcessExited || t == TypeProcessLost || t == TypeProcessRejected
}

// OfProcess says whether the event belongs to a process's write-once record.
func (t EventType) OfProcess() bool { return strings.HasPrefix(string(t), "process.") }

// Event is something that happened, with CloudEvents' attribute names. It travels on evt.<thread>.<process|_>.<type>, is
// republished on feed.…, and answers a caller's inbox. Unknown fields are tolerated.
type Event struct {
	// SpecVersion is [EventSpecVersion].
	SpecVersion string `json:"specversion"`
	// ID is a ULID: unique, and sortable by time.
	ID string `json:"id"`
	// Source is the worker that published it.
	Source string `json:"source"`
	// Type says what happened, and so what Data holds.
	Type EventType `json:"type"`
	// Subject is what it happened to: the process's id, or the thread's.
	Subject string `json:"subject"`
	// Time is when, by the worker's clock, in UTC. Order comes from Seq, never from clocks.
	Time time.Time `json:"time"`
	// Tenant is whose thread it is.
	Tenant string `json:"tenant"`
	// Thread is the conversation.
	Thread string `json:"thread"`
	// Session is the session's id; empty before there is one.
	Session string `json:"session,omitempty"`
	// Process is the process's id; empty for events of the thread as a whole.
	Process string `json:"process,omitempty"`
	// Seq is the event's place in the EVT stream. It is set on reading; 0 in the stored bytes.
	Seq uint64 `json:"seq,omitempty"`
	// Data is the fact itself; its shape follows from Type.
	Data json.RawMessage `json:"data,omitempty"`

	wire   []byte  // what Encode made
	result *Result // what SetData made Data from
}

// SetData sets Data to the wire form of v, one of the types named beside the event types, which must not be changed from then on.
// The error is internal.
func (e *Event) SetData(v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return Errorf(CodeInternal, "encode %s: %w", e.Type, err)
	}
	e.Data = body
	e.result, _ = v.(*Result)
	return nil
}

// Encode is the event's wire form. It is made once, since an event goes to its stream and to those who wait: the event must
// not be changed after the first call, and the first call not be made twice at the same time. The error is internal.
func (e *Event) Encode() ([]byte, error) {
	if e.wire != nil {
		return e.wire, nil
	}
	// The fields beside data are short: ids, and a time.
	if body, ok := e.append(make([]byte, 0, 512+len(e.Data))); ok {
		e.wire = body
		return body, nil
	}
	// Data is JSON already: put in as it is, it need not be read through again.
	bare := *e
	bare.Data = nil
	body, err := json.Marshal(&bare)
	if err != nil {
		return nil, Errorf(CodeInternal, "encode event %s: %w", e.Type, err)
	}
	if len(e.Data) > 0 {
		body = append(append(append(body[:len(body)-1], `,"data":`...), e.Data...), '}')
	}
	e.wire = body
	return body, nil
}

// DecodeEvent reads an event, tolerating fields it does not know. The error is invalid_argument.
func DecodeEvent(body []byte) (*Event, error) {
	if e, ok := parseEvent(body); ok && e.SpecVersion != "" && e.Type != "" {
		return e, nil
	}
	var e Event
	if err := json.Unmarshal(body, &e); err != nil {
		return nil, Errorf(CodeInvalidArgument, "not an event: %w", err)
	}
	if e.SpecVersion == "" || e.Type == "" {
		return nil, Errorf(CodeInvalidArgument, "not an event: specversion or type is missing")
	}
	return &e, nil
}

// Decode reads Data into v, one of the types named beside the event types. The error is invalid_argument.
func (e *Event) Decode(v any) error {
	if to, ok := v.(*Result); ok && e.result != nil {
		*to = *e.result // who made the event need not read it through to know what it says
		return nil
	}
	if err := json.Unmarshal(e.Data, v); err != nil {
		return Errorf(CodeInvalidArgument, "data of %s %s: %w", e.Type, e.ID, err)
	}
	return nil
}

// Accepted is the first record of a process: from here on its key is taken.
type Accepted struct {
	// Fingerprint is the command's; see Command.Fingerprint.
	Fingerprint string `json:"fingerprint"`
	// Command and Args are what was asked to run. Arguments over [MaxShownArgs] bytes in all are cut.
	Command string   `json:"command"`
	Args    []string `json:"args,omitempty"`
	// ArgsTruncated says that Args was cut.
	ArgsTruncated bool `json:"args_truncated,omitempty"`
	// TimeoutMS is the command's.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// OutputLimit and StdinOpen are the command's, and StdinBytes the size of its own standard input: what a worker that goes on
	// with the process after a restart has to know.
	OutputLimit *int64 `json:"output_limit,omitempty"`
	StdinOpen   bool   `json:"stdin_open,omitempty"`
	StdinBytes  int64  `json:"stdin_bytes,omitempty"`
	// Epoch is the session's epoch under which it was accepted.
	Epoch uint64 `json:"epoch"`
	// Retry is the command's.
	Retry Retry `json:"retry,omitempty"`
	// Op is the command's, where it is not exec, and User a message's.
	Op   Op     `json:"op,omitempty"`
	User string `json:"user,omitempty"`
}

// Started is the second record of a process.
type Started struct {
	// Fingerprint is the command's, so that one record is enough to tell a replay from a conflict.
	Fingerprint string `json:"fingerprint"`
	// Command is the program, as in Accepted.
	Command string `json:"command"`
	// PID is the process's id as its sandbox sees it.
	PID int `json:"pid"`
	// Sandbox is the sandbox's id.
	Sandbox string `json:"sandbox"`
	// Epoch is the session's epoch.
	Epoch uint64 `json:"epoch"`
	// Retry is the command's.
	Retry Retry `json:"retry,omitempty"`
}

// LogGap says that output is missing from the log, and why.
type LogGap struct {
	// Stream is the output it is missing from.
	Stream Stream `json:"stream"`
	// From and To are the byte offsets of what is missing, To not included. To is -1 where nothing after From was stored.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Reason says why.
	Reason string `json:"reason"`
}

// MaxShownArgs is how many bytes of arguments records and results repeat.
const MaxShownArgs = 4 << 10

// ShownArgs is args as records and results repeat them, cut after [MaxShownArgs] bytes, and whether it was cut. An argument
// counts as one byte more than it has, so that empty ones by the thousand are cut too.
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
