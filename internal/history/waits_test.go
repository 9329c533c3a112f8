package history

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 6: waits after a worker's restart are counted apart from those of an outage of NATS.
func TestQueueWaitsByWhatWasAway(t *testing.T) {
	zero := time.Unix(1000, 0)
	at := func(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(time.Second))) }
	span := func(from, back, to float64) Span { return Span{From: at(from), Back: at(back), To: at(to)} }
	h := &History{Away: []Span{span(10, 12, 13), span(30, 40, 40)}, Broken: []Span{span(20, 25, 25)}}
	for i, w := range [][2]float64{
		{1, 2},     // calm
		{9, 12.5},  // it waited for the worker
		{12.5, 14}, // it came while the worker started
		{12, 21},   // a server went away in the end
		{24, 28},   // it came while a server was away
		{31, 35},   // another worker took over
	} {
		id := fmt.Sprint("p", i)
		h.Ops = append(h.Ops, Op{Process: id, Durable: true, Queued: 1, Acked: at(w[0])})
		h.Records = append(h.Records, Record{Event: schemas.Event{Process: id, Stored: at(w[1])}})
	}
	wait := func(i int, seconds float64) Wait {
		return Wait{fmt.Sprint("p", i), time.Duration(seconds * float64(time.Second))}
	}
	testkit.Equal(t, "waits", h.QueueWaits(), Waits{
		Calm: []Wait{wait(0, 1)}, Restarted: []Wait{wait(1, 0.5), wait(2, 1.5)}, Failover: []Wait{wait(5, 4)},
		Broken: []Wait{wait(4, 4), wait(3, 9)}, Mended: []Wait{wait(3, 0), wait(4, 3)},
	})
}
