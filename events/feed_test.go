package events

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// feedTest follows EVT or MSG while a test drops live copies, as a change of the stream's leader does.
type feedTest struct {
	t      *testing.T
	c      *peer
	stream jetstream.StreamConfig
	put    func(text string)
	next   func() error // adds what is delivered to got
	got    []string
}

// feedTests runs a test with a follower of EVT and with one of MSG, on a connection of their own.
func feedTests(t *testing.T, test func(*feedTest)) {
	for name, open := range map[string]func(f *feedTest, listener *peer){"EVT": (*feedTest).followEvents, "MSG": (*feedTest).followMessages} {
		t.Run(name, func(t *testing.T) {
			n, c := connected(t, true)
			f := &feedTest{t: t, c: c}
			open(f, n.connect())
			test(f)
		})
	}
}

func (f *feedTest) followEvents(listener *peer) {
	ctx := testkit.Context(f.t)
	f.stream = f.c.streamConfigs(f.c.topology)[1]
	f.put = func(text string) {
		testkit.Must(f.t, f.c.Publish(ctx, record("t", "", schemas.TypeSessionCreated, text)))
	}
	feed, err := listener.FollowEvents(Filter{Thread: "t"}, 1)
	testkit.Must(f.t, err)
	f.t.Cleanup(feed.Close)
	testkit.Must(f.t, listener.Flush(ctx))
	add := func(ev *schemas.Event) error {
		f.got = append(f.got, ev.ID)
		return nil
	}
	testkit.Must(f.t, feed.CatchUp(ctx, add))
	f.next = func() error { return feed.Next(ctx, add) }
}

func (f *feedTest) followMessages(listener *peer) {
	ctx := testkit.Context(f.t)
	f.stream = f.c.messageConfig()
	testkit.Must(f.t, f.c.needStream(ctx, &f.c.messages, f.stream))
	f.put = func(text string) { f.c.save(f.t, message("t", "p"+text, schemas.RoleUser, text)) }
	feed, err := listener.FollowMessages(schemas.DefaultTenant, "t", 0)
	testkit.Must(f.t, err)
	f.t.Cleanup(feed.Close)
	testkit.Must(f.t, listener.Flush(ctx))
	add := func(m *schemas.Message) error {
		f.got = append(f.got, m.Text)
		return nil
	}
	testkit.Must(f.t, feed.CatchUp(ctx, add))
	f.next = func() error { return feed.Next(ctx, add) }
}

// lose stores without live copies.
func (f *feedTest) lose(texts ...string) {
	f.t.Helper()
	without := f.stream
	without.RePublish = nil
	for _, cfg := range []jetstream.StreamConfig{without, f.stream} {
		_, err := f.c.js.UpdateStream(testkit.Context(f.t), cfg)
		testkit.Must(f.t, err)
		for _, text := range texts {
			f.put(text)
		}
		texts = nil
	}
}

// copies sends the live copies of stored messages, in an order of its own.
func (f *feedTest) copies(seqs ...uint64) {
	f.t.Helper()
	live := strings.NewReplacer(".evt.", ".feed.", ".msg.", ".said.")
	for _, seq := range seqs {
		m, err := f.c.leaderGet(testkit.Context(f.t), f.stream.Name, directRequest{Seq: seq})
		testkit.Must(f.t, err)
		testkit.Must(f.t, f.c.nc.PublishMsg(&nats.Msg{
			Subject: live.Replace(m.subject), Header: nats.Header{headerSequence: {fmt.Sprint(seq)}}, Data: m.data,
		}))
	}
}

// await reads until as much is delivered as is wanted.
func (f *feedTest) await(want ...string) {
	f.t.Helper()
	for len(f.got) < len(want) {
		testkit.Must(f.t, f.next())
		if !slices.Equal(f.got, want[:min(len(f.got), len(want))]) {
			break
		}
	}
	testkit.Equal(f.t, "delivered", f.got, want)
}

// Promises 17: the live copies of some messages are missing after a graceful change of the leader. A follower delivers the messages in
// their place.
func TestFeedReadsWhatHasNoLiveCopy(t *testing.T) {
	feedTests(t, func(f *feedTest) {
		f.lose("1")
		f.put("2") // shows that 1 is missing
		f.await("1", "2")
		f.lose("3", "4")
		f.put("5")
		f.await("1", "2", "3", "4", "5")
	})
}

// Promises 17: no later copy shows that the last ones are missing.
func TestIdleFeedLooksForLostCopies(t *testing.T) {
	feedTests(t, func(f *feedTest) {
		f.put("1")
		f.await("1")
		f.lose("2", "3")
		f.await("1", "2", "3")
	})
}

// Promises 17: the copies of two leaders arrive by two ways.
func TestFeedOrdersLateCopies(t *testing.T) {
	feedTests(t, func(f *feedTest) {
		f.lose("1", "2", "3", "4")
		f.copies(2, 1, 4, 3)
		f.await("1", "2", "3", "4")
		f.put("5")
		f.await("1", "2", "3", "4", "5")
	})
}
