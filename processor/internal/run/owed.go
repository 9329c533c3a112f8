package run

import (
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/sluice-dev/sluice/schemas"
)

// unknownOutcome reports that a record may have been written, or may yet be: its ack did not come.
func unknownOutcome(err error) bool {
	return errors.Is(err, schemas.ErrUnavailable) || errors.Is(err, schemas.ErrDeadlineExceeded)
}

// settleAcceptance takes over a run whose acceptance has an unknown outcome. No other worker would end a process that turns out to be
// accepted, so it writes the record until it is there, and then the process runs. Until then the run is here, and sends no answer; a
// message lets the next ones have their turn.
func (rs *Runs) settleAcceptance(run *Run, after uint64) {
	if run.turn != nil {
		rs.ending.Go(run.turn.Done)
	}
	seq, err := rs.recorder.recordAcceptance(run, after)
	if err != nil {
		if !errors.Is(err, schemas.ErrConflict) {
			rs.owe(run)
			rs.cfg.Handover.add(run, nil)
		}
		rs.leave(run)
		run.reportEnd(&schemas.Result{Error: schemas.AsError(err)})
		return
	}
	if run.turn != nil {
		run.turn = rs.newTurn(run)
		run.turn.LineUp()
	}
	rs.SawSeq(seq)
	run.seq = seq
	run.unsettled.Store(false)
	rs.runToEnd(run, func(result *schemas.Result) error { return rs.execute(run, result) })
}

// recordAcceptance writes the first record of a run after the one at this sequence, which may have been tried before. Errors: conflict
// when the key got another record, lost, the last one when it gives up.
func (rec *recorder) recordAcceptance(run *Run, after uint64) (seq uint64, err error) {
	ctx := rec.background.Context()
	policy := backoff.WithContext(backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond), backoff.WithMaxInterval(time.Second),
		backoff.WithMaxElapsedTime(rec.timeouts.Record)), ctx)
	err = backoff.Retry(func() (err error) {
		if err := rec.publisher.CheckLease(); err != nil {
			return backoff.Permanent(err)
		}
		if seq, err = rec.records.Append(ctx, run.accepted, after); !errors.Is(err, schemas.ErrConflict) {
			return err
		}
		switch last, readErr := rec.last(run); {
		case readErr != nil, last.Seq <= after:
			return err
		case last.ID != run.accepted.ID:
			return backoff.Permanent(err)
		default:
			seq = last.Seq
			return nil
		}
	}, policy)
	return seq, err
}
