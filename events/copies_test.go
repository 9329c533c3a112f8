package events

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// The connection of a follower breaks while the follower joins: nats.go reports it as closed, and restores it.
func TestFollowerJoinsOverABrokenConnection(t *testing.T) {
	c, taps := twoTaps(t, 4*time.Second)
	f := c.follow(t, ref("t", "p"), 0)
	freezeOutput(c, taps)
	testkit.Must(t, f.Flush(testkit.Context(t)))
	o := newOutput(t, c, ref("t", "p"))
	testkit.Must(t, o.print(schemas.Stdout, []byte("live")))
	h := newCollector(t)
	testkit.Must(t, f.Next(testkit.Context(t), h.add))
	h.want(schemas.Stdout, []byte("live"))
	o.close()
}

// The answer with the last output is lost with the connection: the follower asks again.
func TestFollowerFinishesOverABrokenConnection(t *testing.T) {
	c, taps := twoTaps(t, 4*time.Second)
	o := newOutput(t, c, ref("t", "p"))
	f := c.follow(t, ref("t", "p"), 0)
	f.Close() // no live copy comes
	var err error
	f.sub, err = f.nc.SubscribeSync(f.nc.NewInbox())
	testkit.Must(t, err)
	testkit.Must(t, o.print(schemas.Stdout, noise(1, 3*chunkBytes)))
	result := o.close()
	freezeOutput(c, taps)
	h := newCollector(t)
	testkit.Must(t, f.Finish(testkit.Context(t), result, h.add))
	h.want(schemas.Stdout, o.data[schemas.Stdout])
}

// freezeOutput freezes the way of a client's output.
func freezeOutput(c *peer, taps [2]*tap) {
	for _, p := range taps {
		if p.url() == c.bulk.ConnectedUrl() {
			p.freeze()
		}
	}
}

// What waits in memory for slow followers is bounded for all of a connection together.
func TestFollowersShareTheirBuffer(t *testing.T) {
	_, c := connected(t, false)
	const most = 1200 << 20
	sum, followers := 0, make([]*Follower, 0, 1000)
	for range cap(followers) {
		f, err := c.FollowLog(ref("t", "p"), 0)
		testkit.Must(t, err)
		_, limit, err := f.sub.PendingLimits()
		testkit.Must(t, err)
		followers, sum = append(followers, f), sum+limit
	}
	if sum > most {
		t.Errorf("%d followers may hold %d MiB, want at most %d", len(followers), sum>>20, most>>20)
	}
	for _, f := range followers {
		f.Close()
		f.Close() // as a caller may
	}
	_, limit, err := c.follow(t, ref("t", "p"), 0).sub.PendingLimits()
	testkit.Must(t, err)
	testkit.Equal(t, "limit of one alone", limit, followMost)
}
