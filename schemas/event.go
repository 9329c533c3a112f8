package schemas

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// EventSpecVersion is the CloudEvents version that the attribute names of events come from.
const EventSpecVersion = "1.0"

// EventType is the kind of an event, as class.name.
type EventType string

// The event types of this version, each with the type of its data.
const (
	TypeProcessAccepted   EventType = "process.accepted"   // data: Accepted
	TypeProcessStarted    EventType = "process.started"    // data: Started
	TypeProcessExited     EventType = "process.exited"     // data: Result
	TypeProcessLost       EventType = "process.lost"       // data: Result with reason lost
	TypeProcessRejected   EventType = "process.rejected"   // data: Result with reason rejected
	TypeSessionCreated    EventType = "session.created"    // data: Session
	TypeSessionReused     EventType = "session.reused"     // data: Session
	TypeSessionExpired    EventType = "session.expired"    // data: Session
	TypeSessionTerminated EventType = "session.terminated" // data: Session
	TypeSandboxPending    EventType = "sandbox.pending"    // data: SandboxInfo
	TypeSandboxCreating   EventType = "sandbox.creating"   // data: SandboxInfo
	TypeSandboxRunning    EventType = "sandbox.running"    // data: SandboxInfo
	TypeSandboxCompleted  EventType = "sandbox.completed"  // data: SandboxInfo: it ended by itself, or was parked
	TypeSandboxFailed     EventType = "sandbox.failed"     // data: SandboxInfo
	TypeSandboxTerminated EventType = "sandbox.terminated" // data: SandboxInfo
	TypeHookStarted       EventType = "hook.started"       // data: HookRun
	TypeHookFinished      EventType = "hook.finished"      // data: HookRun
	TypeHookFailed        EventType = "hook.failed"        // data: HookRun
	TypeColdStartFinished EventType = "coldstart.finished" // data: ColdStart
	TypeMessageSaved      EventType = "message.saved"      // data: Message, without its text
	TypeStreamFinished    EventType = "stream.finished"    // data: StreamFinish
	TypeSyncPulled        EventType = "sync.pulled"        // data: SyncReport
	TypeSyncPushed        EventType = "sync.pushed"        // data: SyncReport
	TypeSyncConflict      EventType = "sync.conflict"      // data: SyncReport
	TypeServiceStarting   EventType = "service.starting"   // data: Service, in these six without the values of its environment
	TypeServiceRunning    EventType = "service.running"    // data: Service
	TypeServiceUnhealthy  EventType = "service.unhealthy"  // data: Service
	TypeServiceStopping   EventType = "service.stopping"   // data: Service
	TypeServiceStopped    EventType = "service.stopped"    // data: Service
	TypeServiceFailed     EventType = "service.failed"     // data: Service
	TypeFileUploaded      EventType = "file.uploaded"      // data: FileTransfer
	TypeFileDownloaded    EventType = "file.downloaded"    // data: FileTransfer
	TypeLogGap            EventType = "log.gap"            // data: LogGap
	TypeValidationFailed  EventType = "validation.failed"  // data: Error
	TypeLimitExceeded     EventType = "limit.exceeded"     // data: Error
	TypeProcessesCleaned  EventType = "processes.cleaned"  // data: ProcessesCleaned
	TypeCommandWaiting    EventType = "command.waiting"    // data: Error: what no live worker has. Sent to inboxes alone, not stored

	TypeSandboxEnding EventType = "sandbox.terminating" // data: SandboxInfo: it has not ended in its time, and its worker goes on to end it
)

// EventTypes lists every event type of this version.
func EventTypes() []EventType {
	return []EventType{
		TypeProcessAccepted, TypeProcessStarted, TypeProcessExited, TypeProcessLost, TypeProcessRejected,
		TypeSessionCreated, TypeSessionReused, TypeSessionExpired, TypeSessionTerminated,
		TypeSandboxPending, TypeSandboxCreating, TypeSandboxRunning, TypeSandboxCompleted, TypeSandboxFailed, TypeSandboxTerminated, TypeSandboxEnding,
		TypeHookStarted, TypeHookFinished, TypeHookFailed, TypeColdStartFinished, TypeMessageSaved, TypeStreamFinished,
		TypeSyncPulled, TypeSyncPushed, TypeSyncConflict, TypeFileUploaded, TypeFileDownloaded,
		TypeServiceStarting, TypeServiceRunning, TypeServiceUnhealthy, TypeServiceStopping, TypeServiceStopped, TypeServiceFailed,
		TypeLogGap, TypeValidationFailed, TypeLimitExceeded, TypeProcessesCleaned, TypeCommandWaiting,
	}
}

// Terminal reports whether it ends a run of a process. It is the last event of the process, unless the process may run again: see
// [Result.RunsAgain].
func (t EventType) Terminal() bool {
	return t == TypeProcessExited || t == TypeProcessLost || t == TypeProcessRejected
}

// OfProcess reports whether the event is part of a process's write-once record.
func (t EventType) OfProcess() bool { return strings.HasPrefix(string(t), "process.") }

// Event is a fact about a process, a sandbox or a session, with the attribute names of CloudEvents. It is published on
// evt.<thread>.<process|_>.<type>, republished on feed.…, and sent to the caller's inbox. Readers must accept unknown fields.
type Event struct {
	// SpecVersion is [EventSpecVersion].
	SpecVersion string `json:"specversion"`
	// ID is a ULID: unique, and sortable by time.
	ID string `json:"id"`
	// Source is the worker that published the event.
	Source string `json:"source"`
	// Type is the kind of event. It sets the type of Data.
	Type EventType `json:"type"`
	// Subject is the id of the process, else of the thread.
	Subject string `json:"subject"`
	// Time is the worker's clock, in UTC. Seq, not Time, gives the order.
	Time time.Time `json:"time"`
	// Tenant is the thread's tenant.
	Tenant string `json:"tenant"`
	// Thread is the conversation.
	Thread string `json:"thread"`
	// Session is the session's id; empty before the thread has one.
	Session string `json:"session,omitempty"`
	// Process is the process's id; empty for events of the whole thread.
	Process string `json:"process,omitempty"`
	// Template is the name of the session's template; empty before the thread has a session.
	Template string `json:"template,omitempty"`
	Origin
	// Seq is the event's sequence in the stream EVT. Readers set it; it is 0 in the stored bytes.
	Seq uint64 `json:"seq,omitempty"`
	// Data holds the facts. Its type depends on Type.
	Data json.RawMessage `json:"data,omitempty"`

	// Stored is when EVT stored the event, by the server's clock. It is set where a single record is read, and zero elsewhere.
	Stored time.Time `json:"-"`

	wire   []byte  // the result of Encode
	result *Result // the argument of SetData
}

// SetData encodes v into Data. v has the type named beside the event type, and must not change afterwards. The error is internal.
func (e *Event) SetData(v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return Errorf(CodeInternal, "encode %s: %w", e.Type, err)
	}
	e.Data = body
	e.result, _ = v.(*Result)
	return nil
}

// Decode decodes Data into v, which has the type named beside the event type. The error is invalid_argument.
func (e *Event) Decode(v any) error {
	if to, ok := v.(*Result); ok && e.result != nil {
		*to = *e.result // SetData was called in this process: no need to parse
		return nil
	}
	if err := json.Unmarshal(e.Data, v); err != nil {
		return Errorf(CodeInvalidArgument, "data of %s %s: %w", e.Type, e.ID, err)
	}
	return nil
}

// Encode returns the event's JSON. It encodes once, since an event goes to its stream and to callers: the event must not change
// after the first call, and first calls must not run concurrently. The error is internal.
func (e *Event) Encode() ([]byte, error) {
	if e.wire != nil {
		return e.wire, nil
	}
	// 512 bytes hold the fields other than Data: ids and a time.
	if body, ok := e.append(make([]byte, 0, 512+len(e.Data))); ok {
		e.wire = body
		return body, nil
	}
	// Data is appended as it is, so that the encoder does not parse it again.
	bare := *e
	bare.Data = nil
	body, err := json.Marshal(&bare)
	if err != nil {
		return nil, Errorf(CodeInternal, "encode event %s: %w", e.Type, err)
	}
	if len(e.Data) > 0 {
		body = append(append(append(body[:len(body)-1], dataField...), e.Data...), '}')
	}
	e.wire = body
	return body, nil
}

// DecodeEvent decodes an event, and accepts unknown fields. The error is invalid_argument.
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

// fields returns the event's fields in wire order, without labels, seq and data. Most messages of a command are events. Encoding them by
// reflection would cost more than all other work on them.
func (e *Event) fields() [13]eventField {
	return [...]eventField{
		{`{"specversion":`, &e.SpecVersion, false}, {`,"id":`, &e.ID, false}, {`,"source":`, &e.Source, false},
		{`,"type":`, (*string)(&e.Type), false}, {`,"subject":`, &e.Subject, false}, {`,"time":`, nil, false},
		{`,"tenant":`, &e.Tenant, false}, {`,"thread":`, &e.Thread, false},
		{`,"session":`, &e.Session, true}, {`,"process":`, &e.Process, true}, {`,"template":`, &e.Template, true},
		{`,"traceparent":`, &e.TraceParent, true}, {`,"tracestate":`, &e.TraceState, true},
	}
}

type eventField struct {
	name      string
	text      *string // nil for the time
	omitempty bool
}

const (
	labelsField = `,"labels":`
	seqField    = `,"seq":`
	dataField   = `,"data":`
)

// append appends the event's JSON, byte for byte as encoding/json writes it. ok is false when a field needs escaping or the time
// cannot be encoded.
func (e *Event) append(b []byte) (_ []byte, ok bool) {
	for _, f := range e.fields() {
		switch {
		case f.text == nil:
			at, err := e.Time.AppendText(append(append(b, f.name...), '"'))
			if err != nil {
				return nil, false
			}
			b = append(at, '"')
		case !plain(*f.text):
			return nil, false
		case *f.text != "" || !f.omitempty:
			b = append(append(append(append(b, f.name...), '"'), *f.text...), '"')
		}
	}
	if len(e.Labels) > 0 {
		labels, err := json.Marshal(e.Labels)
		if err != nil {
			return nil, false
		}
		b = append(append(b, labelsField...), labels...)
	}
	if e.Seq != 0 {
		b = strconv.AppendUint(append(b, seqField...), e.Seq, 10)
	}
	if len(e.Data) > 0 {
		b = append(append(b, dataField...), e.Data...)
	}
	return append(b, '}'), true
}

// parseEvent decodes the exact form that append writes. ok is false for every other form, such as fields in another order, which
// may be a valid event too.
func parseEvent(body []byte) (e *Event, ok bool) {
	e = new(Event)
	rest := body
	for _, f := range e.fields() {
		after, found := bytes.CutPrefix(rest, []byte(f.name))
		if !found && f.omitempty {
			continue
		}
		if !found || len(after) == 0 || after[0] != '"' {
			return nil, false
		}
		n := bytes.IndexByte(after[1:], '"')
		if n < 0 {
			return nil, false
		}
		text := string(after[1 : n+1])
		if !plain(text) || f.omitempty && text == "" {
			return nil, false
		}
		rest = after[n+2:]
		if f.text != nil {
			*f.text = text
		} else if e.Time.UnmarshalText([]byte(text)) != nil {
			return nil, false
		}
	}
	if labels, found := bytes.CutPrefix(rest, []byte(labelsField)); found {
		d := json.NewDecoder(bytes.NewReader(labels))
		if d.Decode(&e.Labels) != nil || len(e.Labels) == 0 {
			return nil, false
		}
		rest = labels[d.InputOffset():]
	}
	data, found := bytes.CutPrefix(rest, []byte(dataField))
	if !found {
		return e, string(rest) == "}"
	}
	data, found = bytes.CutSuffix(data, []byte("}"))
	// Only an object without blanks around it is kept as it is.
	if !found || len(data) < 2 || data[0] != '{' || data[len(data)-1] != '}' || !json.Valid(data) {
		return nil, false
	}
	e.Data = bytes.Clone(data)
	return e, true
}

// plain reports whether encoding/json writes s without escapes. It escapes HTML characters too.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}
