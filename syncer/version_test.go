package syncer_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/state"
)

// clock is a time that a test advances.
type clock struct{ now time.Time }

func (c *clock) option(cfg *syncer.Config) { cfg.Now = func() time.Time { return c.now } }

func TestRestoreBringsBackVersions(t *testing.T) {
	a, b, store := newTree(t), newTree(t), newStore()
	at := &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	var trees [][]string
	for i := range 4 {
		a.write("f", strings.Repeat("x", i))
		a.write(fmt.Sprint("only-in-", i), "x")
		a.remove(fmt.Sprint("only-in-", i-1))
		a.push(store, at.option)
		trees = append(trees, a.listing())
		at.now = at.now.Add(time.Hour)
	}
	versions, err := a.syncer(store).Versions(t.Context())
	a.must(err)
	if len(versions) != 4 {
		t.Fatalf("versions = %+v, want 4", versions)
	}
	for i, v := range versions {
		testkit.Equal(t, v.ID+" is current", v.Current, i == 0)
	}
	restore := func(at string) error {
		_, err := b.syncer(store).Restore(t.Context(), at)
		return err
	}
	b.must(restore(versions[3].ID))
	testkit.Equal(t, "restored tree", b.listing(), trees[0])
	b.must(restore("2026-01-01T02:30:00Z"))
	testkit.Equal(t, "tree restored by time", b.listing(), trees[2])
	a.pull(store)
	testkit.Equal(t, "other folder's tree", a.listing(), trees[2])
	for _, no := range []string{"2025-01-01T00:00:00Z", "20260101T000000.000000Z-00000000", "yesterday"} {
		testkit.WantCode(t, restore(no), schemas.CodeNotFound)
	}
	b.write("f", "not pushed")
	testkit.WantCode(t, restore(versions[0].ID), schemas.CodeConflict)
	b.want("f", "not pushed")
	now, err := a.syncer(store).Versions(t.Context())
	a.must(err)
	testkit.Equal(t, "number of versions: 4 pushes and 2 restores", len(now), 6)
}

func TestRestoreRefusesPlainLayout(t *testing.T) {
	a, store := newTree(t), newStore()
	a.write("f", "x")
	a.push(store, layout(syncer.Plain))
	_, err := a.syncer(store).Restore(t.Context(), "2026-01-01T02:30:00Z")
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
}

func TestCollectRemovesOldVersions(t *testing.T) {
	a, b, store := newTree(t), newTree(t), newStore()
	at := &clock{time.Now()}
	keep := func(c *syncer.Config) {
		at.option(c)
		c.Retention = syncer.Retention{Keep: 2, Grace: time.Hour}
	}
	for i := range 6 {
		a.write("f", strings.Repeat(fmt.Sprint(i), 2<<20))
		a.push(store, at.option)
		at.now = at.now.Add(time.Minute)
	}
	s := a.syncer(store, keep)
	collect := func(when string, want syncer.Collected) {
		t.Helper()
		got, err := s.Collect(t.Context())
		a.must(err)
		testkit.Equal(t, "collected "+when, got, want)
	}
	collect("within the grace", syncer.Collected{})
	at.now = at.now.Add(2 * time.Hour)
	collect("after the grace", syncer.Collected{Versions: 4, Objects: 4, Bytes: 4 * 2 << 20})
	collect("again", syncer.Collected{})
	versions, err := s.Versions(t.Context())
	a.must(err)
	if len(versions) != 2 {
		t.Fatalf("versions = %+v, want 2", versions)
	}
	_, err = b.syncer(store).Restore(t.Context(), versions[1].ID)
	a.must(err)
	testkit.Equal(t, "first byte of the restored file", b.read("f")[0], byte('4'))
	a.pull(store)
	sameTrees(t, a, b)
}

// TestPushRestartsAfterCollect collects garbage between the upload of content and the commit that mentions it.
func TestPushRestartsAfterCollect(t *testing.T) {
	a, b, store := newTree(t), newTree(t), newStore()
	future := &clock{time.Now().Add(48 * time.Hour)}
	a.write("old", strings.Repeat("o", 2<<20))
	a.push(store)
	a.remove("old")
	a.write("new", strings.Repeat("n", 2<<20))
	collected := false
	a.push(store, func(c *syncer.Config) {
		c.Progress = func(p syncer.Progress) {
			if p.Phase != "commit" || collected {
				return
			}
			collected = true
			done, err := b.syncer(store, future.option).Collect(t.Context())
			if err != nil || done.Objects != 1 {
				t.Errorf("collected %+v (error: %v), want the one uploaded object", done, err)
			}
		}
	})
	b.pull(store)
	sameTrees(t, a, b)
}

func TestPushRepacks(t *testing.T) {
	a, b, store := newTree(t), newTree(t), newStore()
	for i := range 40 {
		a.write(fmt.Sprint("f", i), strings.Repeat(fmt.Sprint(i), 3000))
	}
	a.push(store)
	for i := range 30 {
		a.write(fmt.Sprint("f", i), "short now")
	}
	a.push(store)
	for i := range 40 {
		a.write(fmt.Sprint("g", i), strings.Repeat("g", i+1))
		a.push(store)
	}
	b.pull(store)
	sameTrees(t, a, b)
	packs := 0
	future := &clock{time.Now().Add(48 * time.Hour)}
	_, err := a.syncer(store, future.option, func(c *syncer.Config) { c.Retention.Keep = 1 }).Collect(t.Context())
	a.must(err)
	for _, err := range store.List(t.Context(), state.ReservedName+".d/objects/") {
		a.must(err)
		packs++
	}
	if packs > 35 {
		t.Errorf("%d packs for 80 small files, want at most 35", packs)
	}
	c := newTree(t)
	c.pull(store)
	sameTrees(t, a, c)
}
