package packed_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/state/statetest"
	"github.com/sluice-dev/sluice/syncer/storetest"
)

// stater stores one state after another, as pushes do, and counts what each sends.
type stater struct {
	t interface {
		Helper()
		Fatal(...any)
	}
	store *storetest.Memory
	sizes packed.StateSizes
	now   *state.State
	puts  int   // objects of the last state
	sent  int64 // bytes of the last state: its segments, its root, and the version of the one before
}

func (s *stater) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// push stores nodes, whose locations refer to objects, as the next state.
func (s *stater) push(nodes []state.Node, objects []state.Object) {
	s.t.Helper()
	s.puts, s.sent = 0, 0
	counted := &counting{s.store, s}
	next := &state.State{Layout: state.Packed, Nodes: nodes, Objects: objects, SyncedAt: time.Unix(1e9, 0).UTC()}
	next.CompactObjects()
	was := s.now
	if was == nil {
		was = &state.State{Layout: state.Packed}
	}
	version, err := new(packed.Compressor).Compress(was.Encode())
	s.must(err)
	l := packed.Layout{Index: packed.NewObjectIndex(counted, was, ""), Sizes: s.sizes}
	s.must(l.Segment(context.Background(), next, s.now))
	root, err := next.Seal(state.Limits{})
	s.must(err)
	s.sent += int64(len(root) + len(version))
	s.now = next
}

type counting struct {
	*storetest.Memory
	s *stater
}

func (c *counting) Put(ctx context.Context, key string, body objectstore.Content, cond objectstore.Condition) (string, error) {
	c.s.puts++
	c.s.sent += body.Size
	return c.Memory.Put(ctx, key, body, cond)
}

func (s *stater) read(stored, known *state.State) *state.State {
	s.t.Helper()
	got, err := packed.ReadState(context.Background(), s.store, stored.Encode(), []*state.State{known}, state.Limits{}, 0)
	s.must(err)
	return got
}

// lines describes a state without the numbers of its objects.
func lines(s *state.State) (all []string) {
	for _, n := range s.Nodes {
		var objects []string
		for _, o := range n.At.Objects {
			objects = append(objects, s.Objects[o].Key())
		}
		n.At.Objects = nil
		all = append(all, fmt.Sprintf("%+v in %v", n, objects))
	}
	return all
}

// tree draws nodes, and places them in objects.
func tree(t *rapid.T, name string, objects []state.Object) []state.Node {
	nodes := statetest.Tree(t, name)
	for i := range nodes {
		if n := &nodes[i]; n.Kind == state.File {
			n.At = state.Location{Objects: []uint32{rapid.Uint32Range(0, uint32(len(objects)-1)).Draw(t, "object")}}
		}
	}
	return nodes
}

func someObjects(n int) []state.Object {
	objects := make([]state.Object, n)
	for i := range objects {
		objects[i] = state.Object{Digest: sha256.Sum256([]byte{byte(i), byte(i >> 8)}), Size: state.ChunkSize}
	}
	return objects
}

// TestSegmentedStateRoundTrips stores a series of trees: what is read of each is what was stored, also with what is known of any other,
// such as of a later one after a rollback. Sync 13.
func TestSegmentedStateRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &stater{t: t, store: &storetest.Memory{}, sizes: packed.StateSizes{
			Whole: rapid.Int64Range(1, 3000).Draw(t, "whole"), Root: rapid.Int64Range(1, 3000).Draw(t, "root"),
			Entries: rapid.IntRange(1, 5).Draw(t, "entries"), Object: rapid.Int64Range(1, 2000).Draw(t, "object"),
			Objects: rapid.IntRange(1, 4).Draw(t, "objects"),
		}}
		var stored []*state.State
		known := []*state.State{nil}
		for round := range 6 {
			objects := someObjects(3)
			s.push(tree(t, fmt.Sprint("tree", round), objects), objects)
			stored, known = append(stored, s.now), append(known, s.read(s.now, nil))
		}
		for _, want := range stored {
			for _, k := range known {
				got := s.read(want, k)
				if diff := cmp.Diff(lines(want), lines(got)) + cmp.Diff(want.Segments, got.Segments, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("state differs (-want +got):\n%s", diff)
				}
			}
		}
	})
}

// TestFirstSegmentOfAnotherStateHasMoreBeforeIt reads a state with what is known of one in which a path before the shared segment has no
// segment of its own: the path is not taken twice.
func TestFirstSegmentOfAnotherStateHasMoreBeforeIt(t *testing.T) {
	s := &stater{t: t, store: &storetest.Memory{}, sizes: packed.StateSizes{Whole: 1, Entries: 1}}
	objects := someObjects(1)
	a, b, c := statetest.File("a", "1"), statetest.File("b", "1"), statetest.File("c", "1")
	for _, n := range []*state.Node{&a, &b, &c} {
		n.At.Objects = []uint32{0}
	}
	push := func(root int64, nodes ...state.Node) *state.State {
		s.sizes.Root = root
		s.push(nodes, objects)
		return s.now
	}
	const keep, rewrite = 64 << 10, 1
	push(keep, a, b, c)
	want := push(keep, changed(a, 2), b, c)
	push(rewrite, c)
	known := push(keep, changed(a, 3), c)
	if diff := cmp.Diff(lines(want), lines(s.read(want, known))); diff != "" {
		t.Errorf("state differs (-want +got):\n%s", diff)
	}
}

// files makes a tree of files as pushes leave it: a hundred in a folder, 2,000 in an object.
func files(n int) (nodes []state.Node, objects []state.Object) {
	objects = someObjects(n/2000 + 1)
	for i := range n {
		if i%100 == 0 {
			nodes = append(nodes, state.Node{Path: fmt.Sprintf("folder-%04d", i/100), Kind: state.Dir, Mode: 0o755, Hashed: true})
		}
		at := state.Location{Objects: []uint32{uint32(i / 2000)}, Offset: int64(i%2000) * 4096}
		nodes = append(nodes, changed(state.Node{Path: fmt.Sprintf("folder-%04d/file-%03d.dat", i/100, i%100), At: at}, i))
	}
	return nodes, objects
}

func changed(n state.Node, to int) state.Node {
	data := fmt.Appendf(nil, "content %d of %s", to, n.Path)
	n.Kind, n.Mode, n.Size, n.Hashed = state.File, 0o644, 4096, true
	n.MD5, n.Digest, n.Modified = md5.Sum(data), sha256.Sum256(data), 1_767_323_045_123_456_789+int64(to)*1_000_003
	return n
}

// change gives files of random folders new content, in one pack, and stores that.
func (s *stater) change(random *rand.Rand, files, count, round int) {
	s.t.Helper()
	nodes, objects := slices.Clone(s.now.Nodes), slices.Clone(s.now.Objects)
	at := state.Location{Objects: []uint32{uint32(len(objects))}}
	objects = append(objects, state.Object{Digest: sha256.Sum256(fmt.Append(nil, "pack", round)), Size: 4096})
	for range count {
		i, _ := s.now.Search(fmt.Sprintf("folder-%04d/file-%03d.dat", random.IntN(files)/100, random.IntN(100)))
		nodes[i] = changed(nodes[i], files+round)
		nodes[i].At = at
	}
	s.push(nodes, objects)
}

// TestLaterStateHasLongerRange reads a state with what is known of a later one, whose segment of the same content has a longer range, since
// the one after it is gone. Sync 13.
func TestLaterStateHasLongerRange(t *testing.T) {
	s := &stater{t: t, store: &storetest.Memory{}}
	push := func(root int64, paths string) *state.State {
		s.sizes = packed.StateSizes{Whole: 1, Root: root, Entries: 3}
		var nodes []state.Node
		for path := range strings.FieldsSeq(paths) {
			nodes = append(nodes, changed(state.Node{Path: path, At: state.Location{Objects: []uint32{0}}}, 0))
		}
		s.push(nodes, someObjects(1))
		return s.now
	}
	push(1000, "a1 a2 a3 f1 f2 f3 p1 p2 p3")
	earlier := push(1000, "a1 a2 a3 f1 f2 f3 f5 g0 p1 p2 p3")
	push(1, "a1 a2 a3 p1 p2 p3")
	later := push(1000, "a1 a2 a3 g0 p1 p2 p3")
	testkit.Equal(t, "segments", []int{len(earlier.Segments.List), len(later.Segments.List)}, []int{3, 2})
	testkit.Equal(t, "nodes", lines(s.read(earlier, s.read(later, nil))), lines(earlier))
	testkit.Equal(t, "nodes", lines(s.read(later, s.read(earlier, nil))), lines(later))
}

// TestSmallChangesSendLittle counts the bytes of states for single changes in any folder: when little has changed before, when the root is
// full, and while segments move to new objects. Sync 13.
func TestSmallChangesSendLittle(t *testing.T) {
	for _, c := range []struct {
		files, rounds        int
		sizes                packed.StateSizes
		first, mean, largest int64 // bytes of a change
	}{
		{files: 10_000, rounds: 20, first: 10_000, mean: 110_000, largest: 160_000},
		{files: 300_000, rounds: 2, first: 150_000, mean: 250_000, largest: 400_000}, // and 600 kB when an object is emptied: a share of 1/32
		{files: 2_000, rounds: 100, sizes: packed.StateSizes{Whole: 1, Root: 4_000, Entries: 32, Objects: 8},
			first: 20_000, mean: 30_000, largest: 45_000},
	} {
		random := rand.New(rand.NewPCG(1, 2))
		s := &stater{t: t, store: &storetest.Memory{}, sizes: c.sizes}
		s.push(files(c.files))
		all, puts := s.sent, s.puts
		s.change(random, c.files, 1, 0)
		first := s.sent
		s.change(random, c.files, 250, 1)
		sum, largest, more, objects := int64(0), int64(0), 0, 0
		for round := range c.rounds {
			s.change(random, c.files, 1, 2+round)
			sum, largest, more = sum+s.sent, max(largest, s.sent), more+min(1, s.puts)
			objects = max(objects, len(s.now.Segments.Objects))
		}
		mean := sum / int64(c.rounds)
		t.Logf("%d files: all %d bytes in %d objects; the first change %d; with a full root %d, at most %d, segments in %d of %d; %d objects",
			c.files, all, puts, first, mean, largest, more, c.rounds, objects)
		if first > c.first || mean > c.mean || largest > c.largest {
			t.Errorf("%d files: changes sent %d, %d and at most %d bytes, want at most %d, %d and %d", c.files, first, mean, largest,
				c.first, c.mean, c.largest)
		}
		if most := c.sizes.WithDefaults().Objects; objects > most {
			t.Errorf("%d files: segments are in %d objects, want at most %d", c.files, objects, most)
		}
	}
}

// TestCompressorIsUsedAgain compresses different contents one after the other: each is what a new compressor makes of it.
func TestCompressorIsUsedAgain(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	dec, err := zstd.NewReader(nil)
	testkit.Must(t, err)
	defer dec.Close()
	var again packed.Compressor
	for _, size := range []int{0, 1, 1 << 20, 100, 3 << 20, 1 << 10} {
		content := make([]byte, size)
		for i := range content {
			content[i] = "0123456789abcdef"[random.IntN(16)]
		}
		got, err := again.Compress(content)
		testkit.Must(t, err)
		want, err := new(packed.Compressor).Compress(content)
		testkit.Must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes: they are compressed differently the second time", size)
		}
		back, err := dec.DecodeAll(got, nil)
		testkit.Must(t, err)
		testkit.Equal(t, "content", bytes.Equal(back, content), true)
	}
}

// TestHostileSegmentsAreRefused changes roots and segments that are whole by their checksums. Sync 13.
func TestHostileSegmentsAreRefused(t *testing.T) {
	s := &stater{t: t, store: &storetest.Memory{}, sizes: packed.StateSizes{Whole: 1, Root: 1, Entries: 40}}
	s.push(files(200))
	good := s.now.Segments
	object := good.Objects[0]
	// segment makes the first segment the given bytes, as the root then says.
	segment := func(g *state.Segments, content []byte) {
		stored, err := new(packed.Compressor).Compress(content)
		testkit.Must(t, err)
		o := state.Object{Digest: sha256.Sum256(stored), Size: int64(len(stored))}
		_, err = s.store.Put(t.Context(), o.Key(), objectstore.Bytes(stored), objectstore.Condition{})
		testkit.Must(t, err)
		p := &g.List[0]
		p.Object, p.Offset, p.Size, p.Bytes, p.Digest = uint32(len(g.Objects)), 0, o.Size, int64(len(content)), o.Digest
		g.Objects = append(g.Objects, o)
	}
	first := func(nodes []state.Node) []byte { return s.now.EncodeSegment(nodes) }
	nodes := s.now.NodesIn(0)
	for name, change := range map[string]func(g *state.Segments){
		"no object":      func(g *state.Segments) { g.List[1].Object = 7 },
		"before":         func(g *state.Segments) { g.List[1].Offset = -1 },
		"beyond":         func(g *state.Segments) { g.List[1].Offset = object.Size },
		"far beyond":     func(g *state.Segments) { g.List[1].Offset = 1<<63 - 1 },
		"empty":          func(g *state.Segments) { g.List[1].Size = 0 },
		"huge":           func(g *state.Segments) { g.List[1].Bytes = 1 << 62 },
		"longer":         func(g *state.Segments) { g.List[1].Bytes++ },
		"shorter":        func(g *state.Segments) { g.List[1].Bytes-- },
		"more entries":   func(g *state.Segments) { g.List[1].Entries++ },
		"fewer entries":  func(g *state.Segments) { g.List[1].Entries-- },
		"many entries":   func(g *state.Segments) { g.List[1].Entries = 1 << 60 },
		"digest":         func(g *state.Segments) { g.List[1].Digest[0] ^= 1 },
		"twice":          func(g *state.Segments) { g.List[1] = g.List[0] },
		"order":          func(g *state.Segments) { g.List[0], g.List[1] = g.List[1], g.List[0] },
		"path":           func(g *state.Segments) { g.List[1].First = "../escaped" },
		"other first":    func(g *state.Segments) { g.List[1].First += "x" },
		"object of push": func(g *state.Segments) { g.Objects[0].Push = "1" },
		"large segment":  func(g *state.Segments) { g.List[1].Bytes = 65 << 20 },
		"large object":   func(g *state.Segments) { g.Objects[0].Size = 1 << 40 },
		"missing":        func(g *state.Segments) { g.Objects[0].Digest[0] ^= 1 },
		"torn":           func(g *state.Segments) { segment(g, first(nodes)[:100]) },
		"no JSON":        func(g *state.Segments) { segment(g, []byte("x")) },
		"other range":    func(g *state.Segments) { segment(g, first(s.now.NodesIn(1))) },
		"repeated path": func(g *state.Segments) {
			segment(g, first(append(slices.Clone(nodes[:len(nodes)-1]), nodes[0])))
		},
		"reaches into the next": func(g *state.Segments) {
			segment(g, first(append(slices.Clone(nodes[:len(nodes)-1]), s.now.NodesIn(1)[0])))
		},
		"escapes": func(g *state.Segments) {
			n := nodes[1]
			n.Path = "folder-0000/../../escaped"
			segment(g, first(append(slices.Clone(nodes[:len(nodes)-1]), n)))
		},
	} {
		bad := *s.now
		bad.Segments = state.Segments{List: slices.Clone(good.List), Objects: slices.Clone(good.Objects), Changed: good.Changed}
		change(&bad.Segments)
		_, err := packed.ReadState(t.Context(), s.store, bad.Encode(), nil, state.Limits{}, 0)
		if code := schemas.CodeOf(err); code != schemas.CodeInvalidArgument && code != schemas.CodeTooLarge && code != schemas.CodeDamaged {
			t.Errorf("%s: code = %q, want invalid_argument, too_large or damaged (error: %v)", name, code, err)
		}
	}
}
