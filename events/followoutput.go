package events

import (
	"context"

	"github.com/sluice-dev/sluice/schemas"
)

// FollowOutput passes the output of a process at or after a sequence of LOG to fn, in order, until the process has ended and all of its
// output is read, and returns its result. last is its newest record, as the caller knows it. Errors: fn's, ctx's, unavailable.
func (r *Reader) FollowOutput(ctx context.Context, ref schemas.ProcessRef, last *schemas.Event, from uint64, fn func(schemas.Chunk) error) (*schemas.Result, error) {
	if last.Type.Terminal() {
		result := new(schemas.Result)
		if err := last.Decode(result); err != nil || result.Log == nil {
			return result, err
		}
		_, err := r.ReadLog(ctx, ref, "", from, result.Log.LastSeq, fn)
		return result, err
	}
	f, err := r.FollowLog(ref, from)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// The server must have the subscription before the history is read, or a chunk between the two is missed.
	if err := f.Flush(ctx); err != nil {
		return nil, err
	}
	if err := f.CatchUp(ctx, fn); err != nil {
		return nil, err
	}
	// The end of the process cancels the wait for live output; Finish then reads the rest.
	live, stopLive := context.WithCancel(ctx)
	defer stopLive()
	ended, stop := r.WatchEnd(ctx, ref, stopLive)
	defer stop()
	var failed error
	for {
		err := f.Next(live, func(k schemas.Chunk) error {
			failed = fn(k)
			return failed
		})
		switch {
		case err == nil:
		case failed != nil:
			return nil, failed
		case ctx.Err() != nil:
			return nil, ctx.Err()
		default:
			select {
			case result := <-ended:
				return result, f.Finish(ctx, result, fn)
			default:
				return nil, err
			}
		}
	}
}
