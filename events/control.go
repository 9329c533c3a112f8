package events

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// Verb says what a control message asks for. It is the last token of the subject.
type Verb string

// Verbs for a running process. The answer is an empty message, or an Error in JSON.
const (
	VerbSignal Verb = "signal" // body: schemas.SignalRequest
	VerbKill   Verb = "kill"   // body: schemas.KillRequest
	VerbStdin  Verb = "stdin"  // body: raw bytes; headers: the writer, its offset, and whether it is the end
	VerbResize Verb = "resize" // body: schemas.TerminalSize
)

// Verbs for a session. Their subject has no process. The answer is a schemas.SessionReply.
const (
	VerbStop  Verb = "stop"  // body: schemas.StopRequest
	VerbRenew Verb = "renew" // body: schemas.RenewRequest
	VerbStart Verb = "start" // body: schemas.StartRequest
	VerbSync  Verb = "sync"  // body: schemas.SyncRequest
)

// VerbService is for the services of a thread. Its subject has no process. The body is a schemas.ServiceRequest, the answer a
// schemas.ServiceReply.
const VerbService Verb = "service"

// VerbConnect is for connections to ports in a thread's sandbox. Its subject has no process. The body is a schemas.ConnectRequest, the answer
// a schemas.ConnectReply.
const VerbConnect Verb = "connect"

// VerbFile is the verb for the files of the thread's workspace. In place of the process its subject has the transfer. The body is a
// schemas.FileRequest or, with the header of an offset, a piece of content. The answer is a piece of content with that header, or else a
// schemas.FileReply.
const VerbFile Verb = "file"

// MaxStdinPiece is the most bytes of standard input in one message.
const MaxStdinPiece = 256 << 10

// handleControl handles a control message for a thread that this worker owns.
func (l *Listener) handleControl(m *nats.Msg) {
	tenant, thread, process, verb, ok := l.conn.subjects.parseControl(m.Subject)
	switch {
	case !ok:
	case verb == VerbFile:
		l.handleFile(m, tenant, thread, process)
	case process == noProcess && (verb == VerbStop || verb == VerbRenew || verb == VerbStart || verb == VerbSync):
		l.handleSession(m, tenant, thread, verb)
	case process == noProcess && verb == VerbService:
		l.handleService(m, tenant, thread)
	case process == noProcess && verb == VerbConnect:
		l.handleConnect(m, tenant, thread)
	default:
		l.handleProcess(m, tenant, thread, process, verb)
	}
}

// handleProcess handles a control message for a process.
func (l *Listener) handleProcess(m *nats.Msg, tenant, thread, process string, verb Verb) {
	reply := func(err error) {
		var body []byte
		if err != nil {
			body, _ = json.Marshal(schemas.AsError(err)) // an Error holds only strings
		}
		l.inboxes.respond(tenant, m, nil, body)
	}
	if err := schemas.CheckID("process", process); err != nil {
		reply(err)
		return
	}
	ctl := schemas.Control{Tenant: tenant, Thread: thread, Process: process}
	var err error
	switch verb {
	case VerbSignal:
		ctl.Signal, err = schemas.DecodeSignalRequest(m.Data)
	case VerbKill:
		// The decoder rejects a misspelled grace: to ignore it would mean SIGKILL at once.
		ctl.Kill, err = schemas.DecodeKillRequest(m.Data)
	case VerbStdin:
		ctl.Stdin = &schemas.StdinPiece{Data: m.Data, End: m.Header.Get(headerStdinEnd) != ""}
		ctl.Stdin.Offset, err = strconv.ParseInt(m.Header.Get(headerOffset), 10, 64)
		if err == nil && (ctl.Stdin.Offset < 0 || ctl.Stdin.Offset > math.MaxInt64-int64(len(m.Data))) {
			err = fmt.Errorf("offset %d is out of range", ctl.Stdin.Offset)
		}
		if ctl.Stdin.Writer = m.Header.Get(headerWriter); err == nil && ctl.Stdin.Writer != "" {
			err = schemas.CheckID("writer", ctl.Stdin.Writer)
		}
	case VerbResize:
		ctl.Resize, err = schemas.DecodeTerminalSize(m.Data)
	default:
		reply(schemas.Errorf(schemas.CodeInvalidArgument, "unknown control verb %q", string(verb)))
		return
	}
	if err != nil {
		reply(schemas.Errorf(schemas.CodeInvalidArgument, "%s: decode the control message: %w", verb, err))
		return
	}
	handler, ctx := l.target()
	handler.HandleControl(ctx, ctl, reply)
}

// handleSession handles a request about the session of a thread.
func (l *Listener) handleSession(m *nats.Msg, tenant, thread string, verb Verb) {
	reply := func(r schemas.SessionReply) {
		body, err := json.Marshal(r)
		if err != nil {
			return // cannot happen: it holds only strings and numbers
		}
		l.inboxes.respond(tenant, m, nil, body)
	}
	req := schemas.SessionControl{Tenant: tenant, Thread: thread, Caller: m.Reply}
	body := m.Data
	if len(body) == 0 {
		body = []byte("{}")
	}
	var err error
	switch verb {
	case VerbStop:
		req.Stop, err = schemas.DecodeStopRequest(body)
	case VerbRenew:
		req.Renew, err = schemas.DecodeRenewRequest(body)
	case VerbStart:
		req.Start, err = schemas.DecodeStartRequest(body)
	case VerbSync:
		req.Sync, err = schemas.DecodeSyncRequest(body)
	}
	if err != nil {
		reply(schemas.SessionReply{Error: schemas.AsError(err)})
		return
	}
	handler, ctx := l.target()
	handler.HandleSession(ctx, req, reply)
}
