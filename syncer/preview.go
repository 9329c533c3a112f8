package syncer

import (
	"context"

	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// Preview is what a push or a pull would do.
type Preview struct {
	Version    string             `json:"version,omitempty"` // the one that a push would replace, or a pull would bring
	Changes    []Change           `json:"changes"`           // in the store by a push, in the folder by a pull
	Conflicts  []Conflict         `json:"conflicts,omitempty"`
	Skipped    []worktree.Skipped `json:"skipped,omitempty"`
	Notes      []string           `json:"notes,omitempty"`
	RolledBack bool               `json:"rolled_back,omitempty"`
	Traffic
}

// PreviewPush returns what [Syncer.Push] would do, with its errors, and changes neither side. The preview is never nil.
func (s *Syncer) PreviewPush(ctx context.Context) (*Preview, error) {
	return s.preview(ctx, plan.TakeLocal, "")
}

// PreviewPull returns what [Syncer.Pull] would do, or, unless at is empty, [Syncer.PullAt], with their errors, and changes neither side.
// The preview is never nil.
func (s *Syncer) PreviewPull(ctx context.Context, at string) (*Preview, error) {
	return s.preview(ctx, plan.TakeRemote, at)
}

func (s *Syncer) preview(ctx context.Context, side plan.Decision, at string) (*Preview, error) {
	p := &Preview{Changes: []Change{}}
	r, err := s.run(ctx, func(ctx context.Context, o *operation) error {
		o.at, o.replaces = at, side == plan.TakeLocal
		return (preview{o}).run(ctx, side, p)
	})
	p.Conflicts, p.Skipped, p.Notes, p.RolledBack, p.Traffic = r.Conflicts, r.Skipped, r.Notes, r.RolledBack, r.Traffic
	return p, err
}

// preview finds out what an operation would do, and whether it may.
type preview struct{ *operation }

func (o preview) run(ctx context.Context, side plan.Decision, p *Preview) error {
	t, err := o.scan(ctx)
	if err != nil {
		return err
	}
	was, err := o.source(ctx)
	if err != nil {
		return err
	}
	p.Version = was.state.ID
	if side == plan.TakeLocal {
		if err := t.Hash(ctx, o.root, t.Unhashed()); err != nil {
			return err
		}
	}
	steps, err := o.plan(ctx, t, was.state, side)
	if err != nil {
		return err
	}
	for i := range steps {
		p.Changes = append(p.Changes, stepChanges(&steps[i], side, was.state.ID)...)
	}
	if err := o.reportConflicts(steps); err != nil {
		return err
	}
	if side == plan.TakeLocal {
		if err := plan.Check(steps, o.cfg.Limits); err != nil {
			return err
		}
	}
	if err := o.mayDelete(steps, side); err != nil {
		return err
	}
	return o.partial(t)
}

// stepChanges returns what one step changes in the store by a push, which takes the local side, or in the folder by a pull.
func stepChanges(s *plan.Step, side plan.Decision, version string) (all []Change) {
	from, to := s.Remote, s.Local
	if side == plan.TakeRemote {
		from, to = to, from
	}
	if (s.Do == side || s.Do == plan.KeepBoth && side == plan.TakeLocal) && !state.Same(from, to) {
		all = append(all, difference(from, to))
	}
	if s.Do == plan.KeepBoth {
		beside := *s.Remote
		beside.Path = besideName(beside.Path, version)
		all = append(all, difference(nil, &beside))
	}
	return all
}

// Deletion is how many files an operation would delete.
type Deletion struct {
	Side    string // "store" for a push, "folder" for a pull
	Deleted int
	Added   int // files that it would add, such as those that were renamed
	Of      int // files that the side has
}

// mayDelete asks whether the plan may delete what it would delete.
func (o preview) mayDelete(steps []plan.Step, side plan.Decision) error {
	d := Deletion{Side: "store"}
	if side == plan.TakeRemote {
		d.Side = "folder"
	}
	isFile := func(n *state.Node) bool { return n != nil && n.Kind == state.File }
	for i := range steps {
		s := &steps[i]
		from, to := isFile(s.Remote), isFile(s.Local)
		if side == plan.TakeRemote {
			from, to = to, from
		}
		if from {
			d.Of++
		}
		switch {
		case s.Do != side:
		case from && !to:
			d.Deleted++
		case to && !from:
			d.Added++
		}
	}
	if d.Deleted == 0 {
		return nil
	}
	return o.cfg.MayDelete(d)
}
