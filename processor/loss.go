package processor

import (
	"context"

	"github.com/sluice-dev/sluice/schemas"
)

// lose records that a process is lost: it was accepted, and whoever ran it is gone.
func (w *Worker) lose(ctx context.Context, last *schemas.Event) (*schemas.Event, error) {
	r := &schemas.Result{
		Process: last.Process, Thread: last.Thread, Reason: schemas.ReasonLost, ExitCode: schemas.ExitSluiceFailed,
		Timestamp: last.Time, Worker: last.Source,
		Error: schemas.Errorf(schemas.CodeLost, "worker %s went away while process %s ran: how it ended is not known, and it was not run again; send it with a new key, or with retry \"safe\"", last.Source, last.Process),
	}
	switch last.Type {
	case schemas.TypeProcessAccepted:
		var a schemas.Accepted
		if err := last.Decode(&a); err != nil {
			return nil, err
		}
		r.Command, r.Args, r.ArgsTruncated, r.Fingerprint, r.Epoch = a.Command, a.Args, a.ArgsTruncated, a.Fingerprint, a.Epoch
	default:
		var s schemas.Started
		if err := last.Decode(&s); err != nil {
			return nil, err
		}
		r.Command, r.Fingerprint, r.Epoch = s.Command, s.Fingerprint, s.Epoch
	}
	rng, stdout, stderr, err := w.cfg.History.Stored(ctx, last.Tenant, last.Thread, last.Process)
	if err != nil {
		return nil, err
	}
	r.Log, r.StdoutBytes, r.StderrBytes = rng, stdout, stderr
	r.StdoutTruncated, r.StderrTruncated = stdout > 0, stderr > 0
	ev := w.event(schemas.TypeProcessLost, last.Tenant, last.Thread, last.Session, last.Process, r)
	seq, err := w.cfg.Records.Append(ctx, ev, last.Seq)
	if err != nil {
		return nil, err
	}
	w.sawSeq(seq)
	w.cfg.Log.Warn().Str("command_id", last.Process).Str("thread", last.Thread).Str("session_id", last.Session).Str("dead_worker", last.Source).Str("reason", string(schemas.ReasonLost)).Msg("command_lost")
	return ev, nil
}
