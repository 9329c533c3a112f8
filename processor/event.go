package processor

import (
	"encoding/json"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/schemas"
)

// event makes an event of this worker. data must be one of the types of package schemas, which cannot fail to encode.
func (w *Worker) event(typ schemas.EventType, tenant, thread, session, process string, data any) *schemas.Event {
	subject := process
	if subject == "" {
		subject = thread
	}
	ev := &schemas.Event{
		SpecVersion: schemas.EventSpecVersion, ID: ulid.Make().String(), Source: w.cfg.Worker, Type: typ, Subject: subject,
		Time: time.Now().UTC(), Tenant: tenant, Thread: thread, Session: session, Process: process,
	}
	if err := ev.SetData(data); err != nil {
		_ = ev.SetData(schemas.AsError(err)) // strings alone
	}
	return ev
}

// refusal is the answer to a command that was not accepted. It is no record, and is not stored.
func (w *Worker) refusal(d *schemas.Delivery, why *schemas.Error) *schemas.Event {
	r := &schemas.Result{Thread: d.Thread, Reason: schemas.ReasonRejected, ExitCode: schemas.ExitSluiceFailed, Timestamp: time.Now().UTC(), Error: why, Worker: w.cfg.Worker}
	r.Process = d.Process
	if d.Command != nil && d.Command.Exec != nil {
		r.Command = d.Command.Exec.Command
	}
	return w.event(schemas.TypeProcessRejected, d.Tenant, d.Thread, "", r.Process, r)
}

// fit cuts the output kept in a result until its record has at most limit bytes. What a JSON string makes of output cannot be
// told beforehand: a control character takes six bytes.
func fit(r *schemas.Result, limit int64) {
	const (
		envelope = 4 << 10 // the event around the result, and the message's headers
		rest     = 64 << 10
		swelling = 6 // a control character becomes \u0000
	)
	if int64(len(r.Stdout)+len(r.Stderr)) <= (limit-envelope-rest)/swelling {
		return // whatever it holds, it fits: most results are spared being encoded twice
	}
	for {
		body, err := json.Marshal(r)
		if err != nil || int64(len(body)) <= limit-envelope {
			return
		}
		stream, kept, total := schemas.Stdout, r.Stdout, r.StdoutBytes
		if len(r.Stderr) > len(r.Stdout) {
			stream, kept, total = schemas.Stderr, r.Stderr, r.StderrBytes
		}
		p, err := r.Output(stream)
		if err != nil || len(kept) == 0 {
			return
		}
		r.SetOutput(stream, p[:len(p)*3/4], total)
	}
}
