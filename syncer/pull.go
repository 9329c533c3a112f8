package syncer

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// Pull brings into the folder what the store has and the folder does not. It keeps what changed in the folder since the
// last sync. Nothing in the store changes.
//
// Errors: those of [Syncer.Push], not_found when content that the state names is gone, and damaged when it or the state is not
// what was stored. The report is never nil.
func (s *Syncer) Pull(ctx context.Context) (*Report, error) {
	return s.run(ctx, func(ctx context.Context, o *operation) error { return o.pull(ctx) })
}

// PullAt brings the folder to an earlier version: an ID, or the newest up to a time. Nothing in the store changes, and the next Pull brings
// the folder to the newest again. It keeps what changed in the folder since the last sync.
//
// Errors: those of [Syncer.Pull], and not_found when no such version is kept.
func (s *Syncer) PullAt(ctx context.Context, at string) (*Report, error) {
	return s.run(ctx, func(ctx context.Context, o *operation) error {
		o.at = at
		return o.pull(ctx)
	})
}

// source is the state that a pull brings.
func (o *operation) source(ctx context.Context) (*snapshot, error) {
	was, err := o.remote(ctx)
	if err != nil || o.at == "" {
		return was, err
	}
	version, err := o.versionAt(ctx, o.at, was.state)
	if err != nil || version == was.state {
		return was, err
	}
	if err := o.intents.forget(); err != nil { // the base becomes an earlier version than what was pushed
		return nil, err
	}
	return &snapshot{state: version, token: "version " + version.ID}, nil // a token that no store has: the next operation reads the state
}

// fetchTries is how often a pull starts again from the read because pushes have replaced what it was fetching.
const fetchTries = 5

func (o *operation) pull(ctx context.Context) (err error) {
	o.pulls = true
	defer func() { err = errors.Join(err, o.resumed.leftovers.Remove()) }()
	t, err := o.scan(ctx)
	if err != nil {
		return err
	}
	o.later = func(n *state.Node) bool { // only what nothing is compared with
		_, here := t.Search(n.Path)
		_, known := o.index.Base.Search(n.Path)
		return !here && !known
	}
	for try := 1; ; try++ {
		was, err := o.source(ctx)
		if err != nil {
			return err
		}
		err = o.pullFrom(ctx, t, was)
		if err == nil {
			return o.partial(t)
		}
		if !o.fetching || try == fetchTries || !o.overtaken(ctx, was, err) {
			return err
		}
	}
}

// overtaken reports whether a fetch failed because the store's state has been replaced. The folder is unchanged then:
// nothing is installed before everything has been fetched.
func (o *operation) overtaken(ctx context.Context, was *snapshot, err error) bool {
	if !errors.Is(err, schemas.ErrConflict) && !errors.Is(err, schemas.ErrNotFound) {
		return false
	}
	info, err := o.cfg.Store.Stat(ctx, state.ReservedName)
	return err == nil && info.Token != was.token
}

// pullFrom brings the folder to the state that was read.
func (o *operation) pullFrom(ctx context.Context, t *worktree.Tree, was *snapshot) error {
	o.fetching = false
	steps, err := o.plan(ctx, t, was.state, plan.TakeRemote)
	if err != nil {
		return err
	}
	if err := o.reportConflicts(steps); err != nil {
		return err
	}
	if !o.restoring {
		if err := (preview{o}).mayDelete(steps, plan.TakeRemote); err != nil {
			return err
		}
	}
	c := newChanges(t, steps, was.state.ID)
	o.report.Version = was.state.ID
	if was.empty() {
		o.note("there is nothing at " + o.cfg.Remote + " yet")
	}
	if c.empty() {
		if err := o.saveBase(t, was.state, was.token, steps, plan.PulledBase); err != nil {
			return err
		}
		return (recovery{o}).end()
	}
	base := func() state.State { return baseFunc(plan.PulledBase).of(was.state, steps) }
	if err := o.install(ctx, was.state, c, base); err != nil {
		return err
	}
	if err := o.refresh(t, c); err != nil {
		return err
	}
	o.cfg.Progress(Progress{Phase: "commit"})
	o.indexValid = false // the tree has changed
	if err := o.saveBase(t, was.state, was.token, steps, plan.PulledBase); err != nil {
		return err
	}
	if err := o.dir.Sync(); err != nil { // the renames, before the journal goes
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	return (recovery{o}).end()
}

// changes is what a pull does to the folder.
type changes struct {
	write   []*state.Node      // new and replaced paths, in walk order
	chmod   []*state.Node      // paths of which the mode changes, and the time with it, but not the content
	remove  []*state.Node      // removed paths, as they were at the scan
	swapped []*state.Node      // the removed paths that another kind of thing replaces
	was     map[string]scanned // what the folder had at paths that are replaced, removed, or get another mode
	origin  map[string]string  // for a path beside another: the other
}

type scanned struct {
	worktree.Stat
	node *state.Node
}

func newChanges(t *worktree.Tree, steps []plan.Step, version string) *changes {
	c := &changes{was: map[string]scanned{}, origin: map[string]string{}}
	at := 0
	for i := range steps {
		s := &steps[i]
		var st worktree.Stat
		if s.Local != nil {
			st = t.Stats[at]
			at++
		}
		if s.Do == plan.KeepBoth {
			copied := *s.Remote
			copied.Path = besideName(copied.Path, version)
			c.write = append(c.write, &copied)
			c.origin[copied.Path] = s.Remote.Path
			continue
		}
		if s.Do != plan.TakeRemote {
			continue
		}
		switch l, r := s.Local, s.Remote; {
		case r == nil:
			c.remove = append(c.remove, l)
			c.was[l.Path] = scanned{st, l}
		case l == nil:
			c.write = append(c.write, r)
		case l.Kind == r.Kind && state.SameContent(l, r):
			c.chmod = append(c.chmod, r)
			if l.Kind == state.File {
				c.was[l.Path] = scanned{st, l}
			}
		case l.Kind == state.Dir || r.Kind == state.Dir:
			c.remove, c.swapped = append(c.remove, l), append(c.swapped, l)
			c.write = append(c.write, r)
			c.was[l.Path] = scanned{st, l}
		default:
			c.write = append(c.write, r)
			c.was[l.Path] = scanned{st, l}
		}
	}
	if len(c.origin) > 0 {
		slices.SortFunc(c.write, func(a, b *state.Node) int { return state.ComparePaths(a.Path, b.Path) })
	}
	return c
}

func (c *changes) empty() bool { return len(c.write)+len(c.chmod)+len(c.remove) == 0 }

// swaps reports whether another kind of thing replaces what is at the path.
func (c *changes) swaps(path string) bool {
	return slices.ContainsFunc(c.swapped, func(n *state.Node) bool { return n.Path == path })
}

// refresh updates the tree after the changes.
func (o *operation) refresh(t *worktree.Tree, c *changes) (err error) {
	removed := make(map[string]bool, len(c.remove))
	for _, n := range c.remove {
		removed[n.Path] = true
	}
	attributes := make(map[string]*state.Node, len(c.chmod))
	for _, n := range c.chmod {
		attributes[n.Path] = n
	}
	folders := worktree.NewFolders(o.root)
	defer func() { err = errors.Join(err, folders.Close()) }()
	nodes := make([]*state.Node, 0, len(t.Nodes)+len(c.write))
	stats := make([]worktree.Stat, 0, cap(nodes))
	o.report.Files = 0
	add := func(n *state.Node, st worktree.Stat) {
		nodes, stats = append(nodes, n), append(stats, st)
		if n.Kind == state.File {
			o.report.Files++
		}
	}
	statAndAdd := func(n *state.Node) error {
		st, err := folders.Stat(n.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed since
		}
		if err != nil {
			return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
		}
		if n.Kind == state.File && st.Size != n.Size {
			changed := *n
			changed.Hashed = false
			n = &changed
		}
		add(n, st)
		return nil
	}
	written := c.write
	for i, n := range t.Nodes {
		for ; len(written) > 0 && state.ComparePaths(written[0].Path, n.Path) < 0; written = written[1:] {
			if err := statAndAdd(written[0]); err != nil {
				return err
			}
		}
		replaced := len(written) > 0 && written[0].Path == n.Path
		remote, chmod := attributes[n.Path]
		switch {
		case replaced || removed[n.Path]:
		case chmod:
			changed := *n
			changed.Mode, changed.Modified = remote.Mode, remote.Modified
			if err := statAndAdd(&changed); err != nil {
				return err
			}
		default:
			add(n, t.Stats[i])
		}
	}
	for _, n := range written {
		if err := statAndAdd(n); err != nil {
			return err
		}
	}
	t.Nodes, t.Stats = nodes, stats
	return nil
}
