package syncer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
)

// clock is a Now that a test moves on.
type clock struct{ now time.Time }

func (c *clock) option(cfg *syncer.Config) { cfg.Now = func() time.Time { return c.now } }

func TestVersionsAreRestored(t *testing.T) {
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
	if len(versions) != 4 || !versions[0].Current || versions[3].Current {
		t.Fatalf("%+v", versions)
	}
	restore := func(at string) error {
		_, err := b.syncer(store).Restore(t.Context(), at)
		return err
	}
	b.must(restore(versions[3].ID))
	if !same(b.listing(), trees[0]) {
		t.Error(strings.Join(b.listing(), "\n"))
	}
	b.must(restore("2026-01-01T02:30:00Z"))
	if !same(b.listing(), trees[2]) {
		t.Error(strings.Join(b.listing(), "\n"))
	}
	a.pull(store)
	if !same(a.listing(), trees[2]) {
		t.Error("others do not see what was restored")
	}
	for _, no := range []string{"2025-01-01T00:00:00Z", "20260101T000000.000000Z-00000000", "yesterday"} {
		if err := restore(no); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("%s: %v", no, err)
		}
	}
	b.write("f", "not pushed")
	if err := restore(versions[0].ID); !errors.Is(err, schemas.ErrConflict) || b.read("f") != "not pushed" {
		t.Errorf("%v: what was not pushed is lost", err)
	}
	if now, err := a.syncer(store).Versions(t.Context()); err != nil || len(now) != 6 {
		t.Errorf("%d versions, %v: a restore that failed must change nothing, and one that did not loses nothing", len(now), err)
	}
}

func TestPlainHasNoVersions(t *testing.T) {
	a, store := newTree(t), newStore()
	a.write("f", "x")
	a.push(store, layout(syncer.Plain))
	if _, err := a.syncer(store).Restore(t.Context(), "2026-01-01T02:30:00Z"); !errors.Is(err, schemas.ErrInvalidArgument) {
		t.Error(err)
	}
}

func TestCollect(t *testing.T) {
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
	if done, err := s.Collect(t.Context()); err != nil || done != (syncer.Collected{}) {
		t.Errorf("within the grace: %+v, %v", done, err)
	}
	at.now = at.now.Add(2 * time.Hour)
	done, err := s.Collect(t.Context())
	if err != nil || done.Versions != 4 || done.Objects != 4 || done.Bytes != 4*2<<20 {
		t.Errorf("%+v, %v", done, err)
	}
	if done, err = s.Collect(t.Context()); err != nil || done != (syncer.Collected{}) {
		t.Errorf("again: %+v, %v", done, err)
	}
	versions, err := s.Versions(t.Context())
	if err != nil || len(versions) != 2 {
		t.Fatalf("%+v, %v", versions, err)
	}
	if _, err := b.syncer(store).Restore(t.Context(), versions[1].ID); err != nil || b.read("f")[0] != '4' {
		t.Error(err)
	}
	a.pull(store)
	sameTrees(t, a, b)
}

// TestCollectDuringAPush has a collection come between the upload of content and the commit that mentions it.
func TestCollectDuringAPush(t *testing.T) {
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
				t.Errorf("%+v, %v: the content on its way was to be taken for rubbish", done, err)
			}
		}
	})
	b.pull(store)
	sameTrees(t, a, b)
}

func TestPacksAreWrittenAnew(t *testing.T) {
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
	for _, err := range store.List(t.Context(), syncer.ReservedName+".d/objects/") {
		a.must(err)
		packs++
	}
	if packs > 35 {
		t.Errorf("%d packs for 80 small files", packs)
	}
	c := newTree(t)
	c.pull(store)
	sameTrees(t, a, c)
}
