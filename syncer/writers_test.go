package syncer_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// refusing is a store that refuses conditions, as servers do that answer them with 501.
type refusing struct{ storetest.Memory }

func (s *refusing) Put(ctx context.Context, key string, c objectstore.Content, cond objectstore.Condition) (string, error) {
	if cond != (objectstore.Condition{}) {
		return "", schemas.Errorf(schemas.CodeInvalidArgument, "a header you provided implies functionality that is not implemented")
	}
	return s.Memory.Put(ctx, key, c, cond)
}

// TestSingleWriterSendsNoConditions pushes, changes, restores and prunes with a store that refuses conditions. Sync 11.
func TestSingleWriterSendsNoConditions(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, b, store := treetest.New(t), treetest.New(t), &refusing{}
		single := func(c *syncer.Config) {
			o(c)
			c.SingleWriter, c.Retention = true, syncer.Retention{Keep: 1, Grace: 1}
		}
		for i := range 3 {
			a.Write("f", fmt.Sprint(i))
			a.Write("large", strings.Repeat(fmt.Sprint(i), 2<<20))
			a.Push(store, single)
		}
		_, err := a.Syncer(store, single).Collect(t.Context())
		testkit.Must(t, err)
		b.Pull(store, single)
		treetest.Same(t, a, b)
	})
}

// TestVersionOfTheFutureIsPruned has a writer whose clock is in 2099: pruning goes by the store's clock, and each push says that a clock
// is wrong. Versions since have later names still, and were kept until then. Sync 11.
func TestVersionOfTheFutureIsPruned(t *testing.T) {
	a, store := treetest.New(t), &storetest.Memory{}
	wrong := &clock{time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)}
	var notes []string
	for i := range 5 {
		a.Write("f", fmt.Sprint(i))
		if i == 1 {
			a.Push(store, wrong.option)
		} else {
			notes = a.Push(store).Notes
		}
	}
	testkit.Contains(t, "notes", strings.Join(notes, "\n"), "2099-01-01")
	keep := func(c *syncer.Config) { c.Retention = syncer.Retention{Keep: 2, Grace: time.Hour} }
	collect := func(what string, want int, options ...treetest.Option) {
		t.Helper()
		got, err := a.Syncer(store, append(options, keep)...).Collect(t.Context())
		testkit.Must(t, err)
		testkit.Equal(t, "versions removed "+what, got.Versions, want)
	}
	collect("within the grace", 0)
	later := &clock{time.Now().Add(2 * time.Hour)}
	collect("after the grace", 3, later.option)

	// By age, too: that of 2099 is as old as the store says.
	aged := func(c *syncer.Config) { c.Retention = syncer.Retention{Age: time.Minute, Grace: time.Hour} }
	got, err := a.Syncer(store, aged, later.option).Collect(t.Context())
	testkit.Must(t, err)
	testkit.Equal(t, "versions removed by age", got.Versions, 1)
	for info, err := range store.List(t.Context(), state.VersionPrefix) {
		testkit.Must(t, err)
		t.Errorf("left: %s", info.Key)
	}
}
