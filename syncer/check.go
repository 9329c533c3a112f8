package syncer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/plain"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// CheckReport is what [Syncer.Check] has found.
type CheckReport struct {
	Version    string   `json:"version,omitempty"`  // the state's name afterwards
	Files      int      `json:"files"`              // files in the store
	BytesRead  int64    `json:"bytes_read"`         // content bytes
	Damage     []Damage `json:"damage,omitempty"`   // in the order of versions, the current one first, and of paths
	Repaired   int      `json:"repaired,omitempty"` // how much of that is mended
	Others     []string `json:"others,omitempty"`   // objects of other tools under the prefix, in the plain layout
	Notes      []string `json:"notes,omitempty"`
	DurationMS int64    `json:"duration_ms"`
	Traffic
}

// Damage is a path that a pull or a restore could not get.
type Damage struct {
	Path     string `json:"path"`
	Version  string `json:"version,omitempty"`  // the version that has it; "" for the current one
	Problem  string `json:"problem"`            // "missing", "damaged", or, in the plain layout, "replaced"
	Repaired bool   `json:"repaired,omitempty"` // the store has it again
}

// Check reads everything that the store has of the workspace, and compares it with the states. With repair it sends again what is
// missing or damaged and what the folder has, also under another path, and stores that as a new version. An object of the plain
// layout with other content may be another tool's work, and is replaced only with [plan.ConflictLocal].
//
// Errors: those of [Syncer.Push], and damaged where something is left to repair. The report is never nil.
func (s *Syncer) Check(ctx context.Context, repair bool) (*CheckReport, error) {
	c := &CheckReport{}
	r, err := s.run(ctx, func(ctx context.Context, o *operation) error {
		return (&checker{operation: o, out: c, versions: map[string]map[string]string{}}).run(ctx, repair)
	})
	c.Notes, c.DurationMS, c.Traffic = r.Notes, r.DurationMS, r.Traffic
	return c, err
}

type checker struct {
	*operation
	out    *CheckReport
	tree   *worktree.Tree
	was    *snapshot
	damage *packed.Damage         // of the current state
	found  map[string]plain.Found // what is under the own paths of files, where it is not what the state says
	// versions has the problems of files by version and path.
	versions map[string]map[string]string
	current  bool // leave the versions out
}

// verifyStored reads back what a push has left in the store, and sends again what is missing or damaged.
func (o *operation) verifyStored(ctx context.Context) error {
	o.index = nil // the push has written another
	c := &checker{operation: o, out: &CheckReport{}, current: true}
	err := c.run(ctx, true)
	if n := len(c.out.Damage); n > 0 {
		o.note(fmt.Sprintf("missing or damaged in the store: %s, such as %q; sent again: %d", countPaths(n),
			state.Clip(c.out.Damage[0].Path), c.out.Repaired))
		o.report.Version, o.report.Changed = c.out.Version, o.report.Changed || c.out.Repaired > 0
	}
	o.report.BytesRead += c.out.BytesRead
	return err
}

func (c *checker) run(ctx context.Context, repair bool) (err error) {
	c.replaces = repair
	if c.tree, err = c.scan(ctx); err != nil {
		return err
	}
	c.index.Token = "" // so that the state is read
	c.was, err = c.remote(ctx)
	if errors.Is(err, state.ErrCorrupt) || err == nil && c.was.damaged != nil {
		c.out.Damage = append(c.out.Damage, Damage{Path: state.ReservedName, Problem: packed.Damaged})
	}
	if err != nil {
		return err
	}
	c.out.Version = c.was.state.ID
	for i := range c.was.state.Nodes {
		if c.was.state.Nodes[i].Kind == state.File {
			c.out.Files++
		}
	}
	if err := c.verify(ctx); err != nil {
		return err
	}
	if repair && len(c.out.Damage) > 0 {
		if err := c.repair(ctx); err != nil {
			return err
		}
	}
	return c.result()
}

// verify reads the current state's content, and that of the versions.
func (c *checker) verify(ctx context.Context) (err error) {
	var all packed.Verified
	if c.damage, err = all.Verify(ctx, c.cfg.Store, c.was.state, c.cfg.Downloads); err != nil {
		return err
	}
	problems := maps.Clone(c.damage.Files)
	if c.was.state.Layout == state.Plain {
		var read int64
		if c.found, c.out.Others, read, err = plain.Verify(ctx, c.cfg.Store, c.was.state, c.cfg.Downloads); err != nil {
			return err
		}
		c.out.BytesRead = read
		for path, f := range c.found {
			problems[path] = f.Problem
		}
	}
	c.add("", problems)
	if c.current {
		c.out.BytesRead += all.Bytes
		return nil
	}
	ids, err := c.archived(ctx, c.was.state)
	if err != nil {
		return err
	}
	known := c.was.state
	for _, id := range slices.Backward(ids) {
		version, err := c.loadVersion(ctx, id, known, c.was.state)
		if errors.Is(err, schemas.ErrDamaged) {
			c.add(id, map[string]string{state.VersionPrefix + id: packed.Damaged})
			continue
		}
		if err != nil {
			return err
		}
		known = version
		d, err := all.Verify(ctx, c.cfg.Store, version, c.cfg.Downloads)
		if err != nil {
			return err
		}
		c.add(id, d.Files)
		if len(d.Files) > 0 || c.was.damaged != nil {
			c.versions[id] = d.Files
		}
	}
	c.out.BytesRead += all.Bytes
	return nil
}

func (c *checker) add(version string, problems map[string]string) {
	for _, path := range slices.SortedFunc(maps.Keys(problems), state.ComparePaths) {
		c.out.Damage = append(c.out.Damage, Damage{Path: path, Version: version, Problem: problems[path]})
	}
}

// repair stores a new version in which what the folder has is whole again.
func (c *checker) repair(ctx context.Context) error {
	if err := c.tree.Hash(ctx, c.root, c.tree.Unhashed()); err != nil {
		return err
	}
	if err := (conditions{c.operation}).probe(ctx); err != nil {
		return err
	}
	next := *copied(c.was.state)
	name := ""
	if next.Layout == state.Plain {
		name = c.pushName
	}
	index := packed.NewObjectIndex(c.cfg.Store, c.was.state, name)
	index.Forget(c.damage.Objects)
	l := packed.Layout{Store: c.cfg.Store, Root: c.root, Index: index, Parallel: c.cfg.Uploads, Meter: c.meter, Skip: c.unread.add,
		Sizes: c.cfg.Sizes}
	lost, local := c.lost(next.Nodes)
	if _, _, err := l.Upload(ctx, local, make([]*state.Node, len(local))); err != nil {
		return err
	}
	mended := map[string]bool{}
	for i, n := range lost {
		at, ok := l.Find(local[i])
		if !ok {
			continue // it has changed meanwhile
		}
		mended[n.Path] = true
		n.At, n.Digest = at, local[i].Digest
		if f, own := c.found[n.Path]; own {
			next.Pending = append(next.Pending, state.Pending{Path: n.Path, Over: f.Token})
		}
	}
	slices.SortFunc(next.Pending, func(a, b state.Pending) int { return state.ComparePaths(a.Path, b.Path) })
	moved, err := l.Salvage(ctx, &next, c.damage)
	if err != nil {
		return err
	}
	if len(mended)+moved > 0 || c.was.damaged != nil {
		was := *c.was
		was.state = copied(c.was.state) // it becomes a version, which is whole too
		l.Relocate(was.state, maps.Clone(c.damage.Files))
		if err := errors.Join(l.Segment(ctx, was.state, c.was.carried()), l.Segment(ctx, &next, c.was.carried())); err != nil {
			return err
		}
		if err := c.archive(ctx, &was); err != nil {
			return err
		}
		if err := c.store(ctx, &next, mended); err != nil {
			return err
		}
	}
	return c.repairVersions(ctx, &l)
}

// copied returns a copy of s in which locations can be replaced.
func copied(s *state.State) *state.State {
	c := *s
	c.Nodes, c.Objects, c.Pending = slices.Clone(s.Nodes), slices.Clone(s.Objects), slices.Clone(s.Pending)
	return &c
}

// repairVersions stores again the versions of which the repair has stored content, and those that may share segments with a state that
// was damaged: what it knows of that has their nodes.
func (c *checker) repairVersions(ctx context.Context, l *packed.Layout) error {
	known := c.was.state
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(c.versions))) {
		version, err := c.loadVersion(ctx, id, known, c.was.state)
		if err != nil {
			return err
		}
		problems := c.versions[id]
		left, before := maps.Clone(problems), copied(version)
		known = before
		shares := c.was.damaged != nil && len(version.Segments.List) > 0
		if l.Relocate(version, left) == 0 && !shares {
			continue
		}
		if shares {
			before = nil
		}
		if err := l.Segment(ctx, version, before); err != nil {
			return err
		}
		if err := c.archive(ctx, &snapshot{state: version, token: "a version"}); err != nil {
			return err
		}
		c.markRepaired(id, func(path string) bool { return left[path] == "" })
	}
	return nil
}

func (c *checker) markRepaired(version string, is func(path string) bool) {
	for i := range c.out.Damage {
		if d := &c.out.Damage[i]; d.Version == version && is(d.Path) {
			d.Repaired = true
			c.out.Repaired++
		}
	}
}

// lost returns the nodes that the folder can mend, and the folder's files that have their content.
func (c *checker) lost(nodes []state.Node) (lost, local []*state.Node) {
	has := make(map[state.Digest]*state.Node, len(c.tree.Nodes))
	for _, n := range c.tree.Nodes {
		if n.Kind == state.File && n.Hashed {
			has[n.Digest] = n
		}
	}
	for i := range nodes {
		n := &nodes[i]
		f, own := c.found[n.Path]
		if !own && c.damage.Files[n.Path] == "" || f.Problem == plain.Replaced && c.cfg.OnConflict != plan.ConflictLocal {
			continue
		}
		from := has[n.Digest]
		if at, ok := c.tree.Search(n.Path); from == nil && ok && c.tree.Nodes[at].Hashed && state.SameContent(c.tree.Nodes[at], n) {
			from = c.tree.Nodes[at]
		}
		if from != nil {
			lost, local = append(lost, n), append(local, from)
		}
	}
	return lost, local
}

// store commits the repaired state, and publishes its files in the plain layout.
func (c *checker) store(ctx context.Context, next *state.State, mended map[string]bool) error {
	next.SyncedAt = c.cfg.Now().UTC()
	next.ID, next.Lineage, next.Count = state.NewID(next.SyncedAt, c.was.state.ID), c.was.lineage(), c.was.state.Count+1
	token, done, err := c.commit(ctx, c.was, next)
	if err != nil {
		return err
	}
	if !done {
		return schemas.Errorf(schemas.CodeConflict, "sync: another writer was first: check again")
	}
	c.out.Version = next.ID
	after, _ := c.publish(ctx, c.tree, next, token)
	for _, p := range after.Pending {
		delete(mended, p.Path)
	}
	c.markRepaired("", func(path string) bool { return mended[path] || path == state.ReservedName })
	return nil
}

// result returns the error for what is left.
func (c *checker) result() error {
	left := slices.DeleteFunc(slices.Clone(c.out.Damage), func(d Damage) bool { return d.Repaired })
	if len(left) == 0 {
		return nil
	}
	return schemas.Errorf(schemas.CodeDamaged, "sync: %s cannot be pulled or restored, the first is %q (%s): "+
		"repair from a folder that has the content, with --repair", countPaths(len(left)),
		state.Clip(left[0].Path), left[0].Problem).With("path", state.Clip(left[0].Path))
}
