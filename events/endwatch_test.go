package events

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Those who wait for one process share a subscription, and each gets a result of its own. The last one to leave ends it.
func TestWatchersOfAProcessShareAWatch(t *testing.T) {
	_, c := connected(t, false)
	const watchers = 20
	before := c.nc.NumSubscriptions()
	end := func(id string, after uint64) uint64 {
		seq := c.append(t, record("t", "p", schemas.TypeProcessAccepted, id+"-accepted"), after)
		return c.append(t, record("t", "p", schemas.TypeProcessExited, id+"-exited"), seq)
	}
	var ends []<-chan *schemas.Result
	var stops []func()
	watch := func() (<-chan *schemas.Result, func()) { return c.WatchEnd(t.Context(), ref("t", "p"), func() {}) }
	for range watchers {
		ended, stop := watch()
		ends, stops = append(ends, ended), append(stops, stop)
	}
	testkit.Equal(t, "watches", len(c.ends.shared), 1)
	seq := end("first", 0)
	results := make(map[*schemas.Result]bool, watchers)
	for _, ended := range ends {
		results[<-ended] = true
	}
	testkit.Equal(t, "results", len(results), watchers)
	// Some of the watchers are still there when another run begins: who waits for that must not get the end of the first one.
	seq = c.append(t, record("t", "p", schemas.TypeProcessAccepted, "second-accepted"), seq)
	ended, stop := watch()
	for _, stop := range stops {
		stop()
		stop() // again, as a caller may
	}
	select {
	case <-ended:
		t.Error("the second run has the end of the first")
	default:
	}
	c.append(t, record("t", "p", schemas.TypeProcessExited, "second-exited"), seq)
	<-ended
	stop()
	_, stop = c.WatchEnd(t.Context(), ref("t", "other"), func() { t.Error("a process without a record has ended") })
	stop()
	testkit.Equal(t, "watches at the end", len(c.ends.shared), 0)
	testkit.Equal(t, "subscriptions at the end", c.nc.NumSubscriptions(), before)
}
