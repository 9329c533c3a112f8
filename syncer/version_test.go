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
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// clock is a time that a test advances.
type clock struct{ now time.Time }

func (c *clock) option(cfg *syncer.Config) { cfg.Now = func() time.Time { return c.now } }

func TestRestoreBringsBackVersions(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	at := &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	var trees [][]string
	for i := range 4 {
		a.Write("f", strings.Repeat("x", i))
		a.Write(fmt.Sprint("only-in-", i), "x")
		a.Remove(fmt.Sprint("only-in-", i-1))
		a.Push(store, at.option)
		trees = append(trees, a.List())
		at.now = at.now.Add(time.Hour)
	}
	versions, err := a.Syncer(store).Versions(t.Context())
	a.Must(err)
	if len(versions) != 4 {
		t.Fatalf("versions = %+v, want 4", versions)
	}
	for i, v := range versions {
		testkit.Equal(t, v.ID+" is current", v.Current, i == 0)
	}
	restore := func(at string) error {
		_, err := b.Syncer(store).Restore(t.Context(), at)
		return err
	}
	b.Must(restore(versions[3].ID))
	testkit.Equal(t, "restored tree", b.List(), trees[0])
	b.Must(restore("2026-01-01T02:30:00Z"))
	testkit.Equal(t, "tree restored by time", b.List(), trees[2])
	a.Pull(store)
	testkit.Equal(t, "other folder's tree", a.List(), trees[2])
	for _, no := range []string{"2025-01-01T00:00:00Z", "20260101T000000.000000Z-00000000", "yesterday"} {
		testkit.WantCode(t, restore(no), schemas.CodeNotFound)
	}
	b.Write("f", "not pushed")
	testkit.WantCode(t, restore(versions[0].ID), schemas.CodeConflict)
	b.Want("f", "not pushed")
	now, err := a.Syncer(store).Versions(t.Context())
	a.Must(err)
	testkit.Equal(t, "number of versions: 4 pushes and 2 restores", len(now), 6)
}

func TestRestoreRefusesPlainLayout(t *testing.T) {
	a, store := treetest.New(t), &storetest.Memory{}
	a.Write("f", "x")
	a.Push(store, treetest.Layout(state.Plain))
	_, err := a.Syncer(store).Restore(t.Context(), "2026-01-01T02:30:00Z")
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
}

func TestCollectRemovesOldVersions(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	at := &clock{time.Now()}
	keep := func(c *syncer.Config) {
		at.option(c)
		c.Retention = syncer.Retention{Keep: 2, Grace: time.Hour}
	}
	for i := range 6 {
		a.Write("f", strings.Repeat(fmt.Sprint(i), 2<<20))
		a.Push(store, at.option)
		at.now = at.now.Add(time.Minute)
	}
	s := a.Syncer(store, keep)
	collect := func(when string, want syncer.Collected) {
		t.Helper()
		got, err := s.Collect(t.Context())
		a.Must(err)
		testkit.Equal(t, "collected "+when, got, want)
	}
	collect("within the grace", syncer.Collected{})
	at.now = at.now.Add(2 * time.Hour)
	collect("after the grace", syncer.Collected{Versions: 4, Objects: 4, Bytes: 4 * 2 << 20})
	collect("again", syncer.Collected{})
	versions, err := s.Versions(t.Context())
	a.Must(err)
	if len(versions) != 2 {
		t.Fatalf("versions = %+v, want 2", versions)
	}
	_, err = b.Syncer(store).Restore(t.Context(), versions[1].ID)
	a.Must(err)
	testkit.Equal(t, "first byte of the restored file", b.Read("f")[0], byte('4'))
	a.Pull(store)
	treetest.Same(t, a, b)
}

// TestPushRestartsAfterCollect collects garbage between the upload of content and the commit that mentions it.
func TestPushRestartsAfterCollect(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	future := &clock{time.Now().Add(48 * time.Hour)}
	a.Write("old", strings.Repeat("o", 2<<20))
	a.Push(store)
	a.Remove("old")
	a.Write("new", strings.Repeat("n", 2<<20))
	a.Push(store, atFirst("commit", func() {
		done, err := b.Syncer(store, future.option).Collect(t.Context())
		if err != nil || done.Objects != 1 {
			t.Errorf("collected %+v (error: %v), want the one uploaded object", done, err)
		}
	}))
	b.Pull(store)
	treetest.Same(t, a, b)
}

func TestPushRepacks(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	for i := range 40 {
		a.Write(fmt.Sprint("f", i), strings.Repeat(fmt.Sprint(i), 3000))
	}
	a.Push(store)
	for i := range 30 {
		a.Write(fmt.Sprint("f", i), "short now")
	}
	a.Push(store)
	for i := range 40 {
		a.Write(fmt.Sprint("g", i), strings.Repeat("g", i+1))
		a.Push(store)
	}
	b.Pull(store)
	treetest.Same(t, a, b)
	packs := 0
	future := &clock{time.Now().Add(48 * time.Hour)}
	_, err := a.Syncer(store, future.option, func(c *syncer.Config) { c.Retention.Keep = 1 }).Collect(t.Context())
	a.Must(err)
	for _, err := range store.List(t.Context(), state.ReservedName+".d/objects/") {
		a.Must(err)
		packs++
	}
	if packs > 35 {
		t.Errorf("%d packs for 80 small files, want at most 35", packs)
	}
	c := treetest.New(t)
	c.Pull(store)
	treetest.Same(t, a, c)
}
