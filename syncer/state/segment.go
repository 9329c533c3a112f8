package state

import (
	"slices"

	"github.com/sluice-dev/sluice/schemas"
)

// Segments are the immutable parts in which the store has most of a long state of the packed layout. What remains is the root: the
// header, the list of segments, and the paths that have changed since. The zero value has none: such a state is whole.
type Segments struct {
	List    []Segment // in path order
	Objects []Object  // what the list refers to
	Changed []string  // the paths that the root has, and those that were removed, in walk order: in the segments they are outdated
}

// Segment has the nodes of a range of paths, compressed. A state that does not change them shares it with the states before.
type Segment struct {
	First   string // the path of its first node; its range ends where that of the next begins
	Object  uint32 // index into [Segments].Objects
	Offset  int64  // in the object
	Size    int64  // bytes in the object
	Bytes   int64  // bytes decompressed
	Entries int    // nodes
	Digest  Digest // of the Size bytes
}

// shares reports whether segment i of g is segment k of other: the same bytes at the same place.
func (g *Segments) shares(i int, other *Segments, k int) bool {
	a, b := g.List[i], other.List[k]
	same := g.Objects[a.Object] == other.Objects[b.Object]
	a.Object = b.Object
	return same && a == b
}

// end returns the path at which the range of segment i ends, "" for the last one.
func (g *Segments) end(i int) string {
	if i+1 == len(g.List) {
		return ""
	}
	return g.List[i+1].First
}

// Find returns the segment whose range has the path. There has to be one.
func (g *Segments) Find(path string) int {
	at, exact := slices.BinarySearchFunc(g.List, path, func(s Segment, p string) int { return ComparePaths(s.First, p) })
	if exact {
		return at
	}
	return max(0, at-1) // the first one has everything before it too
}

// within returns which of n things, of which search finds the first from a path on, are in the range of segment i.
func (g *Segments) within(i, n int, search func(path string) (int, bool)) (from, to int) {
	if i > 0 {
		from, _ = search(g.List[i].First)
	}
	if i+1 < len(g.List) {
		n, _ = search(g.List[i+1].First)
	}
	return from, n
}

// changedIn returns the changed paths in the range of segment i.
func (g *Segments) changedIn(i int) []string {
	from, to := g.within(i, len(g.Changed), func(p string) (int, bool) { return slices.BinarySearchFunc(g.Changed, p, ComparePaths) })
	return g.Changed[from:to]
}

// NodesIn returns the nodes in the range of segment i.
func (s *State) NodesIn(i int) []Node {
	from, to := s.Segments.within(i, len(s.Nodes), s.Search)
	return s.Nodes[from:to]
}

// Carry takes over the segments of was, and finds which paths of s are not up to date in them.
func (s *State) Carry(was *State) {
	s.Segments = was.Segments
	if len(was.Segments.List) == 0 {
		return
	}
	changed := slices.Clone(was.Segments.Changed)
	old := was.Nodes
	for i := range s.Nodes {
		n := &s.Nodes[i]
		for ; len(old) > 0 && ComparePaths(old[0].Path, n.Path) < 0; old = old[1:] {
			changed = append(changed, old[0].Path)
		}
		if len(old) > 0 && old[0].Path == n.Path {
			if !s.equal(n, was, &old[0]) {
				changed = append(changed, n.Path)
			}
			old = old[1:]
		} else {
			changed = append(changed, n.Path)
		}
	}
	for i := range old {
		changed = append(changed, old[i].Path)
	}
	slices.SortFunc(changed, ComparePaths)
	s.Segments.Changed = slices.Compact(changed)
}

// equal reports whether n of s and m of other are encoded alike.
func (s *State) equal(n *Node, other *State, m *Node) bool {
	return n.Kind == m.Kind && n.Mode == m.Mode && n.Sparse == m.Sparse && n.Size == m.Size && n.Modified == m.Modified &&
		n.Target == m.Target && n.MD5 == m.MD5 && n.Digest == m.Digest && n.At.Offset == m.At.Offset &&
		slices.EqualFunc(n.At.Objects, m.At.Objects, func(a, b uint32) bool { return s.Objects[a] == other.Objects[b] })
}

// cost returns about how many bytes the path has in the root.
func (s *State) cost(path string) int64 {
	cost := int64(len(path)) + 32
	if at, ok := s.Search(path); ok {
		n := &s.Nodes[at]
		cost += int64(len(n.Target)) + 250 + int64(max(0, len(n.At.Objects)-1))*120
	}
	return cost
}

// Costs returns about how many bytes the changed paths of each segment have in the root.
func (s *State) Costs() (costs []int64, total int64) {
	costs = make([]int64, len(s.Segments.List))
	for i := range costs {
		for _, path := range s.Segments.changedIn(i) {
			costs[i] += s.cost(path)
		}
		total += costs[i]
	}
	return costs, total
}

// LongerThan reports whether the whole state has more than about size bytes. It looks at no more nodes than it has to.
func (s *State) LongerThan(size int64) bool {
	sum := int64(len(s.Objects)) * 100
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if sum += int64(len(n.Path)+len(n.Target)) + 40; n.Kind == File {
			sum += 210 + int64(len(n.At.Objects))*8
		}
		if sum > size {
			return true
		}
	}
	return false
}

// root returns what is in the root of a state with segments: the changed nodes, and the paths that were removed.
func (s *State) root() (root State, removed []string) {
	root = *s
	root.Nodes = make([]Node, 0, len(s.Segments.Changed))
	for _, path := range s.Segments.Changed {
		if at, ok := s.Search(path); ok {
			root.Nodes = append(root.Nodes, s.Nodes[at])
		} else {
			removed = append(removed, path)
		}
	}
	root.CompactObjects()
	return root, removed
}

// EncodeSegment returns the nodes of a segment, which are some of s, as JSON. They list the objects to which they refer themselves, so
// that no other node changes the bytes.
func (s *State) EncodeSegment(nodes []Node) []byte {
	part := State{Nodes: slices.Clone(nodes)}
	number := map[uint32]uint32{}
	for i := range part.Nodes {
		at := &part.Nodes[i].At
		at.Objects = slices.Clone(at.Objects)
		for k, o := range at.Objects {
			if _, ok := number[o]; !ok {
				number[o] = uint32(len(part.Objects))
				part.Objects = append(part.Objects, s.Objects[o])
			}
			at.Objects[k] = number[o]
		}
	}
	b := appendList(make([]byte, 0, 512+len(part.Objects)*100+len(nodes)*280), `{"files":[`, part.Nodes, part.appendFile)
	b = appendList(b, ",\n\"sluice\":{\"objects\":[", part.Objects, appendObject)
	b = appendList(b, ",\n\"folders\":[", part.Nodes, appendFolder)
	b = appendList(b, ",\n\"symlinks\":[", part.Nodes, appendSymlink)
	return append(b, "}}\n"...)
}

// maxSegmentBytes is the most that a reader decompresses at once.
const maxSegmentBytes = 64 << 20

// check checks the list of segments: a reader allocates nothing before. Together they are at most what a whole state may be, since that
// is what the folder's own state becomes.
func (g *Segments) check(s *State, limits Limits) error {
	bad := func(i int, why string) error {
		return schemas.Errorf(schemas.CodeInvalidArgument, "state: segment %d: %s", i, why)
	}
	if len(g.List) == 0 {
		return nil
	}
	if s.Layout != Packed || s.Remote != "" {
		return schemas.Errorf(schemas.CodeInvalidArgument, "state: segments in layout %q of %q", Clip(string(s.Layout)), Clip(s.Remote))
	}
	var entries, bytes, stored int64
	for i := range g.Objects {
		stored += g.Objects[i].Size
		if g.Objects[i].Push != "" {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: the object of a segment belongs to a push")
		}
	}
	for i, p := range g.List {
		switch {
		case CheckPath(p.First) != nil:
			return CheckPath(p.First)
		case i > 0 && ComparePaths(g.List[i-1].First, p.First) >= 0:
			return bad(i, "it is not in order")
		case int64(p.Object) >= int64(len(g.Objects)):
			return bad(i, "its object is not in the state")
		case p.Size <= 0 || p.Offset < 0 || p.Offset > g.Objects[p.Object].Size-p.Size:
			return bad(i, "it reaches beyond its object")
		case p.Entries <= 0 || p.Bytes <= 0 || p.Bytes > min(maxSegmentBytes, limits.StateBytes):
			return bad(i, "impossible size")
		}
		entries, bytes = entries+int64(min(p.Entries, limits.Entries+1)), bytes+p.Bytes
		if entries > int64(limits.Entries) || max(bytes, stored) > limits.StateBytes {
			return schemas.Errorf(schemas.CodeTooLarge, "state: its segments have more than %d entries or %d bytes", limits.Entries,
				limits.StateBytes)
		}
	}
	return nil
}
