package syncer_test

import (
	"context"
	"os"
	"sync/atomic"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// cutAfterState is a store of which the connection is lost once the state was stored.
type cutAfterState struct {
	storetest.Memory
	armed, cut atomic.Bool
}

func (s *cutAfterState) lost() error {
	if s.cut.Load() {
		return schemas.Errorf(schemas.CodeUnavailable, "cut")
	}
	return nil
}

func (s *cutAfterState) Put(ctx context.Context, key string, c objectstore.Content, cond objectstore.Condition) (string, error) {
	token, err := s.Memory.Put(ctx, key, c, cond)
	if err == nil && key == state.ReservedName && s.armed.Load() {
		s.cut.Store(true)
		err = s.lost()
	}
	return token, err
}

func (s *cutAfterState) Get(ctx context.Context, key string, r objectstore.Range, dst []byte) ([]byte, objectstore.Info, error) {
	if err := s.lost(); err != nil {
		return nil, objectstore.Info{}, err
	}
	return s.Memory.Get(ctx, key, r, dst)
}

// TestLostAnswerIsNoConflict loses the connection right after the state was stored, then changes the same file again, in one run after
// another folder has pushed. Sync 8.
func TestLostAnswerIsNoConflict(t *testing.T) {
	for _, further := range []bool{false, true} {
		treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
			a, b, store := treetest.New(t), treetest.New(t), &cutAfterState{}
			a.Write("f", "1")
			a.Write("g", "1")
			a.Push(store, o)
			a.Write("f", "22")
			store.armed.Store(true)
			_, err := a.Syncer(store).Push(t.Context())
			testkit.WantCode(t, err, schemas.CodeUnavailable)
			store.armed.Store(false)
			store.cut.Store(false)
			if further {
				b.Pull(store)
				b.Write("g", "of b")
				b.Push(store)
			}
			a.Write("f", "333")
			a.Push(store)
			a.Pull(store)
			a.WantNoLeftovers()
			b.Pull(store)
			b.Want("f", "333")
			treetest.Same(t, a, b)
		})
	}
}

// TestRefusedPushAfterLostAnswerIsNoConflict has a push that is refused between the one whose answer was lost and the next. Sync 8.
func TestRefusedPushAfterLostAnswerIsNoConflict(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, b, store := treetest.New(t), treetest.New(t), &cutAfterState{}
		a.Write("f", "1")
		a.Push(store, o)
		a.Write("f", "22")
		store.armed.Store(true)
		_, err := a.Syncer(store).Push(t.Context())
		testkit.WantCode(t, err, schemas.CodeUnavailable)
		store.armed.Store(false)
		store.cut.Store(false)
		a.Write("f", "333")
		_, err = a.Syncer(store, func(c *syncer.Config) {
			c.Fence = func(context.Context) error { return schemas.Errorf(schemas.CodePermissionDenied, "refused") }
		}).Push(t.Context())
		testkit.WantCode(t, err, schemas.CodePermissionDenied)
		a.Push(store)
		a.WantNoLeftovers()
		b.Pull(store)
		b.Want("f", "333")
	})
}

// killedCopy copies a folder at a phase of its sync: what a kill would leave.
func killedCopy(a *treetest.Tree, phase string) (*treetest.Tree, treetest.Option) {
	left := treetest.New(a.T)
	return left, atFirst(phase, func() { a.Must(os.CopyFS(left.Dir, os.DirFS(a.Dir))) })
}

// TestKilledPublishIsNoConflict kills a plain push while it publishes, and changes the same file again. Sync 8.
func TestKilledPublishIsNoConflict(t *testing.T) {
	a, store := treetest.New(t), &storetest.Memory{}
	a.Write("f", "1")
	a.Push(store, treetest.Layout(state.Plain))
	a.Write("f", "22")
	left, kill := killedCopy(a, "publish")
	a.Push(store, kill)
	left.Write("f", "333")
	left.Push(store)
	left.WantNoLeftovers()
	a.Pull(store)
	a.Want("f", "333")
}

// TestRefusedPushLeavesNoIntent pushes what is refused, from a folder that knows of no intent then, and what another folder has
// pushed since stays a conflict. Sync 8.
func TestRefusedPushLeavesNoIntent(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
		a.Write("f", "1")
		a.Push(store, o)
		b.Pull(store)
		a.Write("f", "of a")
		_, err := a.Syncer(store, atFirst("commit", func() {
			b.Write("f", "of b")
			b.Push(store)
		})).Push(t.Context())
		testkit.WantCode(t, err, schemas.CodeConflict)
		a.WantNoLeftovers()
		_, err = a.Syncer(store).Push(t.Context())
		testkit.WantCode(t, err, schemas.CodeConflict)
		b.Want("f", "of b")
	})
}

// TestIndexThatCannotBeWrittenIsNoConflict has a folder in place of the index, which is only a cache. Sync 8.
func TestIndexThatCannotBeWrittenIsNoConflict(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	a.Mkdir(state.ReservedName + ".index/x")
	for _, text := range []string{"1", "22"} {
		a.Write("f", text)
		if r := a.Push(store); len(r.Notes) != 1 {
			t.Errorf("notes = %q, want one for the index", r.Notes)
		}
	}
	b.Pull(store)
	b.Want("f", "22")
}
