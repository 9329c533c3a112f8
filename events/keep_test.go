package events

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// Ten minutes 1: a command that starts a server on the files of a `sluice up` changed its streams to the defaults.
func TestKeepLeavesStreams(t *testing.T) {
	n := newNode(t, true)
	up := n.connect()
	ctx := testkit.Context(t)
	testkit.Must(t, up.Ensure(ctx, Topology{LogBytes: 64 << 20, LogProcessBytes: 3 << 20, LogTenantBytes: 5 << 20}))
	c := n.connect()
	testkit.Must(t, c.Ensure(ctx, Topology{Keep: true}))
	s, err := c.js.Stream(ctx, c.names.log)
	testkit.Must(t, err)
	testkit.Equal(t, "bytes of LOG", s.CachedInfo().Config.MaxBytes, int64(64<<20))
	process, tenant := budgetsOf(s.CachedInfo().Config.Metadata)
	testkit.Equal(t, "budgets of LOG", []int64{process, tenant}, []int64{3 << 20, 5 << 20})
	testkit.Equal(t, "budget of a process", c.budget.ofProcess(), int64(3<<20))
}
