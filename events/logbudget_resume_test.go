package events

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 11: what an earlier writer has stored of a process counts for its budget, after a restart of its worker as well as in a second
// run. So LOG never holds more, and what the tenant has is known after both.
func TestStoredOutputCountsForTheBudget(t *testing.T) {
	for _, v := range []struct {
		name  string
		epoch uint64 // of the second writer
	}{{"restarted worker", 1}, {"second run", 2}} {
		t.Run(v.name, func(t *testing.T) {
			n, ctx := newNode(t, false), testkit.Context(t)
			var data []byte
			write := func(worker *peer, epoch uint64, seeds ...uint64) *schemas.LogRange {
				t.Helper()
				r := ref("t", "p")
				r.Epoch = epoch
				after, err := worker.Replay(ctx, r, func(schemas.Chunk) error { return nil })
				testkit.Must(t, err)
				if after.Range == nil {
					data = nil
				}
				stored := make(chan struct{}, len(seeds))
				w := worker.Resume(r, after, func(schemas.Stream, int64) { stored <- struct{}{} }, nil)
				for _, seed := range seeds {
					p := noise(seed, 50_000)
					testkit.Must(t, w.Write(schemas.Stdout, int64(len(data)), p))
					data = append(data, p...)
					<-stored // else LOG drops one more chunk for each in flight
				}
				rng, err := w.Close()
				testkit.Must(t, err)
				return rng
			}
			start := func() (*peer, *tenantLogs) {
				c := n.connect()
				testkit.Must(t, c.Ensure(ctx, small()))
				logs := &tenantLogs{c.Conn}
				logs.check(ctx, "w1", true)
				return c, logs
			}
			first, logs := start()
			write(first, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17)
			logs.check(ctx, "w1", false)

			second, logs := start()
			rng := write(second, v.epoch, 20, 21, 22, 23, 24, 25, 26, 27)
			holds := storedBytes(t, second, second.subjects.Log(schemas.DefaultTenant, "t", "p", schemas.Stdout))
			if holds > 1<<20 || holds < 1<<19 {
				t.Errorf("LOG holds %d bytes of the process, want at most 1 MiB and more than half of it", holds)
			}
			h := newCollector(t)
			_, err := second.ReadLog(ctx, ref("t", "p"), "", rng.FirstSeq, rng.LastSeq, h.add)
			testkit.Must(t, err)
			testkit.Equal(t, "first offset in LOG", h.from[schemas.Stdout], rng.StdoutFrom)
			h.want(schemas.Stdout, data[rng.StdoutFrom:])
			testkit.Equal(t, "a part of a second run is missing", v.epoch == 2 && rng.StdoutFrom > 0, false)
			all, err := usages(ctx, logs.conn, usagePrefix)
			testkit.Must(t, err)
			own, _ := second.budget.exchange(all, "w1", 1, false)
			if _, counted := held(map[string]logUsage{"w1": own}, schemas.DefaultTenant, 1); v.epoch == 1 && (counted < holds || counted > holds+20<<10) {
				t.Errorf("%d bytes count for the tenant, LOG holds %d", counted, holds)
			}
		})
	}
}
