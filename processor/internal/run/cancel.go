package run

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// Canceler keeps canceled commands from being accepted.
type Canceler struct{ cfg Config }

// NewCanceler returns the canceler of a worker.
func NewCanceler(cfg Config) *Canceler { return &Canceler{cfg} }

// Cancel records that a command is canceled, by compare-and-swap against its acceptance: this record then answers the command. runs
// says that the command was accepted before, and its process has not ended. Without a fingerprint nothing is recorded. Errors:
// conflict, limit_exceeded, unavailable and those of the records; the command may still be accepted then.
func (c *Canceler) Cancel(ctx context.Context, req schemas.Cancel) (runs bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Timeouts.Accept)
	defer cancel()
	if req.Fingerprint != "" {
		if err := c.record(ctx, &req, 0); !errors.Is(err, schemas.ErrConflict) {
			return false, err
		}
	}
	last, err := c.cfg.Records.Last(ctx, req.Tenant, req.Thread, req.Process)
	switch {
	case errors.Is(err, schemas.ErrNotFound) && req.Fingerprint == "":
		return false, nil
	case err != nil:
		return false, err
	}
	of, err := recordOf(last)
	switch {
	case err != nil, req.Fingerprint != "" && of.Fingerprint != req.Fingerprint:
		return false, nil // no command is accepted after such a record
	case !last.Type.Terminal():
		return true, nil
	}
	again, err := c.runsAgain(ctx, &of, last)
	if err != nil || !again || req.Fingerprint == "" {
		return false, err
	}
	return false, c.record(ctx, &req, last.Seq)
}

// runsAgain reports whether the command may be accepted again after this end.
func (c *Canceler) runsAgain(ctx context.Context, of *identity, end *schemas.Event) (bool, error) {
	if end.Type != schemas.TypeProcessLost {
		return of.runsAgain(), nil
	}
	first, err := c.cfg.History.Accepted(ctx, end.Tenant, end.Thread, end.Process)
	if errors.Is(err, schemas.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var accepted schemas.Accepted
	return first.Decode(&accepted) == nil && accepted.Retry == schemas.RetrySafe, nil
}

func (c *Canceler) record(ctx context.Context, req *schemas.Cancel, after uint64) error {
	p, about := c.cfg.Publisher, c.cfg.Sessions.About(req.Tenant, req.Thread)
	about.Process = req.Process
	ev := p.Event(schemas.TypeProcessRejected, about, &schemas.Result{
		Process: req.Process, Thread: req.Thread, Reason: schemas.ReasonRejected, ExitCode: schemas.ExitSluiceFailed,
		Timestamp: time.Now().UTC(), Worker: p.Worker, Fingerprint: req.Fingerprint,
		Error: schemas.Errorf(schemas.CodeCanceled, "process %s was canceled before a worker accepted it: it did not run", req.Process),
	})
	_, err := c.cfg.Records.Append(ctx, ev, after)
	if err == nil {
		p.Log.Info().Str("command_id", req.Process).Str("thread", req.Thread).Msg("command_canceled")
	}
	return err
}
