package events

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 19: a chunk of an earlier incarnation with the same number is not taken for the one that has to be stored.
func TestChunkIsNotMatchedByItsNumberAlone(t *testing.T) {
	_, c := connected(t, false)
	ctx := testkit.Context(t)
	earlier := c.Open(ref("t", "p"), nil)
	testkit.Must(t, earlier.Write(schemas.Stdout, 0, []byte("old\n")))
	_, err := earlier.Close()
	testkit.Must(t, err)
	// This one read the log before that chunk arrived, and lost the ack of its own first one.
	w := c.Open(ref("t", "p"), nil)
	left, err := w.resendOnce([]*outChunk{{stream: schemas.Stdout, offset: 0, number: 1, data: []byte("old\nnew\n")}})
	testkit.Must(t, err)
	testkit.Equal(t, "chunks left", len(left), 0)
	end := int64(0)
	_, err = c.Replay(ctx, ref("t", "p"), func(k schemas.Chunk) error {
		end = max(end, k.End())
		return nil
	})
	testkit.Must(t, err)
	testkit.Equal(t, "bytes in the log", end, int64(8))
}
