package events

import (
	"cmp"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

// Subjects builds every subject of one cell: sluice.v1.<cell>.<tenant>.<plane>.… Each plane has a form to publish on and
// a form to subscribe to. No other code builds a subject.
//
// Ids become tokens, so callers must pass valid ids; see [schemas.ValidID]. [StreamSubjects] are those of whole streams.
type Subjects struct {
	root string // sluice.v1.<cell>
	cell string
}

// NewSubjects builds the subjects of a cell, which must be a valid id.
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

// noProcess is the process token of a subject that concerns no process.
const noProcess = "_"

// Command is the subject of a durable command for a thread.
func (s Subjects) Command(tenant, thread string, op schemas.Op) string {
	return s.join(tenant, "cmd", thread, string(op))
}

// ParseCommand reads tenant, thread and operation from the subject of a stored command, a forwarded one or an rpc subject.
func (s Subjects) ParseCommand(subject string) (tenant, thread string, op schemas.Op, ok bool) {
	rest, ok := strings.CutPrefix(subject, s.root+".")
	if !ok {
		return "", "", "", false
	}
	t := strings.Split(rest, ".")
	switch {
	case len(t) == 5 && t[1] == "fwd":
		return t[0], t[3], schemas.Op(t[4]), true
	case len(t) == 5 && t[0] == "cmdp":
		return t[2], t[3], schemas.Op(t[4]), true
	case len(t) == 4 && t[1] == "rpc":
		return t[0], t[2], schemas.Op(t[3]), true
	default:
		return "", "", "", false
	}
}

// RPC is the subject of a command that goes directly to the owner of the thread.
func (s Subjects) RPC(tenant, thread string, op schemas.Op) string {
	return s.join(tenant, "rpc", thread, string(op))
}

// ThreadRPCs is the subscription of a thread's owner for commands.
func (s Subjects) ThreadRPCs(tenant, thread string) string { return s.join(tenant, "rpc", thread, "*") }

// Forward is the subject of what one worker passes on to another, the owner of a thread by KV. It names the worker: an owner that
// has restarted is not subscribed to its threads. op is that of a command, or the verb place.
func (s Subjects) Forward(tenant, worker, thread, op string) string {
	return s.join(tenant, "fwd", worker, thread, op)
}

// WorkerForwards is the subscription of a worker for what other workers pass on to it, for every tenant.
func (s Subjects) WorkerForwards(worker string) string { return s.join("*", "fwd", worker, "*", "*") }

// Room is the subject of a worker's report of room, to all workers.
func (s Subjects) Room(worker string) string {
	return s.Forward(noProcess, worker, noProcess, roomVerb)
}

// Control is the subject of a control message; see [Verb].
func (s Subjects) Control(tenant, thread, process string, verb Verb) string {
	return s.join(tenant, "ctl", thread, process, string(verb))
}

// ThreadControls is the subscription of a thread's owner for control messages.
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

// Event is the subject of an event. The type's two parts are two tokens, so that process.* selects the records of a process.
func (s Subjects) Event(tenant, thread, process string, typ schemas.EventType) string {
	return s.join(tenant, "evt", thread, cmp.Or(process, noProcess), string(typ))
}

// Record selects every record of a process. It is the filter of each compare-and-swap, so it must match the subjects that
// [Subjects.Event] builds.
func (s Subjects) Record(tenant, thread, process string) string {
	return s.join(tenant, "evt", thread, process, "process", "*")
}

// AnyRecord selects the records of a process by its id alone.
func (s Subjects) AnyRecord(tenant, process string) string {
	return s.join(tenant, "evt", "*", process, "process", "*")
}

// SandboxEvents selects the events of a thread's sandboxes.
func (s Subjects) SandboxEvents(tenant, thread string) string {
	return s.join(tenant, "evt", thread, noProcess, "sandbox", "*")
}

// Events selects the events of a tenant. An empty thread or process matches all.
func (s Subjects) Events(tenant, thread, process string) string {
	return s.join(tenant, "evt", orAny(thread), orAny(process), "*", "*")
}

// Feed selects the live copies of [Subjects.Events].
func (s Subjects) Feed(tenant, thread, process string) string {
	return s.join(tenant, "feed", orAny(thread), orAny(process), "*", "*")
}

// Log is the subject of output. An empty stream selects both streams of a process.
func (s Subjects) Log(tenant, thread, process string, stream schemas.Stream) string {
	return s.join(tenant, "log", thread, process, orAny(string(stream)))
}

// TenantLogs selects the output of a tenant.
func (s Subjects) TenantLogs(tenant string) string { return s.join(tenant, "log", ">") }

// Tail selects the live copies of the output of a process.
func (s Subjects) Tail(tenant, thread, process string) string {
	return s.join(tenant, "tail", thread, process, "*")
}

// Message is the subject of a message of a conversation.
func (s Subjects) Message(tenant, thread, process string, role schemas.Role) string {
	return s.join(tenant, "msg", thread, process, string(role))
}

// Messages selects the messages of a thread.
func (s Subjects) Messages(tenant, thread string) string {
	return s.join(tenant, "msg", thread, "*", "*")
}

// Said selects the live copies of [Subjects.Messages].
func (s Subjects) Said(tenant, thread string) string { return s.join(tenant, "said", thread, "*", "*") }

// Directions of a tunnel.
const (
	tunnelUp   = "up"   // to the sandbox
	tunnelDown = "down" // from it
)

// Tunnel is the subject of one direction of a forwarded connection.
func (s Subjects) Tunnel(tenant, thread, connection, direction string) string {
	return s.join(tenant, "tun", thread, connection, direction)
}

// API is the subject of a request that any worker may answer.
func (s Subjects) API(tenant, verb string) string { return s.join(tenant, "api", verb) }

// Workspaces is the subject of requests about the workspaces on a worker's disk; * for every tenant.
func (s Subjects) Workspaces(tenant, worker string) string {
	return s.join(tenant, "api", "workspace", worker)
}

// Processes is the subject of requests for the processes that a worker runs; * for every tenant.
func (s Subjects) Processes(tenant, worker string) string {
	return s.join(tenant, "api", "processes", worker)
}

// AnyAPI is the subscription of all workers for a verb, for every tenant.
func (s Subjects) AnyAPI(verb string) string { return s.join("*", "api", verb) }

// DeadLetter is the subject of a command that can never be accepted.
func (s Subjects) DeadLetter(tenant, thread string) string { return s.join(tenant, "dlq", thread) }

// tokens splits a subject of this cell into the tenant and the tokens after the plane.
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

func orAny(token string) string { return cmp.Or(token, "*") }

// Headers of messages.
const (
	headerInbox    = "Sluice-Inbox"   // the inbox for a command's events: JetStream uses the reply subject for its own ack
	headerSent     = "Sluice-Sent"    // when CMD stored a forwarded command
	headerAttempt  = "Sluice-Attempt" // how often a forwarded command was delivered, from 1
	headerVerdict  = "Sluice-Verdict" // what a worker made of a forwarded command: done, retry, dead, full, decline or limit
	headerRoom     = "Sluice-Room"    // set when a thread is placed for a command: a worker without room for it declines
	headerTenant   = "Sluice-Tenant"  // the tenants that a report of room is for; all without one
	headerType     = "Sluice-Type"    // the type of an event, so that a reader can skip it without decoding
	headerWorker   = "Sluice-Worker"  // the worker that published an event
	headerSealed   = "Sluice-Sealed"  // the id of the key that a command in CMD is sealed with
	headerReason   = "Sluice-Reason"  // why a command is a dead letter
	headerStdinEnd = "Sluice-End"     // set on the last piece of standard input
	headerWriter   = "Sluice-Writer"  // who writes a piece of standard input, or deletes a session
	headerChunk    = "Sluice-Chunk"   // the number of a chunk within its process, from 1
	headerOffset   = "Sluice-Offset"  // the bytes of the stream before a chunk, or before a piece of standard input
	headerEpoch    = "Sluice-Epoch"   // the epoch of the session that wrote a chunk
	headerAck      = "Sluice-Ack"     // the bytes of a forwarded connection that its other end has written
	headerRepeat   = "Sluice-Repeat"  // from where on the bytes of a forwarded connection are to be sent again
	headerDone     = "Sluice-Done"    // set once an end of a forwarded connection needs nothing more
	headerReset    = "Sluice-Reset"   // why a forwarded connection was cut
	headerStored   = "Sluice-Stored"  // the number up to which LOG had all chunks of the run when a chunk was sent

	// Those of nats-server, on stored messages and their live copies.
	headerSequence     = "Nats-Sequence"
	headerLastSequence = "Nats-Last-Sequence"
	headerSubject      = "Nats-Subject"
	headerPending      = "Nats-Num-Pending"
	headerTimestamp    = "Nats-Time-Stamp"
)
