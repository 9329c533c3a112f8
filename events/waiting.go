package events

import (
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/schemas"
)

// minLimited is the least number of commands that are tried again at a time; see limited.
const minLimited = 4

// limited are the queues whose first command waits until a limit of the cell has room for it, the one that was tried last at the end. The
// cell does not report room, and each try costs requests: only a few are tried at a time, and twice as many as soon as all of them succeed.
type limited struct {
	queues []*threadQueue
	tries  int
	failed bool // one of the last tries
}

func (l *limited) add(q *threadQueue) {
	l.queues = append(l.queues, q)
	l.failed = true
}

// take removes the queues to try now. It is called every holdTick.
func (l *limited) take() (due []*threadQueue) {
	if l.tries *= 2; l.failed || l.tries < minLimited {
		l.tries = minLimited
	}
	l.failed = false
	n := min(l.tries, len(l.queues))
	due, l.queues = l.queues[:n:n], l.queues[n:]
	return due
}

// reportWaiting reports to the caller of a command once why the command waits, if that may take long: for a worker that serves it, or for
// a limit of the cell.
func (d *dispatcher) reportWaiting(h *unacked, c schemas.Delivery, out outcome) {
	var prefix, key string
	switch {
	case out.Reason == nil || c.Inbox == "":
		return
	case out.wait == waitServer:
		prefix, key = "no live worker can run the command, which waits in the queue: ", out.Reason.Message
	case out.wait == waitLimit, out.wait == waitRoom && out.Reason.Code == schemas.CodeLimitExceeded: // the text has amounts, which change
		prefix, key = "the command waits in the queue: ", string(out.Reason.Code)
	default:
		return
	}
	if h.reported == key {
		return
	}
	h.reported = key
	ev := &schemas.Event{
		SpecVersion: schemas.EventSpecVersion, ID: ulid.Make().String(), Source: d.listener.worker, Type: schemas.TypeCommandWaiting,
		Subject: c.Process, Time: time.Now().UTC(), Tenant: c.Tenant, Thread: c.Thread, Process: c.Process,
		Template: c.Command.Template, Origin: c.Command.Origin,
	}
	why := *out.Reason
	why.Message = prefix + why.Message
	if ev.SetData(&why) == nil {
		_ = (&Worker{conn: d.listener.conn}).Answer(c.Inbox, ev) // the caller may be gone
	}
}
