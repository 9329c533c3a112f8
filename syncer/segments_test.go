package syncer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// segmented has small trees stored as long ones are.
func segmented(c *syncer.Config) { treetest.Form("segments")(c); c.Layout = "" }

// segmentObjects returns the keys of the objects with segments of the current state.
func segmentObjects(t *testing.T, store objectstore.Store) (keys []string) {
	t.Helper()
	root, err := state.DecodeRoot(stored(t, store), state.Limits{})
	testkit.Must(t, err)
	for _, o := range root.Segments().Objects {
		keys = append(keys, o.Key())
	}
	return keys
}

// TestWholeStateIsUpgraded pushes to a store of an earlier version, whose states are whole: they are read, the next state has segments,
// and a small one is whole and documented again. Sync 13.
func TestWholeStateIsUpgraded(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
		fill(a)
		first := a.Push(store, o).Version
		documented(t, store, true)
		b.Pull(store)
		a.Write("d0/f0", "changed")
		a.Push(store, segmented)
		documented(t, store, layoutOf(o) == state.Plain)
		b.Pull(store)
		treetest.Same(t, a, b)
		if layoutOf(o) == state.Packed {
			_, err := b.Syncer(store, segmented).Restore(t.Context(), first)
			testkit.Must(t, err)
			b.Want("d0/f0", strings.Repeat("0", 2000))
		}
		b.Write("d0/f0", "again")
		b.Push(store)
		documented(t, store, true)
		a.Pull(store)
		treetest.Same(t, b, a)
	})
}

// documented checks whether a tool that knows the documented format alone accepts the state.
func documented(t *testing.T, store objectstore.Store, want bool) {
	t.Helper()
	var s struct {
		Version string            `json:"version"`
		Files   []json.RawMessage `json:"files"`
	}
	testkit.Must(t, json.Unmarshal(stored(t, store), &s))
	testkit.Equal(t, "documented", s.Version == "1.0", want)
	if want && len(s.Files) < 60 {
		t.Errorf("the documented state has %d files, want all", len(s.Files))
	}
}

// TestDamagedSegmentIsDamage loses and damages each object with segments: the state is never taken for another, check reports it, and a
// folder that was synced with it repairs it. Sync 13.
func TestDamagedSegmentIsDamage(t *testing.T) {
	a, knows, fresh, store := treetest.New(t), treetest.New(t), treetest.New(t), &storetest.Memory{}
	fill(a)
	for i := range 3 { // three versions share segments
		a.Write("d1/f1", fmt.Sprint(i))
		a.Push(store, segmented)
	}
	knows.Pull(store)
	for what, damage := range map[string]func([]byte) []byte{
		"missing": nil,
		"flipped": func(data []byte) []byte { data[len(data)/2] ^= 1; return data },
		"torn":    func(data []byte) []byte { return data[:len(data)/2] },
	} {
		keys := segmentObjects(t, store)
		for _, i := range []int{0, len(keys) / 2, len(keys) - 1} {
			key := segmentObjects(t, store)[i]
			data, _, err := store.Get(t.Context(), key, objectstore.Range{}, nil)
			testkit.Must(t, err)
			if damage == nil {
				testkit.Must(t, store.Delete(t.Context(), key))
			} else {
				_, err = store.Put(t.Context(), key, objectstore.Bytes(damage(bytes.Clone(data))), objectstore.Condition{})
				testkit.Must(t, err)
			}
			_, err = fresh.Syncer(store).Pull(t.Context())
			testkit.WantCode(t, err, schemas.CodeDamaged)
			fresh.WantExists("d0", false)
			_, err = fresh.Syncer(store, func(c *syncer.Config) { c.Retention.Keep = 1 }).Collect(t.Context())
			testkit.WantCode(t, err, schemas.CodeDamaged)
			report, err := knows.Syncer(store, segmented).Check(t.Context(), false)
			testkit.WantCode(t, err, schemas.CodeDamaged)
			testkit.Equal(t, what+": damage", report.Damage[0].Path, state.ReservedName)
			for _, repair := range []bool{true, false} {
				_, err = knows.Syncer(store, segmented).Check(t.Context(), repair)
				testkit.Must(t, err)
			}
			seen := treetest.New(t)
			seen.Pull(store)
			treetest.Same(t, a, seen)
			knows.Pull(store)
		}
	}
}

// TestCollectKeepsSegments prunes after many pushes: what every kept version needs stays, and what killed pushes have left goes. Sync 13.
func TestCollectKeepsSegments(t *testing.T) {
	a, store, random := treetest.New(t), &storetest.Memory{}, rand.New(rand.NewPCG(7, 8))
	fill(a)
	a.Push(store, segmented)
	for range 12 {
		stir(a, random)
		_, err := a.Syncer(uncommitted{store}, segmented).Push(t.Context())
		testkit.WantCode(t, err, schemas.CodeInternal)
		a.Push(store, segmented)
	}
	_, err := a.Syncer(store, func(c *syncer.Config) { c.Retention = syncer.Retention{Keep: 4, Grace: 1} }).Collect(t.Context())
	testkit.Must(t, err)
	versions, err := a.Syncer(store).Versions(t.Context())
	testkit.Must(t, err)
	testkit.Equal(t, "versions", len(versions), 4)
	report, err := a.Syncer(store).Check(t.Context(), false)
	testkit.Must(t, err)
	testkit.Equal(t, "damage", len(report.Damage), 0)
	for _, v := range versions {
		w := treetest.New(t)
		_, err := w.Syncer(store, segmented).Restore(t.Context(), v.ID)
		testkit.Must(t, err)
	}
	_, err = a.Syncer(store, func(c *syncer.Config) { c.Retention = syncer.Retention{Keep: 1, Grace: 1} }).Collect(t.Context())
	testkit.Must(t, err)
	live := segmentObjects(t, store)
	s := read(t, store)
	for _, o := range s.Objects {
		live = append(live, o.Key())
	}
	for info, err := range store.List(t.Context(), state.ObjectPrefix) {
		testkit.Must(t, err)
		if !slices.Contains(live, info.Key) {
			t.Errorf("%s is left", info.Key)
		}
	}
}

func read(t *testing.T, store objectstore.Store) *state.State {
	t.Helper()
	s, err := packed.ReadState(t.Context(), store, stored(t, store), nil, state.Limits{}, 0)
	testkit.Must(t, err)
	return s
}

// uncommitted refuses each state, as if every push ended before it.
type uncommitted struct{ *storetest.Memory }

func (u uncommitted) Put(ctx context.Context, key string, c objectstore.Content, cond objectstore.Condition) (string, error) {
	if key == state.ReservedName {
		return "", schemas.Errorf(schemas.CodeInternal, "ended")
	}
	return u.Memory.Put(ctx, key, c, cond)
}

// TestPushEndsAtAnyRequest ends a push at each of its requests: the store has the tree before or after, nothing in between. Sync 13.
func TestPushEndsAtAnyRequest(t *testing.T) {
	a, store, random := treetest.New(t), &storetest.Memory{}, rand.New(rand.NewPCG(9, 10))
	fill(a)
	a.Push(store, segmented)
	seen := treetest.New(t)
	for at := range 12 {
		before := a.List()
		stir(a, random)
		after := a.List()
		var requests atomic.Int64
		cut := &objectstore.Decorator{Store: store, Do: func(_ context.Context, request func() error) error {
			if requests.Add(1) > int64(at) {
				return schemas.Errorf(schemas.CodeInternal, "ended")
			}
			return request()
		}}
		_, _ = a.Syncer(cut, segmented).Push(t.Context()) // it may end before that request
		seen.Pull(store)
		if got := seen.List(); !slices.Equal(got, before) && !slices.Equal(got, after) {
			t.Fatalf("request %d: the store has neither tree (-want +got):\n%s", at, treetest.Differences(after, got))
		}
		a.Push(store, segmented)
		seen.Pull(store)
		treetest.Same(t, a, seen)
	}
}

// TestConcurrentPushesShareSegments has folders push at once, while versions are pruned: no change is lost. Sync 13.
func TestConcurrentPushesShareSegments(t *testing.T) {
	store := &storetest.Memory{}
	first := treetest.New(t)
	fill(first)
	first.Push(store, segmented)
	var group sync.WaitGroup
	for i := range 4 {
		w := treetest.New(t)
		w.Pull(store)
		group.Go(func() {
			for round := range 6 {
				w.Write(fmt.Sprintf("d%d/of-%d-%d", round%4, i, round), fmt.Sprint(i, round))
				if _, err := w.Syncer(store, segmented).Push(t.Context()); err != nil {
					t.Error(err)
				}
				if _, err := w.Syncer(store, func(c *syncer.Config) { c.Retention = syncer.Retention{Keep: 2, Grace: 1} }).Collect(t.Context()); err != nil &&
					schemas.CodeOf(err) != schemas.CodeConflict {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	first.Pull(store)
	for i := range 4 {
		for round := range 6 {
			first.Want(fmt.Sprintf("d%d/of-%d-%d", round%4, i, round), fmt.Sprint(i, round))
		}
	}
	_, err := first.Syncer(store).Check(t.Context(), false)
	testkit.Must(t, err)
}
