package events

import (
	"context"

	"github.com/sluice-dev/sluice/schemas"
)

// Replay reads all that LOG has of one run of a process, in the order of each stream, and says where it stands; nil for nothing.
// A chunk's number may be higher than there are chunks, where some were stored twice: the range counts by the highest. What an
// earlier run of the process printed, under an older epoch, is passed over. A chunk after a hole is given as it is: its offset
// tells. Errors: fn's, ctx's, unavailable or deadline_exceeded.
func (c *Conn) Replay(ctx context.Context, ref schemas.ProcessRef, fn func(schemas.Chunk) error) (*schemas.LogRange, error) {
	var rng *schemas.LogRange
	_, err := c.ReadLog(ctx, c.Subjects.ProcessLog(ref.Tenant, ref.Thread, ref.Process), 1, 0, func(k schemas.Chunk) error {
		if k.Epoch != ref.Epoch {
			return nil
		}
		if rng == nil {
			rng = &schemas.LogRange{FirstSeq: k.Seq}
		}
		rng.LastSeq, rng.Chunks = max(rng.LastSeq, k.Seq), max(rng.Chunks, k.Number)
		return fn(k)
	})
	if err != nil {
		return nil, err
	}
	return rng, nil
}
