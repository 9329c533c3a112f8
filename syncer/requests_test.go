package syncer_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// TestRequestsAreFew counts requests, which cost money. The first push of a folder tries the conditions of the store by five.
func TestRequestsAreFew(t *testing.T) {
	a, b := treetest.New(t), treetest.New(t)
	var count atomic.Int64
	store := &objectstore.Decorator{Store: &storetest.Memory{}, Do: func(_ context.Context, request func() error) error {
		count.Add(1)
		return request()
	}}
	requests := func(what string, want int64, do func()) {
		t.Helper()
		count.Store(0)
		do()
		testkit.Equal(t, "requests of "+what, count.Load(), want)
	}
	a.Write("f", "1")
	requests("a cold push", 8, func() { a.Push(store) })
	requests("a push of nothing", 1, func() { a.Push(store) })
	requests("a cold pull", 2, func() { b.Pull(store) })
	requests("a pull of nothing", 1, func() { b.Pull(store) })
	a.Write("f", "2")
	requests("a push of a change", 4, func() { a.Push(store) })
	requests("a pull of a change", 3, func() { b.Pull(store) })
	b.Write("f", "3")
	requests("the first push of a folder", 9, func() { b.Push(store) })
	b.Write("f", "4")
	requests("its next push", 4, func() { b.Push(store) })
}
