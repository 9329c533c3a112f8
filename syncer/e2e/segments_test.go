package e2e

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/e2e/gateway"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// TestSmallChangeSendsLittle counts the requests and bytes for a tree of 10,000 files, and for one changed file of it. Sync 13.
func TestSmallChangeSendsLittle(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), open(t, t.Name())
	random := rand.NewChaCha8([32]byte{1})
	content := func() string {
		data := make([]byte, 4<<10)
		_, _ = random.Read(data) // never fails
		return string(data)
	}
	for i := range 10_000 {
		a.Write(fmt.Sprintf("folder-%03d/file-%03d.dat", i/100, i%100), content())
	}
	costs := func(what string, r *syncer.Report, requests, sent, received int64) {
		t.Helper()
		testkit.Equal(t, "requests of "+what, r.Requests, requests)
		t.Logf("%s: %d requests, %d bytes sent, %d received", what, r.Requests, r.RequestBytes, r.ResponseBytes)
		if r.RequestBytes > sent || r.ResponseBytes > received {
			t.Errorf("%s sent %d bytes and received %d, want at most %d and %d", what, r.RequestBytes, r.ResponseBytes, sent, received)
		}
	}
	const all = 42 << 20
	costs("a cold push", a.Push(store), 13, all, 10_000)
	costs("a push of nothing", a.Push(store), 1, 0, 0)
	costs("a cold pull", b.Pull(store), 12, 0, all)
	a.Write("folder-050/file-050.dat", content())
	costs("a push of one change", a.Push(store), 4, 20_000, 10_000)
	costs("a pull of one change", b.Pull(store), 3, 0, 20_000)
	treetest.Same(t, a, b)
}

// TestTornSegmentIsDamage cuts objects with segments on each server: a pull fails, and a folder that knows the state repairs it. Sync 13.
func TestTornSegmentIsDamage(t *testing.T) {
	onServers(t, func(t *testing.T, s *gateway.Server, options []treetest.Option) {
		a, fresh, store := treetest.New(t), treetest.New(t), openAt(t, s, t.Name())
		options = append(options, treetest.Form("segments"))
		for i := range 20 {
			a.Write(fmt.Sprint("f", i), "x")
		}
		a.Push(store, options...)
		data, _, err := store.Get(t.Context(), state.ReservedName, objectstore.Range{}, nil)
		testkit.Must(t, err)
		root, err := state.DecodeRoot(data, state.Limits{})
		testkit.Must(t, err)
		for _, o := range root.Segments().Objects {
			_, err := store.Put(t.Context(), o.Key(), objectstore.Bytes([]byte("x")), objectstore.Condition{})
			testkit.Must(t, err)
		}
		_, err = fresh.Syncer(store).Pull(t.Context())
		testkit.WantCode(t, err, schemas.CodeDamaged)
		_, err = a.Syncer(store, options...).Check(t.Context(), true)
		testkit.Must(t, err)
		fresh.Pull(store)
		treetest.Same(t, a, fresh)
	})
}
