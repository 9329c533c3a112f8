package events

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// holeLog stores chunks of four bytes in any order, as a writer does that has lost some.
type holeLog struct {
	t    *testing.T
	w    *LogWriter
	conn *peer
}

func newHoleLog(t *testing.T) *holeLog {
	_, c := connected(t, false)
	return &holeLog{t, c.Open(ref("t", "p"), nil), c}
}

func (h *holeLog) put(s schemas.Stream, numbers ...int) {
	h.t.Helper()
	for _, n := range numbers {
		h.putAt(s, n, int64(4*(n-1)))
	}
}

func (h *holeLog) putAt(s schemas.Stream, n int, offset int64) {
	h.t.Helper()
	k := &outChunk{stream: s, offset: offset, number: int64(n), data: fmt.Appendf(nil, "%04d", n)}
	future, err := h.w.publish(k)
	testkit.Must(h.t, err)
	_, err = (&sent{chunk: k, future: future}).wait()
	testkit.Must(h.t, err)
}

// read adds what a follower delivers within a time in which it reads LOG more than once.
func (h *holeLog) read(f *Follower, got *string) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), reconnectCheck*3/2)
	defer cancel()
	for {
		err := f.Next(ctx, func(k schemas.Chunk) error { *got += string(k.Data) + " "; return nil })
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		testkit.Must(h.t, err)
	}
}

// Promises 17: a writer that has lost a chunk stores it after its successors. A follower waits for it.
func TestFollowerWaitsForAChunkThatIsStoredLater(t *testing.T) {
	for _, c := range []struct{ name, begin, hole, filled string }{
		{"in the middle", "0001 ", "0001 ", "0001 0002 0003 0004 "},
		{"at the beginning", "", "", "0001 0002 0003 0004 "},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHoleLog(t)
			f, err := h.conn.FollowLog(ref("t", "p"), 0)
			testkit.Must(t, err)
			defer f.Close()
			got, stored := "", ""
			missing := 1
			if c.begin != "" {
				h.put(schemas.Stdout, 1)
				missing = 2
			}
			h.put(schemas.Stdout, missing+1, missing+2)
			h.read(f, &got)
			testkit.Equal(t, "output before the chunk is stored", got, c.hole)
			_, err = h.conn.ReadLog(testkit.Context(t), ref("t", "p"), "", 0, 0, func(k schemas.Chunk) error {
				stored += string(k.Data) + " "
				return nil
			})
			testkit.Must(t, err)
			testkit.Equal(t, "stored output before the chunk is stored", stored, c.hole)
			for n := missing; n <= 4; n++ {
				h.put(schemas.Stdout, n)
			}
			h.read(f, &got)
			testkit.Equal(t, "output", got, c.filled)
		})
	}
}

// Promises 13, 17: a follower goes on where another has stopped, while the chunk after that place is missing. It waits for it too.
func TestFollowerThatGoesOnWaitsForAChunkThatIsStoredLater(t *testing.T) {
	for _, c := range []struct {
		name   string
		hole   schemas.Stream
		filled string
	}{
		{"on the stream of the last chunk", schemas.Stdout, "0002 0003 0004 "},
		{"on the other stream", schemas.Stderr, "0002 0003 0004 "},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHoleLog(t)
			h.put(schemas.Stdout, 1)
			h.put(c.hole, 3) // 2 is lost
			f, err := h.conn.FollowLog(ref("t", "p"), 2)
			testkit.Must(t, err)
			defer f.Close()
			got := ""
			h.read(f, &got)
			testkit.Equal(t, "output before the chunk is stored", got, "")
			h.put(c.hole, 2, 3, 4)
			h.read(f, &got)
			testkit.Equal(t, "output", got, c.filled)
		})
	}
	t.Run("the process has ended", func(t *testing.T) {
		h := newHoleLog(t)
		h.put(schemas.Stdout, 1, 3, 2, 3)
		got := ""
		_, err := h.conn.ReadLog(testkit.Context(t), ref("t", "p"), "", 2, 4, func(k schemas.Chunk) error { got += string(k.Data) + " "; return nil })
		testkit.Must(t, err)
		testkit.Equal(t, "output", got, "0002 0003 ")
	})
}

// Promises 17: a server freezes with chunks that it has received, and the next one, on a new connection to another server, is stored before
// them. LOG then has all of them, but not in their order.
func TestChunkThatCameTooEarlyIsStoredAgain(t *testing.T) {
	h := newHoleLog(t)
	h.put(schemas.Stdout, 1, 4, 2, 3)
	h.w.rng.LastSeq = 1
	var chunks []*outChunk
	for n := 2; n <= 5; n++ {
		chunks = append(chunks, &outChunk{stream: schemas.Stdout, offset: int64(4 * (n - 1)), number: int64(n), data: fmt.Appendf(nil, "%04d", n)})
	}
	left, err := h.w.resendOnce(chunks)
	testkit.Must(t, err)
	testkit.Equal(t, "chunks left", len(left), 0)
	got := ""
	_, err = h.conn.ReadLog(testkit.Context(t), ref("t", "p"), "", 0, h.w.rng.LastSeq, func(k schemas.Chunk) error { got += string(k.Data) + " "; return nil })
	testkit.Must(t, err)
	testkit.Equal(t, "output", got, "0001 0002 0003 0004 0005 ")
}

// A hole that no writer fills delays a follower for as long as it may be filled, and no longer.
func TestFollowerPassesAHoleThatStays(t *testing.T) {
	for _, c := range []struct {
		name string
		put  func(h *holeLog)
		want string
	}{
		{"the process has it", func(h *holeLog) { h.putAt(schemas.Stdout, 2, 400) }, "0001 0002 "},
		{"the writer has gone on", func(h *holeLog) {
			for n := 3; n <= 3+2*chunkWindow; n++ {
				h.put(schemas.Stdout, n)
			}
		}, "0001 0003 "},
		{"the log has dropped it", func(h *holeLog) {
			h.put(schemas.Stdout, 3)
			log, err := h.conn.bulkJS.Stream(testkit.Context(h.t), h.conn.names.log)
			testkit.Must(h.t, err)
			testkit.Must(h.t, log.DeleteMsg(testkit.Context(h.t), 1))
		}, "0001 0003 "},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHoleLog(t)
			f, err := h.conn.FollowLog(ref("t", "p"), 0)
			testkit.Must(t, err)
			defer f.Close()
			got := ""
			h.put(schemas.Stdout, 1)
			h.read(f, &got)
			c.put(h)
			h.read(f, &got)
			if len(got) < len(c.want) || got[:len(c.want)] != c.want {
				t.Errorf("output = %q, want it to begin with %q", got, c.want)
			}
		})
	}
	t.Run("the process has ended", func(t *testing.T) {
		h := newHoleLog(t)
		f, err := h.conn.FollowLog(ref("t", "p"), 0)
		testkit.Must(t, err)
		defer f.Close()
		h.put(schemas.Stdout, 1, 3)
		got := ""
		testkit.Must(t, f.Finish(testkit.Context(t), &schemas.Result{Log: &schemas.LogRange{LastSeq: 2}}, func(k schemas.Chunk) error {
			got += string(k.Data) + " "
			return nil
		}))
		testkit.Equal(t, "output", got, "0001 0003 ")
	})
}
