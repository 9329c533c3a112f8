package run

import (
	"context"
	"errors"

	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/schemas"
)

// errAnswered ends a claim: a record answers the command.
var errAnswered = errors.New("a record answers the command")

// answered returns the record that answers a command, and errAnswered, before a session is made for the command. A late copy of a
// command that has ended must not make one: its thread may have none any more. It returns nil when there is no such record. Errors:
// unavailable.
func (ac *Acceptor) answered(ctx context.Context, d *schemas.Delivery) (*schemas.Event, error) {
	last, err := ac.cfg.Records.Last(ctx, d.Tenant, d.Thread, d.Process)
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if s := collide(collisionOf(d, last, 0)); s != stepReplay && s != stepConflict {
		return nil, nil
	}
	return last, errAnswered
}

// collisionOf gathers the facts of a command whose key has this record. epoch is that of the thread here.
func collisionOf(d *schemas.Delivery, last *schemas.Event, epoch uint64) collision {
	of, err := recordOf(last)
	return collision{
		unreadable: err != nil, same: of.Fingerprint == d.Fingerprint, last: last.Type,
		// Only this worker can have written under this epoch, and it does not run the process.
		foreign: of.Epoch > epoch,
		safe:    d.Command.Exec != nil && d.Command.Exec.Retry == schemas.RetrySafe,
		again:   of.runsAgain(), answered: of.answers(d, last),
	}
}

// answerFrom answers a command from the record of its key: by a replay, or with the conflict.
func (ac *Acceptor) answerFrom(d *schemas.Delivery, last *schemas.Event, s step) schemas.Verdict {
	if s != stepReplay {
		return ac.refuse(d, stepConflict, schemas.KeyConflict(d.Thread))
	}
	ac.publisher.Answer(d.Inbox, last)
	publisher.LogCommand(ac.publisher.Log.Info(), d.Process, d.Thread, ac.sessions.IDOf(d.Tenant, d.Thread), d.Attempt).
		Str("record", string(last.Type)).Msg("command_replayed")
	return verdict(s, "", nil)
}

// onDuplicateKey answers a command whose key was taken.
func (ac *Acceptor) onDuplicateKey(ctx context.Context, d *schemas.Delivery, t *session.Thread) schemas.Verdict {
	last, err := ac.cfg.Records.Last(ctx, d.Tenant, d.Thread, d.Process)
	c := collision{unreadable: true}
	if err == nil {
		c = collisionOf(d, last, t.Session.Epoch)
	}
	switch s := collide(c); s {
	case stepReplay, stepConflict:
		return ac.answerFrom(d, last, s)
	case stepLose:
		lost, err := ac.runs.RecordLost(ctx, last)
		if err != nil {
			// Another worker was first, or the stream is out of reach: the record answers the next delivery.
			return ac.refuse(d, stepDecline, schemas.AsError(err))
		}
		ac.publisher.Answer(d.Inbox, lost)
		return verdict(s, "", nil)
	case stepRerun:
		return ac.accept(ctx, d, t, last.Seq)
	default:
		if err == nil {
			err = schemas.Errorf(schemas.CodeUnavailable, "process %s belongs to a later owner of thread %s", d.Process, d.Thread)
		}
		return ac.refuse(d, stepDecline, schemas.AsError(err))
	}
}
