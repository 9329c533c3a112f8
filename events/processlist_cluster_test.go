package events

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// A list read through any server of a cluster has what was acknowledged, also when that server was cut off and lags behind.
func TestListsHaveWhatWasAcknowledged(t *testing.T) {
	c := newCluster(t)
	peers := []*peer{c.connect(0), c.connect(1), c.connect(2)}
	c.ensure(peers[0], Topology{})
	ctx := testkit.Context(t)
	writer := (c.leader(peers[0].names.evt) + 1) % 3 // no leader is cut off: a write waits for it
	cut := (writer + 1) % 3
	if cut == c.leader(peers[0].names.evt) {
		writer, cut = cut, writer
	}
	var want []string
	write := func(n int) {
		for range n {
			process := fmt.Sprint("p", len(want))
			var seq uint64
			testkit.Must(t, until(ctx, func(ctx context.Context) (err error) {
				seq, err = peers[writer].Append(ctx, record("t", process, schemas.TypeProcessExited, process), seq)
				return err
			}))
			want = append(want, process)
		}
	}
	write(200)
	c.isolate(cut, true)
	write(50)
	c.isolate(cut, false)
	slices.Reverse(want)
	for i, p := range peers {
		var got []string
		testkit.Must(t, until(ctx, func(ctx context.Context) error {
			got = nil
			return p.Reader.RecordsBefore(ctx, Filter{Thread: "t"}, 0, func(ev *schemas.Event) bool {
				got = append(got, ev.Process)
				return true
			})
		}))
		testkit.Equal(t, fmt.Sprint("processes through server ", i), got, want)
	}
}
