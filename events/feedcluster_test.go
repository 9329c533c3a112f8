package events

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// feedReader is a follower of EVT or MSG in a cluster.
type feedReader struct {
	name string
	got  []uint64
	next func(context.Context) error
	last chan uint64 // receives the sequence up to which it reads
}

// kind is the name without the server.
func (r *feedReader) kind() string { return strings.Join(strings.Fields(r.name)[:2], " ") }

// follows makes a reader of a feed, from the beginning.
func follows[T any](t *testing.T, c *peer, name string, feed *tailer[T], err error, seq func(T) uint64) *feedReader {
	t.Helper()
	testkit.Must(t, err)
	t.Cleanup(feed.Close)
	testkit.Must(t, c.Flush(testkit.Context(t)))
	r := &feedReader{name: name, last: make(chan uint64, 1)}
	r.next = func(ctx context.Context) error {
		return feed.Next(ctx, func(v T) error {
			r.got = append(r.got, seq(v))
			return nil
		})
	}
	return r
}

// run reads until the last message is there.
func (r *feedReader) run(ctx context.Context, t *testing.T) {
	for last := uint64(0); last == 0 || len(r.got) == 0 || r.got[len(r.got)-1] < last; {
		turn, cancel := context.WithTimeout(ctx, 3*reconnectCheck) // an idle follower asks the leader after one
		err := r.next(turn)
		cancel()
		if err != nil && (turn.Err() == nil || ctx.Err() != nil) {
			t.Errorf("%s: %v after %d messages", r.name, err, len(r.got))
			return
		}
		select {
		case last = <-r.last:
		default:
		}
	}
}

// until calls f until it succeeds: a stream may have no leader.
func until(ctx context.Context, f func(context.Context) error) error {
	for {
		try, cancel := context.WithTimeout(ctx, publishTimeout)
		err := f(try)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// Promises 17: followers of EVT and MSG receive each message once and in order, when leaders step down and a server is cut off.
func TestFeedsLoseNothingWhenLeadersChange(t *testing.T) {
	servers := newCluster(t)
	ctx := testkit.Context(t)
	c := servers.connect(0)
	servers.ensure(c, Topology{Partitions: 1})
	testkit.Must(t, until(ctx, func(ctx context.Context) error { return c.needStream(ctx, &c.messages, c.messageConfig()) }))
	const writers, each = 4, 400
	var readers []*feedReader
	for i := range servers.servers {
		at := servers.connect(i)
		event, message := func(ev *schemas.Event) uint64 { return ev.Seq }, func(m *schemas.Message) uint64 { return m.Seq }
		feed, err := at.FollowEvents(Filter{}, 1)
		readers = append(readers, follows(t, at, fmt.Sprint("EVT by s", i), feed, err, event))
		feed, err = at.FollowEvents(Filter{Thread: "t1"}, 1)
		readers = append(readers, follows(t, at, fmt.Sprint("EVT of t1 by s", i), feed, err, event))
		said, err := at.FollowMessages(schemas.DefaultTenant, "t1", 1)
		readers = append(readers, follows(t, at, fmt.Sprint("MSG of t1 by s", i), said, err, message))
	}
	var reading, writing sync.WaitGroup
	for _, r := range readers {
		reading.Go(func() { r.run(ctx, t) })
	}
	var progress sync.WaitGroup // the first half is written
	progress.Add(writers)
	for w := range writers {
		writer, thread := servers.connect(0), fmt.Sprint("t", w%2)
		writing.Go(func() {
			for n := range each {
				id := fmt.Sprintf("w%d-%d", w, n)
				if n == each/2 {
					progress.Done()
				}
				if err := until(ctx, func(ctx context.Context) error {
					return writer.Publish(ctx, record(thread, "", schemas.TypeSessionCreated, id))
				}); err != nil {
					t.Error(err)
				}
				if err := until(ctx, func(ctx context.Context) error {
					_, err := writer.SaveMessage(ctx, schemas.DefaultTenant, message(thread, id, schemas.RoleUser, id))
					return err
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	stepDown := func(stream string) {
		servers.leader(stream)
		if _, err := c.nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil, publishTimeout); err != nil {
			t.Log(err)
		}
	}
	stepDown(c.names.evt)
	stepDown(c.names.msg)
	servers.isolate(2, true) // the copies for its readers are lost
	progress.Wait()
	servers.isolate(2, false)
	stepDown(c.names.msg)
	stepDown(c.names.evt)
	writing.Wait()
	want := make(map[string][]uint64)
	subjects := map[string][2]string{
		"EVT by": {c.names.evt, c.subjects.Events(schemas.DefaultTenant, "", "")},
		"EVT of": {c.names.evt, c.subjects.Events(schemas.DefaultTenant, "t1", "")},
		"MSG of": {c.names.msg, c.subjects.Messages(schemas.DefaultTenant, "t1")},
	}
	for kind, of := range subjects {
		next := uint64(1)
		testkit.Must(t, until(ctx, func(ctx context.Context) error {
			return c.readUntil(ctx, of[0], of[1], 0, func() (uint64, error) {
				msgs, _, err := c.directGet(ctx, of[0], directRequest{Seq: next, NextBy: of[1], Batch: documentBatch})
				for _, m := range msgs {
					want[kind], next = append(want[kind], m.seq), m.seq+1
				}
				return next, err
			})
		}))
	}
	for _, r := range readers {
		all := want[r.kind()]
		r.last <- all[len(all)-1]
	}
	reading.Wait()
	for _, r := range readers {
		all := want[r.kind()]
		for i := range min(len(r.got), len(all)) {
			if r.got[i] != all[i] {
				t.Fatalf("%s received sequence %d in place of %d", r.name, r.got[i], all[i])
			}
		}
		testkit.Equal(t, r.name+": number of messages", len(r.got), len(all))
	}
}
