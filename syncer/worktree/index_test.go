package worktree_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/state/statetest"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

func TestIndexRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := statetest.Tree(t, "")
		x := &worktree.Index{Remote: "r", Token: "t", Whole: true,
			Base: state.State{Layout: state.Plain, ID: "id", Count: 3, Nodes: nodes}}
		for i := range nodes {
			if n := &nodes[i]; n.Kind == state.File {
				own := *n
				if rapid.Bool().Draw(t, "own") {
					own.Mode = 0o600
				}
				x.Seen = append(x.Seen, worktree.Seen{Node: &own, Racy: rapid.Bool().Draw(t, "racy"),
					Stat: worktree.Stat{Size: n.Size, Mtime: 5, Ctime: int64(i), Inode: 7, Mode: 0o644}})
			}
		}
		data := x.Encode()
		got, err := worktree.DecodeIndex(bytes.NewReader(data), int64(len(data)), 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			what      string
			got, want any
		}{
			{"remote", got.Remote, x.Remote}, {"token", got.Token, x.Token}, {"whole", got.Whole, x.Whole},
			{"ID", got.Base.ID, x.Base.ID}, {"never synced", got.Base.SyncedAt.IsZero(), true},
			{"nodes", got.Base.Nodes, x.Base.Nodes},
			{"seen", got.Seen, x.Seen},
		} {
			if diff := cmp.Diff(c.want, c.got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%s differs (-want +got):\n%s", c.what, diff)
			}
		}
		data[rapid.IntRange(0, len(data)-1).Draw(t, "at")] ^= 1
		if _, err := worktree.DecodeIndex(bytes.NewReader(data), int64(len(data)), 1000); err == nil {
			t.Fatal("DecodeIndex accepted a damaged index")
		}
	})
}
