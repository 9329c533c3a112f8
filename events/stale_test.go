package events

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// staleRead is a read on which a promise depends.
type staleRead struct {
	name, stream string
	// write stores the state before or after.
	write func(ctx context.Context, c *peer, after bool) error
	// read returns whether it sees the state after.
	read func(ctx context.Context, c *peer) (after bool, err error)
}

func staleReads(n names) []staleRead {
	event := func(thread, process, id string, typ schemas.EventType) func(context.Context, *peer, bool) error {
		return func(ctx context.Context, c *peer, after bool) error {
			ev := record(thread, process, typ, fmt.Sprint(id, after))
			ev.Data = fmt.Appendf(nil, `{"id": %q}`, ev.ID)
			if ev.Process != "" {
				_, err := c.Append(ctx, ev, 0)
				return err
			}
			return c.Publish(ctx, ev)
		}
	}
	// accepted has no record before.
	accepted := func(process string) func(context.Context, *peer, bool) error {
		return func(ctx context.Context, c *peer, after bool) error {
			if !after {
				return nil
			}
			return event("t", process, "r", schemas.TypeProcessAccepted)(ctx, c, after)
		}
	}
	found := func(_ *schemas.Event, err error) (bool, error) {
		if errors.Is(err, schemas.ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	}
	out := ref("t", "out")
	return []staleRead{
		{"events", n.evt, event("read", "", "e", schemas.TypeSessionCreated), func(ctx context.Context, c *peer) (after bool, err error) {
			_, err = c.ReadEvents(ctx, Filter{Thread: "read"}, 1, func(ev *schemas.Event) error {
				after = after || ev.ID == "etrue"
				return nil
			})
			return after, err
		}},
		{"the last record", n.evt, accepted("last"), func(ctx context.Context, c *peer) (bool, error) {
			return found(c.Records.Last(ctx, schemas.DefaultTenant, "t", "last"))
		}},
		{"the acceptance", n.evt, accepted("accepted"), func(ctx context.Context, c *peer) (bool, error) {
			return found(c.Accepted(ctx, schemas.DefaultTenant, "t", "accepted"))
		}},
		{"unfinished processes", n.evt, accepted("unfinished"), func(ctx context.Context, c *peer) (after bool, err error) {
			all, err := c.Unfinished(ctx, "w1", 1)
			for _, ev := range all {
				after = after || ev.Process == "unfinished"
			}
			return after, err
		}},
		{"the last session", n.evt, event("ended", "", "s", schemas.TypeSessionTerminated), func(ctx context.Context, c *peer) (bool, error) {
			last, err := c.LastEnded(ctx, schemas.DefaultTenant, "ended")
			return err == nil && last.ID == "strue", err
		}},
		{"messages", n.msg, func(ctx context.Context, c *peer, after bool) error {
			id := fmt.Sprint("m", after)
			_, err := c.SaveMessage(ctx, schemas.DefaultTenant, message("t", id, schemas.RoleUser, id))
			return err
		}, func(ctx context.Context, c *peer) (after bool, err error) {
			_, err = c.Caller.Messages(ctx, schemas.DefaultTenant, "t", 1, func(m *schemas.Message) error {
				after = after || m.Text == "mtrue"
				return nil
			})
			return after, err
		}},
		{"stored output", n.log, func(ctx context.Context, c *peer, after bool) error {
			k := &outChunk{stream: schemas.Stdout, number: 1, data: []byte("before")}
			if after {
				k.number, k.offset = 2, 6
			}
			future, err := c.Open(out, nil).publish(k)
			if err != nil {
				return err
			}
			return errorOf((&sent{chunk: k, future: future}).wait())
		}, func(ctx context.Context, c *peer) (bool, error) {
			_, stdout, _, err := c.Stored(ctx, out.Tenant, out.Thread, out.Process)
			return stdout > 6, err
		}},
		{"a worker's entry", kvStream(n.state), func(ctx context.Context, c *peer, after bool) error {
			w := schemas.WorkerInfo{ID: "w1", LowSeq: 1}
			if after {
				w.LowSeq = 2
			}
			return c.Register(ctx, w)
		}, func(ctx context.Context, c *peer) (bool, error) {
			w, err := c.Roster.Worker(ctx, "w1")
			return w.LowSeq == 2, err
		}},
	}
}

// Promises 17: a replica that lags behind answers no read on which a decision depends. The read fails, or waits.
func TestNoDecisionReadIsBehind(t *testing.T) {
	servers := newCluster(t)
	first := servers.connect(0)
	topology := Topology{Partitions: 1}
	servers.ensure(first, topology)
	ctx := testkit.Context(t)
	testkit.Must(t, until(ctx, func(ctx context.Context) error { return first.needStream(ctx, &first.messages, first.messageConfig()) }))
	for _, read := range staleReads(first.names) {
		t.Run(read.name, func(t *testing.T) {
			ctx := testkit.Context(t)
			testkit.Must(t, until(ctx, func(ctx context.Context) error { return read.write(ctx, first, false) }))
			var away int
			var owner, observer *peer
			for alone := false; !alone; { // a server that leads when it is isolated is no replica that lags
				away = (servers.leader(read.stream) + 1) % 3
				owner, observer = servers.connect((away+2)%3), servers.connect(away)
				servers.ensure(owner, topology)
				servers.isolate(away, true)
				if alone = !servers.leads(away, read.stream); !alone {
					servers.isolate(away, false)
				}
			}
			defer servers.isolate(away, false)
			testkit.Must(t, until(ctx, func(ctx context.Context) error { return read.write(ctx, owner, true) }))
			for isolated := true; ; isolated = false {
				short, cancel := context.WithTimeout(ctx, 3*leaderTry/2)
				after, err := read.read(short, observer)
				cancel()
				if err == nil && !after {
					t.Fatalf("the read does not see what is stored (isolated: %v)", isolated)
				}
				if err == nil && !isolated {
					return
				}
				if ctx.Err() != nil {
					t.Fatal(err)
				}
				servers.isolate(away, false)
			}
		})
	}
}
