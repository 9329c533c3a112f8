package worktree_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
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

// indexMagic begins an index. A checksum of what is after it follows.
const indexMagic = "sluice-index-5\n\x00"

// seal gives the rest of an index, after its checksum, the beginning that makes it valid.
func seal(rest []byte) []byte {
	sum := crc32.Checksum(rest, crc32.MakeTable(crc32.Castagnoli))
	return append(binary.LittleEndian.AppendUint32([]byte(indexMagic), sum), rest...)
}

// FuzzDecodeIndex decodes what comes after a valid checksum, which a fuzzer does not find by itself: what is accepted is within its limit, and
// can be written.
func FuzzDecodeIndex(f *testing.F) {
	file := state.Node{Path: "d/f", Kind: state.File, Mode: 0o644, Size: 1, Modified: 5}
	full := &worktree.Index{Remote: "r", Token: "t", Whole: true, Base: state.State{Layout: state.Plain, ID: "id", Count: 3,
		Nodes: []state.Node{{Path: "d", Kind: state.Dir, Mode: 0o755}, file, {Path: "l", Kind: state.Symlink, Target: "d/f"}}}}
	full.Seen = []worktree.Seen{{Node: &full.Base.Nodes[1], Racy: true, Stat: worktree.Stat{Size: 1, Mtime: 5, Ctime: 6, Inode: 7, Mode: 0o644}}}
	for _, x := range []*worktree.Index{full, {Base: state.State{Layout: state.Plain}}} {
		data := x.Encode()
		rest := data[len(indexMagic)+4:]
		if !bytes.Equal(seal(rest), data) {
			f.Fatal("an index does not begin as this test has it")
		}
		f.Add(rest)
	}
	const entries = 1000
	f.Fuzz(func(t *testing.T, rest []byte) {
		data := seal(rest)
		x, err := worktree.DecodeIndex(bytes.NewReader(data), int64(len(data)), entries)
		if err != nil {
			return
		}
		if len(x.Base.Nodes) > entries || len(x.Seen) > entries {
			t.Fatalf("%d nodes and %d files seen were accepted, want at most %d", len(x.Base.Nodes), len(x.Seen), entries)
		}
		for i := range x.Seen {
			if x.Seen[i].Node == nil {
				t.Fatalf("file %d was accepted without a node", i)
			}
		}
		x.Encode() // whatever was accepted can be written
	})
}
