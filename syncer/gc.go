package syncer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/schemas"
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
		if errors.Is(err, schemas.ErrNotFound) {
			continue // another collection has removed a version meanwhile
		}
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
	old, err := s.storedVersions(ctx)
	if err != nil {
		return nil, err
	}
	old = slices.DeleteFunc(old, func(v storedVersion) bool { return v.id >= now.ID })
	g := &garbage{floor: now.ID}
	if first := s.cfg.Retention.firstKept(old, s.cfg.Now()); first < len(old) {
		g.floor = old[first].id
	}
	g.floor = max(g.floor, now.Floor)
	live := map[string]bool{}
	mark := func(s *state.State) {
		for _, o := range slices.Concat(s.Objects, s.Segments.Objects) {
			live[o.Key()] = true
		}
	}
	mark(now)
	known := now
	for _, v := range slices.Backward(old) { // each shares the most with the next
		if v.id < g.floor {
			g.versions = append(g.versions, state.VersionPrefix+v.id)
			continue
		}
		version, err := s.loadVersion(ctx, v.id, known, now)
		if err != nil {
			return nil, err
		}
		mark(version)
		known = version
	}
	for info, err := range s.cfg.Store.List(ctx, state.ObjectPrefix) {
		if err != nil {
			return nil, err
		}
		// Another collection may have replaced now by the same bytes as this one will, and then neither fails: pushes of the next generation
		// are not to be touched.
		if generation, ok := state.KeyGeneration(info.Key); !ok || generation > now.Generation {
			continue
		}
		if !live[info.Key] && s.cfg.Now().Sub(info.Modified) >= s.cfg.Retention.Grace {
			g.objects = append(g.objects, info.Key)
			g.bytes += info.Size
		}
	}
	return g, nil
}

// firstKept returns the index in old, the versions before the current one, the oldest first, of the first version to keep. The
// store's clock says when a version was replaced. The time in an ID is that of some writer's clock, which may be wrong by years, and
// the IDs after it are later still.
func (r Retention) firstKept(old []storedVersion, now time.Time) int {
	for i, v := range slices.Backward(old) {
		if now.Sub(v.replaced) < r.Grace {
			continue
		}
		made, err := state.IDTime(v.id)
		if err != nil || made.After(v.replaced) {
			made = v.replaced
		}
		tooMany := r.Keep > 0 && len(old)-i >= r.Keep
		tooOld := r.Age > 0 && now.Sub(made) > r.Age
		if tooMany || tooOld {
			return i + 1
		}
	}
	return 0
}
