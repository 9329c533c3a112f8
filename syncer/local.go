package syncer

import (
	"context"
	"os"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// local is the folder as a scan has it: nodes in the order of a walk, each with the stat it had. A file whose stat is
// as it was when its content was last known has that content; any other is not hashed yet.
type local struct {
	nodes    []*Node
	stats    []stat
	skipped  []Skipped
	unsteady []string
	reused   int // files known from before
	rehashed int // files read again though their stat had not changed
	slab     []Node
}

// comparer joins what a walk found with what was seen before, both in the order of a walk.
type comparer struct {
	*local
	seen   []seen
	verify bool
}

// compare makes nodes of what a walk found. Memory stays small because an unchanged file shares the node it had.
func compare(w *walker, top *listing, x *index, verify bool) *local {
	l := &local{nodes: make([]*Node, 0, w.count), stats: make([]stat, 0, w.count), skipped: w.skipped}
	c := &comparer{local: l, seen: x.seen, verify: verify}
	c.take(top)
	return l
}

func (c *comparer) take(from *listing) {
	for i := range from.entries {
		e := &from.entries[i]
		at := len(c.nodes)
		c.nodes, c.stats = append(c.nodes, c.node(e)), append(c.stats, e.stat)
		if e.below == nil {
			continue
		}
		c.take(e.below)
		if e.hidden && len(c.nodes) == at+1 {
			c.nodes, c.stats = c.nodes[:at], c.stats[:at]
		}
	}
}

func (c *comparer) node(e *found) *Node {
	if e.kind == File {
		for len(c.seen) > 0 && comparePaths(c.seen[0].node.Path, e.path) < 0 {
			c.seen = c.seen[1:]
		}
		if len(c.seen) > 0 && c.seen[0].node.Path == e.path {
			if s := &c.seen[0]; s.stat == e.stat && s.node.Mode == e.Mode {
				if !s.racy && !c.verify {
					c.reused++
					return s.node
				}
				c.rehashed++
			}
		}
	}
	n := c.alloc()
	*n = Node{Path: e.path, Kind: e.kind, Mode: e.Mode, Target: e.target, Hashed: e.kind != File}
	if e.kind == File {
		n.Size, n.Modified, n.Sparse = e.Size, e.Mtime, e.sparse
	}
	return n
}

func (l *local) alloc() *Node {
	if len(l.slab) == 0 {
		l.slab = make([]Node, 256)
	}
	n := &l.slab[0]
	l.slab = l.slab[1:]
	return n
}

// unhashed are the places of the files whose content is not known.
func (l *local) unhashed() (which []int) {
	for i, n := range l.nodes {
		if !n.Hashed {
			which = append(which, i)
		}
	}
	return which
}

// hash reads the files at the given places. One that went away is taken out of the list.
func (l *local) hash(ctx context.Context, root *os.Root, which []int, done func(bytes int64)) error {
	if len(which) == 0 {
		return nil
	}
	var next atomic.Int64
	workers := min(len(which), max(2, runtime.GOMAXPROCS(0)))
	unsteady := make([][]string, workers)
	group, ctx := errgroup.WithContext(ctx)
	for w := range workers {
		group.Go(func() error {
			scratch := make([]byte, packLimit+1)
			large := &hashing{}
			for ctx.Err() == nil {
				k := int(next.Add(1)) - 1
				if k >= len(which) {
					return nil
				}
				i := which[k]
				n := l.nodes[i]
				c, err := hashFile(root, n.Path, scratch, large)
				if missing(err) {
					l.nodes[i] = nil
					continue
				}
				if err != nil {
					return err
				}
				hashed := c.node(n)
				l.nodes[i], l.stats[i] = &hashed, c.stat
				if c.unsteady {
					unsteady[w] = append(unsteady[w], n.Path)
				}
				done(c.stat.Size)
			}
			return ctx.Err()
		})
	}
	err := group.Wait()
	for _, u := range unsteady {
		l.unsteady = append(l.unsteady, u...)
	}
	l.compact()
	return err
}

// compact takes out the places whose file went away.
func (l *local) compact() {
	kept := 0
	for i, n := range l.nodes {
		if n != nil {
			l.nodes[kept], l.stats[kept] = n, l.stats[i]
			kept++
		}
	}
	l.nodes, l.stats = l.nodes[:kept], l.stats[:kept]
}

// racyWindow is how close to the moment of looking a change may be and still leave the same time stamp as one after
// it: several ticks of the coarsest kernel clock in use.
const racyWindow = int64(50e6)

// memory is the list of files for the next index. looked is when the walk began, by the file system's clock.
func (l *local) memory(looked int64) []seen {
	count := 0
	for _, n := range l.nodes {
		if n.Kind == File && n.Hashed {
			count++
		}
	}
	all := make([]seen, 0, count)
	for i, n := range l.nodes {
		if n.Kind == File && n.Hashed {
			s := l.stats[i]
			all = append(all, seen{stat: s, node: n, racy: max(s.Mtime, s.Ctime)+racyWindow > looked})
		}
	}
	return all
}
