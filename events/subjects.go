package events

import (
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

// Subjects builds every subject of one cell: sluice.v1.<cell>.<tenant>.<plane>.… Each plane has a form to publish on and
// a form to subscribe to. No other code puts a subject together.
//
// Ids become tokens, so that callers pass only what [schemas.ValidID] allows; the entrances check it.
type Subjects struct {
	root string // sluice.v1.<cell>
	cell string
}

// NewSubjects is for a cell, which must be a valid id.
func NewSubjects(cell string) Subjects {
	return Subjects{root: "sluice.v" + schemas.Version + "." + cell, cell: cell}
}

func (s Subjects) join(tenant, plane string, tokens ...string) string {
	var b strings.Builder
	b.Grow(len(s.root) + len(tenant) + len(plane) + 96)
	b.WriteString(s.root)
	b.WriteByte('.')
	b.WriteString(tenant)
	b.WriteByte('.')
	b.WriteString(plane)
	for _, t := range tokens {
		b.WriteByte('.')
		b.WriteString(t)
	}
	return b.String()
}

// noProcess stands where an event concerns no process.
const noProcess = "_"

// Command is where a durable command for a thread is published.
func (s Subjects) Command(tenant, thread string, op schemas.Op) string {
	return s.join(tenant, "cmd", thread, string(op))
}

// AllCommands is what the CMD stream listens on.
func (s Subjects) AllCommands() string { return s.join("*", "cmd", "*", "*") }

// partitionTransform is the destination CMD gives its messages: the partition first, so that a consumer can filter by it.
func (s Subjects) partitionTransform(partitions int) string {
	n := strconv.Itoa(partitions)
	return s.root + ".cmdp.{{partition(" + n + ",1,2)}}.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}"
}

// PartitionCommands is the filter of one partition's consumer.
func (s Subjects) PartitionCommands(partition int) string {
	return s.root + ".cmdp." + strconv.Itoa(partition) + ".>"
}

// ParseCommand reads tenant, thread and operation from a stored command's subject or an rpc subject.
func (s Subjects) ParseCommand(subject string) (tenant, thread string, op schemas.Op, ok bool) {
	rest, ok := strings.CutPrefix(subject, s.root+".")
	if !ok {
		return "", "", "", false
	}
	t := strings.Split(rest, ".")
	switch {
	case len(t) == 5 && t[0] == "cmdp":
		return t[2], t[3], schemas.Op(t[4]), true
	case len(t) == 4 && t[1] == "rpc":
		return t[0], t[2], schemas.Op(t[3]), true
	default:
		return "", "", "", false
	}
}

// RPC is where a command for a thread goes straight to the worker that owns it.
func (s Subjects) RPC(tenant, thread string, op schemas.Op) string {
	return s.join(tenant, "rpc", thread, string(op))
}

// ThreadRPCs is what a thread's owner listens on.
func (s Subjects) ThreadRPCs(tenant, thread string) string { return s.join(tenant, "rpc", thread, "*") }

// Control is where a running process is told something: see [Verb].
func (s Subjects) Control(tenant, thread, process string, verb Verb) string {
	return s.join(tenant, "ctl", thread, process, string(verb))
}

// ThreadControls is what a thread's owner listens on.
func (s Subjects) ThreadControls(tenant, thread string) string {
	return s.join(tenant, "ctl", thread, "*", "*")
}

// parseControl reads a control subject.
func (s Subjects) parseControl(subject string) (tenant, thread, process string, verb Verb, ok bool) {
	rest, ok := strings.CutPrefix(subject, s.root+".")
	if !ok {
		return "", "", "", "", false
	}
	t := strings.Split(rest, ".")
	if len(t) != 5 || t[1] != "ctl" {
		return "", "", "", "", false
	}
	return t[0], t[2], t[3], Verb(t[4]), true
}

// Event is where a worker publishes an event. The type's two parts are two tokens, so that a process's record,
// process.*, can be addressed apart from all else that concerns it.
func (s Subjects) Event(tenant, thread, process string, typ schemas.EventType) string {
	if process == "" {
		process = noProcess
	}
	return s.join(tenant, "evt", thread, process, string(typ))
}

// Record addresses every record of a process. It is the filter of each compare-and-swap on it, and must match the
// subjects that [Subjects.Event] gives its events, or the server would compare with nothing.
func (s Subjects) Record(tenant, thread, process string) string {
	return s.join(tenant, "evt", thread, process, "process", "*")
}

// AnyRecord addresses a process's records by the process's id alone.
func (s Subjects) AnyRecord(tenant, process string) string {
	return s.join(tenant, "evt", "*", process, "process", "*")
}

// AllRecords addresses every process record of the cell.
func (s Subjects) AllRecords() string { return s.join("*", "evt", "*", "*", "process", "*") }

// ThreadRecords addresses every process record of a thread; with thread "*", of the tenant.
func (s Subjects) ThreadRecords(tenant, thread string) string {
	return s.join(tenant, "evt", thread, "*", "process", "*")
}

// AllEvents is what the EVT stream listens on.
func (s Subjects) AllEvents() string { return s.join("*", "evt", ">") }

// Events addresses the events of a tenant: of one thread and one process where they are given, else of all.
func (s Subjects) Events(tenant, thread, process string) string {
	return s.join(tenant, "evt", orAny(thread), orAny(process), "*", "*")
}

// Feed is the live copy of what [Subjects.Events] addresses.
func (s Subjects) Feed(tenant, thread, process string) string {
	return s.join(tenant, "feed", orAny(thread), orAny(process), "*", "*")
}

// FeedRecord is the live copy of [Subjects.Record].
func (s Subjects) FeedRecord(tenant, thread, process string) string {
	return s.join(tenant, "feed", thread, process, "process", "*")
}

// Log is where a worker publishes output.
func (s Subjects) Log(tenant, thread, process string, stream schemas.Stream) string {
	return s.join(tenant, "log", thread, process, string(stream))
}

// ProcessLog addresses both streams of a process.
func (s Subjects) ProcessLog(tenant, thread, process string) string {
	return s.join(tenant, "log", thread, process, "*")
}

// AllLogs is what the LOG stream listens on.
func (s Subjects) AllLogs() string { return s.join("*", "log", ">") }

// Tail is the live copy of what [Subjects.ProcessLog] addresses.
func (s Subjects) Tail(tenant, thread, process string) string {
	return s.join(tenant, "tail", thread, process, "*")
}

// Message is where a worker stores a message of a conversation.
func (s Subjects) Message(tenant, thread, process string, role schemas.Role) string {
	return s.join(tenant, "msg", thread, process, string(role))
}

// Messages addresses a thread's messages.
func (s Subjects) Messages(tenant, thread string) string {
	return s.join(tenant, "msg", thread, "*", "*")
}

// AllMessages is what the MSG stream listens on.
func (s Subjects) AllMessages() string { return s.join("*", "msg", ">") }

// Said is the live copy of what [Subjects.Messages] addresses.
func (s Subjects) Said(tenant, thread string) string { return s.join(tenant, "said", thread, "*", "*") }

// API is an endpoint that any worker may answer.
func (s Subjects) API(tenant, verb string) string { return s.join(tenant, "api", verb) }

// AnyAPI is what workers listen on for a verb, for every tenant.
func (s Subjects) AnyAPI(verb string) string { return s.join("*", "api", verb) }

// DeadLetter is where a command goes that can never be accepted.
func (s Subjects) DeadLetter(tenant, thread string) string { return s.join(tenant, "dlq", thread) }

// AllDeadLetters is what the DLQ stream listens on.
func (s Subjects) AllDeadLetters() string { return s.join("*", "dlq", "*") }

// republish are a plane's source and destination for a stream's RePublish: the same tokens on another plane.
func (s Subjects) republish(from, to string) (source, destination string) {
	return s.join("*", from, ">"), s.root + ".{{wildcard(1)}}." + to + ".>"
}

// tokens are the tokens of a subject of this cell after the plane.
func (s Subjects) tokens(subject string) (tenant string, rest []string, ok bool) {
	tail, ok := strings.CutPrefix(subject, s.root+".")
	if !ok {
		return "", nil, false
	}
	t := strings.Split(tail, ".")
	if len(t) < 3 {
		return "", nil, false
	}
	return t[0], t[2:], true
}

func orAny(token string) string {
	if token == "" {
		return "*"
	}
	return token
}
