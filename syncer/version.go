package syncer

import (
	"context"
	"time"
)

// Retention says which versions of a workspace are kept. The newest always is.
type Retention struct {
	Keep  int           // how many, at most; 0 is any number
	Age   time.Duration // how old, at most; 0 is any age
	Grace time.Duration // how long a version outlives the one that replaced it, whatever else is said; default 24 h
}

func (x *session) archive(context.Context, *snapshot) error { return nil }
func (x *session) tidy(context.Context, *State) error       { return nil }
func (x *session) probe(context.Context, *snapshot) error   { return nil }
func (s *Syncer) firstRemote(context.Context) (*snapshot, error) {
	l := s.cfg.Layout
	if l == "" {
		l = Packed
	}
	return &snapshot{state: &State{Layout: l}}, nil
}
func (s *Syncer) repairRemote(_ context.Context, _ string, err error) (*snapshot, error) {
	return nil, err
}

type plain struct {
	keeper
	store    Store
	parallel int
}

func (x *session) fetchPlain(context.Context, []target, func(int64)) error { return nil }
