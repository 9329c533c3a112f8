package node

import (
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/internal/testkit"
)

// Promises 15: a worker whose NATS is away at its start, or goes away while it acquires its lease, ended. It waits, says so, and starts.
func TestWorkerStartsWhenNATSDoes(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		name string
		wait bool // for the first connection, as `sluice worker` does; `up` and `exec` bring their server
	}{{"worker", true}, {"host", false}} {
		t.Run(v.name, func(t *testing.T) { startsWhenNATSDoes(t, v.wait) })
	}
}

func startsWhenNATSDoes(t *testing.T, wait bool) {
	o := newOutage(t)
	g := &gate{o: o}
	g.set(wait)
	conn, err := events.Connect(events.Options{InProcess: g, Wait: wait, LeaseTTL: shortLease})
	testkit.Must(t, err)
	t.Cleanup(conn.Close)
	g.set(true)
	begins := 0
	w := o.begins("w1", conn, func(string) ([]string, error) {
		if begins++; begins == 1 {
			g.set(true)
		}
		return nil, nil
	})
	w.await("waiting for NATS", 1)
	g.set(false)
	w.await("worker not started: trying again when NATS answers", 1)
	g.set(false)
	w.awaitReady()
	r, err := o.client.Exec(o.ctx, client.Request{Thread: "t1", Command: "echo", Args: []string{"up"}})
	testkit.Must(t, err)
	testkit.Equal(t, "output", r.Stdout, "up\n")
}
