package client

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

// coverage is how far a reader of a process's output has come in each stream.
type coverage struct{ stdout, stderr covered }

type covered struct {
	end   int64 // the offset after the last byte received
	epoch uint64
}

func (c *coverage) of(s schemas.Stream) *covered {
	if s == schemas.Stderr {
		return &c.stderr
	}
	return &c.stdout
}

// see notes a chunk. It returns the gap before it, nil for none, and whether the chunk begins a second run of the process.
func (c *coverage) see(k *schemas.Chunk) (gap *schemas.LogGap, rerun bool) {
	at := c.of(k.Stream)
	if rerun = at.end > 0 && k.Offset == 0 && k.Epoch > at.epoch; rerun {
		at.end = 0
	}
	gap = missing(k.Stream, at.end, k.Offset)
	at.end, at.epoch = max(at.end, k.End()), k.Epoch
	return gap, rerun
}

// missing is output that the log does not have; nil for none.
func missing(s schemas.Stream, from, to int64) *schemas.LogGap {
	if from >= to {
		return nil
	}
	return &schemas.LogGap{Stream: s, From: from, To: to, Reason: "the log does not have it, or no longer"}
}

// printed is how many bytes a process printed on a stream.
func printed(r *schemas.Result, s schemas.Stream) int64 {
	if s == schemas.Stderr {
		return r.StderrBytes
	}
	return r.StdoutBytes
}

// composer makes the result of a process from its record, which has the beginning of the output, and from its log.
type composer struct {
	coverage
	limit int64 // of each stream
	kept  map[schemas.Stream][]byte
	gaps  []schemas.LogGap
}

func newComposer(limit int64) *composer {
	return &composer{limit: limit, kept: make(map[schemas.Stream][]byte, 2)}
}

// add takes the next chunk of the log.
func (c *composer) add(k *schemas.Chunk) {
	gap, rerun := c.see(k)
	if rerun {
		delete(c.kept, k.Stream)
		c.gaps = slices.DeleteFunc(c.gaps, func(g schemas.LogGap) bool { return g.Stream == k.Stream })
	}
	if gap != nil {
		c.gaps = append(c.gaps, *gap)
	}
	// After a gap it keeps nothing more: the rest would look like what was printed.
	kept := c.kept[k.Stream]
	if from, to := int64(len(kept)), min(k.End(), c.limit); k.Offset <= from && from < to {
		c.kept[k.Stream] = append(kept, k.Data[from-k.Offset:to-k.Offset]...)
	}
}

// finish completes the record by what was added. The log has no more of the streams read.
func (c *composer) finish(r *schemas.Result, read ...schemas.Stream) error {
	for _, s := range read {
		if gap := missing(s, c.of(s).end, printed(r, s)); gap != nil {
			c.gaps = append(c.gaps, *gap)
		}
	}
	for _, s := range schemas.Streams() {
		recorded, err := r.Output(s)
		if err != nil {
			return err
		}
		// An earlier run may have printed more.
		if kept := c.kept[s]; len(kept) > len(recorded) && int64(len(kept)) <= printed(r, s) {
			r.SetOutput(s, kept, printed(r, s))
		}
		for _, gap := range c.gaps {
			gap.From = max(gap.From, int64(len(recorded)))
			known := func(g schemas.LogGap) bool { return g.Stream == s && g.From <= gap.From && gap.To <= g.To }
			if gap.Stream == s && gap.From < gap.To && !slices.ContainsFunc(r.Gaps, known) {
				r.Gaps = append(r.Gaps, gap)
			}
		}
	}
	return nil
}

// complete reads from the log the output that the record does not have, up to the limit.
func complete(ctx context.Context, c *events.Caller, ref schemas.ProcessRef, r *schemas.Result, limit int64) error {
	all, read := newComposer(limit), []schemas.Stream(nil)
	for _, s := range schemas.Streams() {
		recorded, err := r.Output(s)
		if err != nil {
			return err
		}
		want := min(limit, printed(r, s))
		if int64(len(recorded)) >= want {
			continue
		}
		all.kept[s], *all.of(s) = recorded, covered{int64(len(recorded)), r.Epoch}
		if r.Log != nil {
			_, err = c.ReadLog(ctx, ref, s, r.Log.FirstSeq, r.Log.LastSeq, func(k schemas.Chunk) error {
				all.add(&k)
				if all.of(s).end >= want {
					return io.EOF // enough, or a gap
				}
				return nil
			})
		}
		switch {
		case err == nil:
			read = append(read, s)
		case !errors.Is(err, io.EOF):
			return err
		}
	}
	return all.finish(r, read...)
}
