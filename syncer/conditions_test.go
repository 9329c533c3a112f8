package syncer_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// partsUnconditional is a store that ignores the conditions of content in parts, as some servers do.
type partsUnconditional struct {
	storetest.Memory
	mu   sync.Mutex
	puts []string
}

func (s *partsUnconditional) Put(ctx context.Context, key string, c objectstore.Content, cond objectstore.Condition) (string, error) {
	if c.Send == objectstore.InParts || c.Send == objectstore.BySize && c.Size > objectstore.PartsFrom {
		cond = objectstore.Condition{}
	}
	s.mu.Lock()
	s.puts = append(s.puts, key)
	s.mu.Unlock()
	return s.Memory.Put(ctx, key, c, cond)
}

// TestLargeStateIsReplacedConditionally has two folders replace a state of more than one part at once: no change is lost. Sync 3.
func TestLargeStateIsReplacedConditionally(t *testing.T) {
	store := &partsUnconditional{}
	a, b := treetest.New(t), treetest.New(t)
	long := strings.Repeat("d/", 2000)
	for i := range 4200 {
		a.Symlink(long, fmt.Sprint("l", i))
	}
	whole := func(c *syncer.Config) { c.Sizes.Whole = 1 << 30 }
	a.Push(store, whole)
	info, err := store.Stat(t.Context(), state.ReservedName)
	testkit.Must(t, err)
	if info.Size <= objectstore.PartsFrom {
		t.Fatalf("the state has %d bytes, want more than a part", info.Size)
	}
	b.Pull(store)
	b.Write("from-b", "b")
	b.Push(store, whole, atFirst("commit", func() {
		a.Write("from-a", "a")
		a.Push(store, whole)
	}))
	a.Pull(store)
	a.Want("from-a", "a")
	a.Want("from-b", "b")
}

// TestPullFirstDoesNotTrustTheStore pushes from a folder that has pulled before, to a store that ignores conditions. Sync 3.
func TestPullFirstDoesNotTrustTheStore(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{IgnoreConditions: true}
		single := func(c *syncer.Config) { c.SingleWriter = true }
		a.Write("f", "1")
		version := a.Push(store, o, single).Version
		a.Write("f", "2")
		a.Push(store, single)
		b.Pull(store)
		before := treetest.Objects(t, store)
		b.Write("f", "3")
		_, err := b.Syncer(store).Push(t.Context())
		testkit.WantCode(t, err, schemas.CodeInvalidArgument)
		if layoutOf(o) == state.Packed {
			_, err = treetest.New(t).Syncer(store).Restore(t.Context(), version)
			testkit.WantCode(t, err, schemas.CodeInvalidArgument)
			_, err = a.Syncer(store, func(c *syncer.Config) { c.Retention = syncer.Retention{Keep: 1, Grace: 1} }).Collect(t.Context())
			testkit.WantCode(t, err, schemas.CodeInvalidArgument)
		}
		testkit.Equal(t, "objects", treetest.Objects(t, store), before)
	})
}

// TestProbeIsRemembered counts the requests of a second push: the first one has tried the store. Sync 3.
func TestProbeIsRemembered(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &partsUnconditional{}
	a.Write("f", "1")
	a.Push(store)
	b.Pull(store)
	for round, want := range []int{7, 3} { // four of the probe; version, pack and state
		store.puts = nil
		b.Write("f", fmt.Sprint("new", round))
		b.Push(store)
		testkit.Equal(t, fmt.Sprint("puts of push ", round), len(store.puts), want)
	}
}

// TestLargePlainFileIsReplacedConditionally stores a plain file of more than one part where another tool writes at the same time. Sync 3.
func TestLargePlainFileIsReplacedConditionally(t *testing.T) {
	a, store := treetest.New(t), &partsUnconditional{}
	f, err := os.Create(a.Path("big"))
	a.Must(err)
	a.Must(f.Truncate(objectstore.PartsFrom + 1))
	a.Must(f.Close())
	r := a.Push(store, treetest.Layout(state.Plain), atFirst("commit", func() {
		_, err := store.Put(t.Context(), "big", objectstore.Bytes([]byte("of another tool")), objectstore.Condition{})
		testkit.Must(t, err)
	}))
	if len(r.Notes) == 0 {
		t.Error("notes are empty, want one for the file of another tool")
	}
	data, _, err := store.Get(t.Context(), "big", objectstore.Range{}, nil)
	testkit.Must(t, err)
	testkit.Equal(t, "file", string(data), "of another tool")
}
