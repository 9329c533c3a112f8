package syncer

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// Retention selects the versions of a workspace to keep. The newest is always kept. The zero value keeps all.
type Retention struct {
	Keep int           // the most versions; 0 is any number
	Age  time.Duration // the highest age; 0 is any age
	// Grace is how long a version outlives the one that replaced it, and content its last mention, whatever Keep and Age
	// say; default 24 h. A pull that takes longer may find content gone.
	Grace time.Duration
}

// collectEvery is the number of pushes between two garbage collections by pushes.
const collectEvery = 16

// collectSometimes collects garbage after some pushes: when the retention asks for it, and in the plain layout always,
// where the only garbage is what killed pushes have left. A failed collection does not fail the push.
func (o *operation) collectSometimes(ctx context.Context, now *state.State) {
	r := o.cfg.Retention
	if now.Layout == state.Packed && r.Keep <= 0 && r.Age <= 0 || now.Count%collectEvery != 0 {
		return
	}
	if _, err := o.collect(ctx, conditions{o}.probe); err != nil {
		o.note("old versions were not removed: " + err.Error())
	}
}

// Collected is the result of a garbage collection.
type Collected struct {
	Versions int   `json:"versions"` // removed
	Objects  int   `json:"objects"`  // removed
	Bytes    int64 `json:"bytes"`    // size of the removed objects
}

// Collect removes the versions that the retention does not keep, then the content that nothing mentions. In the plain
// layout that is only what killed pushes have left.
//
// It is safe beside pushes and restores whatever their clocks say. It first commits the state under a new generation,
// which makes every running push start again. A push relies only on what the state it replaces mentions and on what it has
// stored itself under that state's generation. What is removed is of earlier generations, and no later state mentions it.
// A restore sees the floor that the same commit has set.
//
// Errors: conflict when other writers were first too often.
func (s *Syncer) Collect(ctx context.Context) (Collected, error) {
	return s.collect(ctx, conditions{&operation{Syncer: s, index: &worktree.Index{}}}.probe)
}

func (s *Syncer) collect(ctx context.Context, probe func(context.Context) error) (Collected, error) {
	for range commitTries {
		was, err := s.loadRemote(ctx, &worktree.Index{}, nil)
		if err != nil {
			return Collected{}, err
		}
		if was.token == "" {
			return Collected{}, nil
		}
		g, err := s.findGarbage(ctx, was.state)
		if err != nil || len(g.versions)+len(g.objects) == 0 {
			return Collected{}, err
		}
		if err := probe(ctx); err != nil {
			return Collected{}, err
		}
		next := *was.state
		next.Generation++
		next.Floor = g.floor
		_, ok, err := s.commit(ctx, was, &next)
		if err != nil {
			return Collected{}, err
		}
		if !ok {
			continue
		}
		if err := s.cfg.Store.Delete(ctx, g.versions...); err != nil {
			return Collected{}, err
		}
		if err := s.cfg.Store.Delete(ctx, g.objects...); err != nil {
			return Collected{Versions: len(g.versions)}, err
		}
		return Collected{Versions: len(g.versions), Objects: len(g.objects), Bytes: g.bytes}, nil
	}
	return Collected{}, errTooManyWriters("removed")
}

type garbage struct {
	floor    string
	versions []string // keys
	objects  []string // keys
	bytes    int64
}

func (s *Syncer) findGarbage(ctx context.Context, now *state.State) (*garbage, error) {
	ids, err := s.versionIDs(ctx)
	if err != nil {
		return nil, err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return id >= now.ID })
	first := s.cfg.Retention.firstKept(append(slices.Clone(ids), now.ID), s.cfg.Now())
	g := &garbage{floor: now.ID}
	if first < len(ids) {
		g.floor = ids[first]
	}
	g.floor = max(g.floor, now.Floor)
	live := map[string]bool{}
	mark := func(s *state.State) {
		for i := range s.Objects {
			live[s.Objects[i].Key()] = true
		}
	}
	mark(now)
	for _, id := range ids {
		if id < g.floor {
			g.versions = append(g.versions, state.VersionPrefix+id)
			continue
		}
		version, err := s.loadVersion(ctx, id)
		if err != nil {
			return nil, err
		}
		mark(version)
	}
	for info, err := range s.cfg.Store.List(ctx, state.ObjectPrefix) {
		if err != nil {
			return nil, err
		}
		if !live[info.Key] && s.cfg.Now().Sub(info.Modified) >= s.cfg.Retention.Grace {
			g.objects = append(g.objects, info.Key)
			g.bytes += info.Size
		}
	}
	return g, nil
}

// firstKept returns the index in ids, the oldest first and the current one last, of the first version to keep.
func (r Retention) firstKept(ids []string, now time.Time) int {
	for i := len(ids) - 2; i >= 0; i-- {
		replaced, err := state.IDTime(ids[i+1])
		if err != nil || now.Sub(replaced) < r.Grace {
			continue
		}
		t, err := state.IDTime(ids[i])
		tooMany := r.Keep > 0 && len(ids)-i > r.Keep
		tooOld := r.Age > 0 && err == nil && now.Sub(t) > r.Age
		if tooMany || tooOld {
			return i + 1
		}
	}
	return 0
}
