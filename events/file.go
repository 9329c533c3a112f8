package events

import (
	"context"
	"encoding/json"
	"math"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// handleFile handles a message about the files of a thread that this worker owns.
func (l *Listener) handleFile(m *nats.Msg, tenant, thread, transfer string) {
	offset := m.Header.Get(headerOffset)
	reply := func(a schemas.FileAnswer) { l.answerFile(tenant, m, offset, a) }
	msg := schemas.FileMessage{Tenant: tenant, Thread: thread, Transfer: transfer, Data: m.Data, End: m.Header.Get(headerStdinEnd) != ""}
	err := schemas.CheckID("transfer", transfer)
	switch {
	case err != nil:
	case offset == "":
		msg.Data = nil
		if msg.Request, err = schemas.DecodeFileRequest(m.Data); err == nil {
			msg.Request.Origin = withTrace(msg.Request.Origin, m.Header)
		}
	default:
		msg.Offset, err = strconv.ParseInt(offset, 10, 64)
		if err != nil || msg.Offset < 0 || msg.Offset > math.MaxInt64-int64(len(m.Data)) {
			err = schemas.Errorf(schemas.CodeInvalidArgument, "offset: %.40q is not a number of bytes", offset).With("path", "offset")
		}
	}
	if err != nil {
		reply(schemas.FileAnswer{Reply: &schemas.FileReply{Error: schemas.AsError(err)}})
		return
	}
	handler, _ := l.target()
	handler.HandleFile(msg, reply)
}

func (l *Listener) answerFile(tenant string, m *nats.Msg, offset string, a schemas.FileAnswer) {
	if a.Reply != nil {
		body, err := json.Marshal(a.Reply)
		if err != nil {
			return // cannot happen: it holds only strings, numbers and times
		}
		l.inboxes.respond(tenant, m, nil, body)
		return
	}
	header := nats.Header{headerOffset: {offset}}
	if a.End {
		header.Set(headerStdinEnd, "true")
	}
	l.inboxes.respond(tenant, m, header, a.Data)
}

// FileCall is a message about files that was sent, and may be sent again. Its methods are for one goroutine.
type FileCall struct {
	caller  *Caller
	thread  string
	msg     *nats.Msg
	answers <-chan *nats.Msg
	refused context.Context // ends when the server refuses the message
	done    func()
}

// SendFile sends a message about files to the owner of its thread. Messages are delivered in the order of the calls. Close must be called.
// Errors: unavailable, too_large.
func (c *Caller) SendFile(m schemas.FileMessage) (*FileCall, error) {
	msg := &nats.Msg{Subject: c.conn.subjects.Control(m.Tenant, m.Thread, m.Transfer, VerbFile), Data: m.Data}
	if m.Request != nil {
		var err error
		if msg.Data, err = json.Marshal(m.Request); err != nil {
			return nil, schemas.Errorf(schemas.CodeInternal, "encode the file request: %w", err)
		}
	} else {
		msg.Header = nats.Header{headerOffset: {strconv.FormatInt(m.Offset, 10)}}
		if m.End {
			msg.Header.Set(headerStdinEnd, "true")
		}
	}
	k := &FileCall{caller: c, thread: m.Thread, msg: msg}
	var closeInbox, unwatch func()
	msg.Reply, k.answers, closeInbox = c.conn.inbox.open()
	k.refused, unwatch = c.conn.refusals.watch(context.Background(), msg.Subject)
	k.done = func() {
		unwatch()
		closeInbox()
	}
	if err := k.Send(); err != nil {
		k.done()
		return nil, err
	}
	return k, nil
}

// Send sends the message again. Errors: those of SendFile.
func (k *FileCall) Send() error {
	return wrap(k.caller.conn.nc.PublishMsg(k.msg), "thread "+k.thread+": files")
}

// Wait waits for an answer. The error of a reply is in the answer. Errors: not_found with the detail [DetailNoOwner] when the thread has no
// owner, permission_denied when NATS refuses the message, ctx's.
func (k *FileCall) Wait(ctx context.Context) (schemas.FileAnswer, error) {
	select {
	case m := <-k.answers:
		if isNoResponders(m) {
			return schemas.FileAnswer{}, schemas.Errorf(schemas.CodeNotFound, "no worker owns thread %s", k.thread).With(DetailNoOwner, "true")
		}
		return fileAnswer(m)
	case <-k.refused.Done():
		return schemas.FileAnswer{}, wrap(context.Cause(k.refused), "thread "+k.thread+": files")
	case <-ctx.Done():
		return schemas.FileAnswer{}, wrap(ctx.Err(), "thread "+k.thread+": files")
	}
}

// Close ends the call. The operation goes on.
func (k *FileCall) Close() { k.done() }

// DetailNoOwner is the detail of an error that no worker owns the thread.
const DetailNoOwner = "no_owner"

func fileAnswer(m *nats.Msg) (schemas.FileAnswer, error) {
	if m.Header.Get(headerOffset) != "" {
		return schemas.FileAnswer{Data: m.Data, End: m.Header.Get(headerStdinEnd) != ""}, nil
	}
	a := schemas.FileAnswer{Reply: new(schemas.FileReply)}
	if err := json.Unmarshal(m.Data, a.Reply); err != nil {
		return a, schemas.Errorf(schemas.CodeInternal, "decode the answer: %w", err)
	}
	return a, nil
}
