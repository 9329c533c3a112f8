package worktree

import (
	"context"
	"errors"
	"iter"
	"os"
	"runtime"
	"slices"

	"github.com/sluice-dev/sluice/syncer/parallel"
	"github.com/sluice-dev/sluice/syncer/state"
)

// Tree is the folder at a scan: nodes in walk order, each with its stat. A file whose stat is as it was when its content
// was last known has that content; any other is not hashed yet.
type Tree struct {
	Nodes    []*state.Node
	Stats    []Stat
	Skipped  []Skipped
	Reused   int // files whose content is known from before
	Rehashed int // files to read again although their stat did not change

	open map[string]bool // the files that another process had open for writing when they were read
	slab []state.Node
}

// comparer joins a listing with the files seen before, both in walk order.
type comparer struct {
	*Tree
	seen   []Seen
	verify bool
}

// Compare makes a tree of a listing, which is empty afterwards. An unchanged file shares the node it had, which keeps memory small. With
// verify every file is read again.
func (l *Listing) Compare(seen []Seen, verify bool) *Tree {
	t := &Tree{Nodes: make([]*state.Node, 0, l.count), Stats: make([]Stat, 0, l.count), Skipped: l.Skipped}
	c := &comparer{Tree: t, seen: seen, verify: verify}
	c.add(&l.top)
	return t
}

// Set puts what was read of the file at index i into the tree.
func (t *Tree) Set(i int, c *Content) *state.Node {
	n := c.Node(t.Nodes[i])
	t.Nodes[i], t.Stats[i] = &n, c.Stat
	if c.Open && t.open == nil {
		t.open = map[string]bool{}
	}
	if t.open != nil {
		t.open[n.Path] = c.Open
	}
	return &n
}

// SkipUnreadable skips the files of these paths, which could not be read.
func (t *Tree) SkipUnreadable(errs map[string]error) {
	t.Skipped = slices.Clip(t.Skipped)
	for path, err := range errs {
		t.Skipped = append(t.Skipped, unreadable(path, err))
	}
	slices.SortFunc(t.Skipped, func(a, b Skipped) int { return state.ComparePaths(a.Path, b.Path) })
}

func (c *comparer) add(from *folder) {
	for i := range from.entries {
		e := &from.entries[i]
		at := len(c.Nodes)
		c.Nodes, c.Stats = append(c.Nodes, c.node(e, c.verify || from.memory)), append(c.Stats, e.Stat)
		if e.below == nil {
			continue
		}
		c.add(e.below)
		if e.hidden && len(c.Nodes) == at+1 {
			c.Nodes, c.Stats = c.Nodes[:at], c.Stats[:at]
		}
	}
	from.entries = nil // its memory is worth having: there may be a million
}

func (c *comparer) node(e *entry, verify bool) *state.Node {
	if e.kind == state.File {
		for len(c.seen) > 0 && state.ComparePaths(c.seen[0].Node.Path, e.path) < 0 {
			c.seen = c.seen[1:]
		}
		if len(c.seen) > 0 && c.seen[0].Node.Path == e.path {
			if s := &c.seen[0]; s.Stat == e.Stat && s.Node.Mode == e.Mode {
				if !s.Racy && !verify {
					c.Reused++
					return s.Node
				}
				c.Rehashed++
			}
		}
	}
	n := c.alloc()
	*n = state.Node{Path: e.path, Kind: e.kind, Mode: e.Mode, Target: e.target, Hashed: e.kind != state.File}
	if e.kind == state.File {
		n.Size, n.Modified, n.Sparse = e.Size, e.Mtime, e.sparse
	}
	return n
}

func (t *Tree) alloc() *state.Node {
	if len(t.slab) == 0 {
		t.slab = make([]state.Node, 256)
	}
	n := &t.slab[0]
	t.slab = t.slab[1:]
	return n
}

// Search returns the index of the path in Nodes, or where it would be inserted.
func (t *Tree) Search(path string) (int, bool) {
	return slices.BinarySearchFunc(t.Nodes, path, func(n *state.Node, p string) int { return state.ComparePaths(n.Path, p) })
}

// Unhashed returns the indexes of the files whose content is not known.
func (t *Tree) Unhashed() (which []int) {
	for i, n := range t.Nodes {
		if !n.Hashed {
			which = append(which, i)
		}
	}
	return which
}

// Hash reads the files at the given indexes. A file that is gone is removed from the tree, and so is one that cannot be read, which
// is skipped.
func (t *Tree) Hash(ctx context.Context, root *os.Root, which []int) error {
	if len(which) == 0 {
		return nil
	}
	read, errs := make([]Content, len(which)), make([]error, len(which))
	err := parallel.Run(ctx, max(2, runtime.GOMAXPROCS(0)), len(which), func(_ context.Context, indexes iter.Seq[int]) (err error) {
		in := NewFolders(root)
		defer func() { err = errors.Join(err, in.Close()) }()
		scratch := make([]byte, SmallFile+1)
		large := &Hasher{}
		for k := range indexes {
			read[k], errs[k] = HashFile(in, t.Nodes[which[k]].Path, scratch, large)
			if _, one := errors.AsType[*UnreadableError](errs[k]); errs[k] != nil && !one && !IsGone(errs[k]) {
				return errs[k]
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	skip := map[string]error{}
	for k, i := range which {
		if errs[k] == nil {
			t.Set(i, &read[k])
			continue
		}
		if !IsGone(errs[k]) {
			skip[t.Nodes[i].Path] = errs[k]
		}
		t.Nodes[i] = nil
	}
	t.SkipUnreadable(skip)
	kept := 0
	for i, n := range t.Nodes {
		if n != nil {
			t.Nodes[kept], t.Stats[kept] = n, t.Stats[i]
			kept++
		}
	}
	t.Nodes, t.Stats = t.Nodes[:kept], t.Stats[:kept]
	return nil
}

// racyWindow is how close to the scan a change may be and still have the same time stamp as a change after the scan:
// several ticks of the coarsest kernel clock in use. In nanoseconds.
const racyWindow = int64(50e6)

// Seen returns the hashed files for the next index. scanned is when the walk began, by the file system's clock, in
// nanoseconds since 1970.
func (t *Tree) Seen(scanned int64) []Seen {
	count := 0
	for _, n := range t.Nodes {
		if n.Kind == state.File && n.Hashed {
			count++
		}
	}
	all := make([]Seen, 0, count)
	for i, n := range t.Nodes {
		if n.Kind == state.File && n.Hashed {
			s := t.Stats[i]
			all = append(all, Seen{Stat: s, Node: n, Racy: t.open[n.Path] || max(s.Mtime, s.Ctime)+racyWindow > scanned})
		}
	}
	return all
}
