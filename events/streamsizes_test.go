package events

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// smallServer is a server with an account of at most limit bytes of streams, 0 for no limit, and at most store bytes itself.
func smallServer(t *testing.T, limit, store int64) (url string) {
	t.Helper()
	account := server.NewAccount("tenant")
	s := plainServer(t, &server.Options{JetStream: true, JetStreamMaxStore: store, Accounts: []*server.Account{account}, Users: []*server.User{
		{Username: "user", Password: "pw", Account: account},
	}})
	account, err := s.LookupAccount("tenant")
	testkit.Must(t, err)
	if limit == 0 {
		limit = -1
	}
	testkit.Must(t, account.EnableJetStream(map[string]server.JetStreamAccountLimits{"": {
		MaxMemory: -1, MaxStore: limit, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1,
	}}, nil))
	return "nats://user:pw@" + s.Addr().String()
}

func connectTo(t *testing.T, url string) *Conn {
	t.Helper()
	c, err := Connect(Options{URL: url})
	testkit.Must(t, err)
	t.Cleanup(c.Close)
	return c
}

// TestStreamsFitIntoASmallAccount starts workers in an account, and on a server, with less room than the default sizes take. Ten
// minutes 14.
func TestStreamsFitIntoASmallAccount(t *testing.T) {
	for name, v := range map[string]struct{ limit, store, least int64 }{
		"account": {4 << 30, 16 << 30, 3 << 30},
		"server":  {0, 4 << 30, 2 << 30},
		"tiny":    {200 << 20, 16 << 30, 100 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, url := testkit.Context(t), smallServer(t, v.limit, v.store)
			first, second := connectTo(t, url), connectTo(t, url)
			testkit.Must(t, first.Ensure(ctx, Topology{Partitions: 1}))
			took := first.Worker().Topology()
			if got := took.StoreBytes(); got < v.least || got > 4<<30 {
				t.Errorf("streams take %d bytes, want at least %d and at most 4 GiB", got, v.least)
			}
			testkit.Must(t, second.Ensure(ctx, Topology{Partitions: 1}))
			testkit.Equal(t, "topology of the second worker", second.Worker().Topology(), took)
			newPeer(first).save(t, message("t", "p", schemas.RoleUser, "hello")) // MSG is created now
		})
	}
}

// TestSizesThatAreSetAreKept sets a size, leaves it out, and sets one that does not fit: nothing else changes for it. Ten minutes 14.
func TestSizesThatAreSetAreKept(t *testing.T) {
	ctx, url := testkit.Context(t), smallServer(t, 4<<30, 16<<30)
	testkit.Must(t, connectTo(t, url).Ensure(ctx, Topology{Partitions: 1, EventBytes: 1 << 30, LogBytes: 1 << 30, LogProcessBytes: 3 << 20}))
	c := connectTo(t, url)
	testkit.Must(t, c.Ensure(ctx, Topology{Partitions: 1}))
	got := c.Worker().Topology()
	testkit.Equal(t, "sizes", []int64{got.CommandBytes, got.EventBytes, got.LogBytes, got.LogProcessBytes}, []int64{256 << 20, 1 << 30, 1 << 30, 3 << 20})
	testkit.WantCode(t, connectTo(t, url).Ensure(ctx, Topology{Partitions: 1, LogBytes: 8 << 30}), schemas.CodeLimitExceeded)
	c = connectTo(t, url)
	testkit.Must(t, c.Ensure(ctx, Topology{Partitions: 1, EventAge: got.EventAge}))
	testkit.Equal(t, "topology after a refusal", c.Worker().Topology(), got)
}

// Shares that are set stay until another one, or the default, is set.
func TestSharesReturnToTheirDefaults(t *testing.T) {
	ctx, n := testkit.Context(t), newNode(t, false)
	all := func(share int64) Topology {
		return Topology{Partitions: 1, Room: 1 << 30, LogProcessBytes: share, LogTenantBytes: share, EventTenantBytes: share}
	}
	var c *peer
	shares := func(t Topology) [3]int64 { return [3]int64{t.LogProcessBytes, t.LogTenantBytes, t.EventTenantBytes} }
	for _, tt := range []struct{ set, want int64 }{{1 << 16, 1 << 16}, {0, 1 << 16}, {1 << 17, 1 << 17}, {DefaultShare, 0}, {0, 0}} {
		c = n.connect()
		testkit.Must(t, c.Ensure(ctx, all(tt.set)))
		want := [3]int64{tt.want, tt.want, tt.want}
		if tt.want == 0 {
			want = [3]int64{c.topology.LogBytes / 16, c.topology.LogBytes / 2, 0}
		}
		testkit.Equal(t, "shares", shares(c.topology), want)
		testkit.Equal(t, "bound of a tenant in EVT", c.room.shares.most, want[2])
		if err := c.room.share("a", 1<<16+1, 0); (err != nil) != (want[2] == 1<<16) || err != nil && !strings.Contains(err.Error(), "raise --event-tenant-bytes") {
			t.Errorf("with a bound of %d: error = %v, want one that names --event-tenant-bytes where it is too small", want[2], err)
		}
	}
}

// TestFullHistoryRefusesNewMessages fills MSG: it keeps the oldest messages, and says what to do. Ten minutes 14.
func TestFullHistoryRefusesNewMessages(t *testing.T) {
	n := startNode(t, embedded.Config{Dir: t.TempDir(), StoreBytes: 16 << 30})
	c := n.connect()
	testkit.Must(t, c.Ensure(testkit.Context(t), Topology{Partitions: 1, MessageBytes: 100_000}))
	var err error
	saved := 0
	for ; err == nil && saved < 100; saved++ {
		_, err = c.SaveMessage(testkit.Context(t), "default", message("t", "p"+strings.Repeat("x", saved), schemas.RoleUser, strings.Repeat("a", 10_000)))
	}
	testkit.WantCode(t, err, schemas.CodeLimitExceeded)
	testkit.Contains(t, "error", err.Error(), "--message-bytes")
	stored := storedMessages(t, c, "t", 1)
	testkit.Equal(t, "messages that are stored", len(stored), saved-1)
	testkit.Equal(t, "first message", stored[0].Process, "p")
}
