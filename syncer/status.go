package syncer

import (
	"context"
	"time"
)

// Status says how the folder and the store differ.
type Status struct {
	Version   string     `json:"version,omitempty"`       // the store's
	Layout    Layout     `json:"layout"`                  // the store's
	SyncedAt  time.Time  `json:"last_synced_at,omitzero"` // the folder's last sync
	Stale     bool       `json:"stale"`                   // whether that is longer ago than [Config.StaleAfter]
	Push      []Change   `json:"push,omitempty"`          // what a push would do to the store
	Pull      []Change   `json:"pull,omitempty"`          // what a pull would do to the folder
	Conflicts []Conflict `json:"conflicts,omitempty"`
	Skipped   []Skipped  `json:"skipped,omitempty"`
	Notes     []string   `json:"notes,omitempty"`
}

// Change is one path that differs.
type Change struct {
	Path string `json:"path"`
	What string `json:"what"` // "added", "changed" or "deleted"
	Kind string `json:"kind"` // "file", "folder" or "symlink"
	Size int64  `json:"size"` // bytes it will have
}

// Status compares the folder with the store and changes neither. It reads the files that look changed.
func (s *Syncer) Status(ctx context.Context) (*Status, error) {
	st := &Status{}
	_, err := s.operate(func(x *session) error { return x.status(ctx, st) })
	return st, err
}

func (x *session) status(ctx context.Context, st *Status) error {
	l, err := x.scan(ctx)
	if err != nil {
		return err
	}
	st.SyncedAt = x.index.base.SyncedAt
	st.Stale = st.SyncedAt.IsZero() || x.cfg.Now().Sub(st.SyncedAt) > x.cfg.StaleAfter
	was, err := x.remote(ctx)
	if err != nil {
		return err
	}
	if err := l.hash(ctx, x.root, l.unhashed(), func(int64) {}); err != nil {
		return err
	}
	steps, err := x.decided(ctx, l, was.state, TakeLocal)
	if err != nil {
		return err
	}
	st.Version, st.Layout = was.state.ID, was.state.Layout
	for i := range steps {
		s := &steps[i]
		switch s.Do {
		case TakeLocal, KeepBoth:
			st.Push = append(st.Push, difference(s.Remote, s.Local))
		case TakeRemote:
			st.Pull = append(st.Pull, difference(s.Local, s.Remote))
		}
	}
	_ = x.conflicts(steps) // they are part of the answer, not a failure of it
	st.Conflicts, st.Skipped, st.Notes = x.report.Conflicts, x.report.Skipped, x.report.Notes
	return nil
}

func difference(from, to *Node) Change {
	n := firstOf(to, from)
	c := Change{Path: n.Path, Kind: n.Kind.String(), What: "changed"}
	switch {
	case from == nil:
		c.What = "added"
	case to == nil:
		c.What = "deleted"
	}
	if to != nil {
		c.Size = to.Size
	}
	return c
}
