package publisher

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/schemas"
)

// Events stores events that are no process records.
type Events interface {
	Publish(ctx context.Context, ev *schemas.Event) error
}

// Publisher reports what a worker does, until its lease is lost. All fields are required.
type Publisher struct {
	// Worker is the worker's id.
	Worker string
	// LeaseHeld reports, by this machine's own clock, whether the worker's lease has not lapsed.
	LeaseHeld func() bool
	Events    Events
	// Send sends an event to a caller's inbox.
	Send func(inbox string, ev *schemas.Event) error
	Log  zerolog.Logger

	fenced atomic.Bool
}

// Fence marks the lease as lost, for good.
func (p *Publisher) Fence() { p.fenced.Store(true) }

// Fenced reports whether the lease is lost: another worker may own what this one ran.
func (p *Publisher) Fenced() bool { return p.fenced.Load() || !p.LeaseHeld() }

// CheckLease returns nil while the worker holds its lease. Errors: lost.
func (p *Publisher) CheckLease() error {
	if p.Fenced() {
		return schemas.LeaseLost(p.Worker)
	}
	return nil
}

// About is what an event is about: a thread, and what of it is known. Origin is that of the command from which the event follows.
type About struct {
	Tenant, Thread, Session, Process, Template string
	Origin                                     schemas.Origin
}

// AboutOf is what an event is about.
func AboutOf(ev *schemas.Event) About {
	return About{ev.Tenant, ev.Thread, ev.Session, ev.Process, ev.Template, ev.Origin}
}

// Event makes an event of this worker. data must be one of the types of package schemas, which cannot fail to encode.
func (p *Publisher) Event(typ schemas.EventType, a About, data any) *schemas.Event {
	ev := &schemas.Event{
		SpecVersion: schemas.EventSpecVersion, ID: ulid.Make().String(), Source: p.Worker, Type: typ, Subject: cmp.Or(a.Process, a.Thread),
		Time: time.Now().UTC(), Tenant: a.Tenant, Thread: a.Thread, Session: a.Session, Process: a.Process,
		Template: a.Template, Origin: a.Origin,
	}
	if err := ev.SetData(data); err != nil {
		_ = ev.SetData(schemas.AsError(err)) // it holds strings alone
	}
	return ev
}

// Publish stores an event on which no decision depends: a failure is logged. A fenced worker publishes nothing.
func (p *Publisher) Publish(ctx context.Context, ev *schemas.Event) {
	if p.Fenced() {
		return
	}
	if err := p.Events.Publish(ctx, ev); err != nil {
		p.Log.Warn().Err(err).Str("type", string(ev.Type)).Str("thread", ev.Thread).Msg("event not published")
	}
}

// Answer sends an event to a caller's inbox; an empty inbox gets nothing. A fenced worker only refuses commands: what became of
// an accepted command is for the thread's owner to report.
func (p *Publisher) Answer(inbox string, ev *schemas.Event) {
	if inbox == "" || (p.Fenced() && ev.Type != schemas.TypeProcessRejected) {
		return
	}
	if err := p.Send(inbox, ev); err != nil {
		p.Log.Debug().Err(err).Str("process", ev.Process).Msg("answer")
	}
}

// LogSession adds the fields that every log line of a session has.
func LogSession(line *zerolog.Event, thread, session string) *zerolog.Event {
	return line.Str("thread", thread).Str("session_id", session)
}

// LogCommand adds the fields that every log line of a command has.
func LogCommand(line *zerolog.Event, process, thread, session string, attempt int) *zerolog.Event {
	return LogSession(line.Str("command_id", process), thread, session).Int("attempt", attempt)
}
