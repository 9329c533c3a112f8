package syncer

import (
	"context"
	"strings"

	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// RestorePath brings a path, with what is below it, from the version at into the folder: an ID, a time, or "" for the current one. It
// deletes nothing, and nothing in the store changes: the next push stores it. What changed in the folder since the last sync is a
// conflict.
//
// Errors: those of [Syncer.Pull], and not_found when no such version or path is kept.
func (s *Syncer) RestorePath(ctx context.Context, at, path string) (*Report, error) {
	return s.run(ctx, func(ctx context.Context, o *operation) error { return o.restorePath(ctx, at, strings.Trim(path, "/")) })
}

func (o *operation) restorePath(ctx context.Context, at, path string) error {
	if err := state.CheckPath(path); err != nil {
		return err
	}
	t, err := o.scan(ctx)
	if err != nil {
		return err
	}
	was, err := o.remote(ctx)
	if err != nil {
		return err
	}
	version, err := o.versionAt(ctx, at, was.state)
	if err != nil {
		return err
	}
	var unread []int
	for _, i := range t.Unhashed() {
		if p := t.Nodes[i].Path; p == path || state.Within(p, path) {
			unread = append(unread, i)
		}
	}
	if err := t.Hash(ctx, o.root, unread); err != nil {
		return err
	}
	r := &pathRestore{path: path, base: &o.index.Base, now: was.state, on: o.cfg.OnConflict, leave: o.leave(ctx, t)}
	steps := r.steps(t, version)
	if err := ctx.Err(); err != nil {
		return err // what leave decides then is void
	}
	if !r.found {
		return noPath(path)
	}
	if err := o.reportConflicts(steps); err != nil {
		return err
	}
	o.report.Version = version.ID
	if c := newChanges(t, steps, version.ID); !c.empty() {
		if err := o.install(ctx, version, c, func() state.State { return o.index.Base }); err != nil {
			return err
		}
	}
	return (recovery{o}).end()
}

// pathRestore plans the restore of one path.
type pathRestore struct {
	path      string
	base, now *state.State // the last sync, and what the store has: content that either has is not lost
	on        plan.OnConflict
	leave     func(*state.Node) bool
	found     bool
}

// steps joins the folder and the version. Steps outside the path leave both sides alone.
func (p *pathRestore) steps(t *worktree.Tree, version *state.State) (steps []plan.Step) {
	local, stored := t.Nodes, version.Nodes
	for len(local) > 0 || len(stored) > 0 {
		s := plan.Step{Do: plan.Leave}
		if len(stored) == 0 || len(local) > 0 && state.ComparePaths(local[0].Path, stored[0].Path) <= 0 {
			s.Local = local[0]
		}
		if len(local) == 0 || len(stored) > 0 && state.ComparePaths(stored[0].Path, local[0].Path) <= 0 {
			s.Remote = &stored[0]
			stored = stored[1:]
		}
		if s.Local != nil {
			local = local[1:]
		}
		if s.Remote != nil {
			p.decide(&s)
		}
		steps = append(steps, s)
	}
	return steps
}

func (p *pathRestore) decide(s *plan.Step) {
	l, r := s.Local, s.Remote
	above := state.Within(p.path, r.Path)
	if !above && r.Path != p.path && !state.Within(r.Path, p.path) {
		return
	}
	p.found = p.found || !above
	if i, ok := p.base.Search(r.Path); ok {
		s.Base = &p.base.Nodes[i]
	}
	var now *state.Node
	if i, ok := p.now.Search(r.Path); ok {
		now = &p.now.Nodes[i]
	}
	switch {
	case p.leave(r):
	case l == nil:
		s.Do = plan.TakeRemote
	case l.Kind == state.Dir && r.Kind == state.Dir, !above && state.Same(l, r):
		s.Do = plan.InSync
	case above || l.Kind == state.Dir || r.Kind == state.Dir:
		s.Do = plan.Conflict // another kind of thing is in the way
	case state.Same(l, s.Base) || state.Same(l, now):
		s.Do = plan.TakeRemote
	default:
		p.settle(s)
	}
}

func (p *pathRestore) settle(s *plan.Step) {
	s.Settled = true
	switch p.on {
	case plan.ConflictLocal:
		s.Do = plan.TakeLocal
	case plan.ConflictRemote:
		s.Do = plan.TakeRemote
	case plan.ConflictBoth:
		s.Do = plan.KeepBoth
	default:
		s.Do = plan.Conflict
	}
}
