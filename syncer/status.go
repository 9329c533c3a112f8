package syncer

import (
	"cmp"
	"context"
	"time"

	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// Status is how the folder and the store differ.
type Status struct {
	Version   string             `json:"version,omitempty"`       // the store's
	Layout    state.Layout       `json:"layout"`                  // the store's
	SyncedAt  time.Time          `json:"last_synced_at,omitzero"` // the folder's last sync
	Stale     bool               `json:"stale"`                   // whether that is older than [Config].StaleAfter
	Push      []Change           `json:"push,omitempty"`          // what a push would change in the store
	Pull      []Change           `json:"pull,omitempty"`          // what a pull would change in the folder
	Conflicts []Conflict         `json:"conflicts,omitempty"`
	Skipped   []worktree.Skipped `json:"skipped,omitempty"`
	Notes     []string           `json:"notes,omitempty"`
	// RolledBack is set where the store has an earlier version than the folder, or another workspace.
	RolledBack bool `json:"rolled_back,omitempty"`
	Traffic
}

// Change is one path that differs.
type Change struct {
	Path string `json:"path"`
	What string `json:"what"` // "added", "changed" or "deleted"
	Kind string `json:"kind"` // "file", "folder" or "symlink"
	Size int64  `json:"size"` // bytes afterwards
}

// Status compares the folder with the store and changes neither. It reads the files whose stat changed.
func (s *Syncer) Status(ctx context.Context) (*Status, error) {
	st := &Status{}
	r, err := s.run(ctx, func(ctx context.Context, o *operation) error { return o.status(ctx, st) })
	st.Traffic = r.Traffic
	return st, err
}

func (o *operation) status(ctx context.Context, st *Status) error {
	t, err := o.scan(ctx)
	if err != nil {
		return err
	}
	st.SyncedAt = o.index.Base.SyncedAt
	st.Stale = st.SyncedAt.IsZero() || o.cfg.Now().Sub(st.SyncedAt) > o.cfg.StaleAfter
	was, err := o.remote(ctx)
	if err != nil {
		return err
	}
	if err := t.Hash(ctx, o.root, t.Unhashed()); err != nil {
		return err
	}
	steps, err := o.plan(ctx, t, was.state, plan.TakeLocal)
	if err != nil {
		return err
	}
	st.Version, st.Layout = was.state.ID, was.state.Layout
	for i := range steps {
		s := &steps[i]
		switch s.Do {
		case plan.TakeLocal, plan.KeepBoth:
			st.Push = append(st.Push, difference(s.Remote, s.Local))
		case plan.TakeRemote:
			st.Pull = append(st.Pull, difference(s.Local, s.Remote))
		}
	}
	_ = o.reportConflicts(steps) // conflicts are part of the result, not a failure
	st.Conflicts, st.Skipped, st.Notes, st.RolledBack = o.report.Conflicts, o.report.Skipped, o.report.Notes, o.report.RolledBack
	return nil
}

func difference(from, to *state.Node) Change {
	n := cmp.Or(to, from)
	c := Change{Path: n.Path, Kind: n.Kind.String(), What: change(from, to)}
	if to != nil {
		c.Size = to.Size
	}
	return c
}
