package syncer

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// Retention says which versions of a workspace are kept. The newest always is. The zero value keeps all.
type Retention struct {
	Keep int           // how many, at most; 0 is any number
	Age  time.Duration // how old, at most; 0 is any age
	// Grace is how long a version outlives the one that replaced it, and content its last mention, whatever else is
	// said; default 24 h. A pull that takes longer may find content gone.
	Grace time.Duration
}

func (r Retention) withDefaults() Retention {
	if r.Grace <= 0 {
		r.Grace = 24 * time.Hour
	}
	return r
}

// tidyEvery is how many pushes go by between two collections that pushes make by themselves.
const tidyEvery = 16

// tidy collects garbage now and then: in the plain layout always, where all there is is what pushes that were killed
// have left. That it failed is no failure of the push.
func (x *session) tidy(ctx context.Context, now *State) {
	r := x.cfg.Retention
	if now.Layout == Packed && r.Keep <= 0 && r.Age <= 0 || now.Count%tidyEvery != 0 {
		return
	}
	if _, err := x.Collect(ctx); err != nil {
		x.note("old versions were not removed: " + err.Error())
	}
}

// Collected says what a garbage collection has done.
type Collected struct {
	Versions int   `json:"versions"` // removed
	Objects  int   `json:"objects"`  // removed
	Bytes    int64 `json:"bytes"`    // what the objects took
}

// Collect removes the versions that the retention does not keep, then the content that nothing mentions. In the plain
// layout that is only what pushes that were killed have left behind.
//
// It is safe beside pushes and restores whatever their clocks say: it first commits the state under a new generation,
// which makes every push on its way start again, and a push trusts only what the state it replaces mentions and what
// it has stored itself under that state's generation. What is removed is of earlier generations, and no state from
// then on mentions it. A restore sees the floor that the same commit has set.
//
// Errors: conflict when other writers were first again and again.
func (s *Syncer) Collect(ctx context.Context) (Collected, error) {
	var done Collected
	for range commitTries {
		was, err := s.loadRemote(ctx, &index{}, nil)
		if err != nil {
			return done, err
		}
		if was.token == "" || was.damaged {
			return done, nil
		}
		plan, err := s.garbage(ctx, was.state)
		if err != nil || plan.empty() {
			return done, err
		}
		next := *was.state
		next.Generation++
		next.Floor = plan.floor
		_, ok, err := s.commit(ctx, was, next.Encode())
		if err != nil {
			return done, err
		}
		if !ok {
			continue
		}
		if err := s.store.Delete(ctx, plan.versions...); err != nil {
			return done, err
		}
		done.Versions = len(plan.versions)
		if err := s.store.Delete(ctx, plan.objects...); err != nil {
			return done, err
		}
		done.Objects, done.Bytes = len(plan.objects), plan.bytes
		return done, nil
	}
	return done, schemas.Errorf(schemas.CodeConflict, "sync: other writers were first %d times; nothing was removed", commitTries)
}

// rubbish is what a collection is to remove.
type rubbish struct {
	floor    string
	versions []string // keys
	objects  []string // keys
	bytes    int64
}

func (r *rubbish) empty() bool { return len(r.versions)+len(r.objects) == 0 }

func (s *Syncer) garbage(ctx context.Context, now *State) (*rubbish, error) {
	retention := s.cfg.Retention.withDefaults()
	var ids []string
	for info, err := range s.store.List(ctx, versionPrefix) {
		if err != nil {
			return nil, err
		}
		if id := strings.TrimPrefix(info.Key, versionPrefix); id < now.ID {
			ids = append(ids, id)
		}
	}
	first := retention.firstKept(append(slices.Clone(ids), now.ID), s.cfg.Now())
	r := &rubbish{floor: now.ID}
	if first < len(ids) {
		r.floor = ids[first]
	}
	r.floor = max(r.floor, now.Floor)
	live := map[string]bool{}
	mention := func(state *State) {
		for i := range state.Objects {
			live[state.Objects[i].key()] = true
		}
	}
	mention(now)
	for _, id := range ids {
		if id < r.floor {
			r.versions = append(r.versions, versionPrefix+id)
			continue
		}
		state, err := s.loadVersion(ctx, id)
		if err != nil {
			return nil, err
		}
		mention(state)
	}
	for info, err := range s.store.List(ctx, objectPrefix) {
		if err != nil {
			return nil, err
		}
		if !live[info.Key] && s.cfg.Now().Sub(info.Modified) >= retention.Grace {
			r.objects = append(r.objects, info.Key)
			r.bytes += info.Size
		}
	}
	return r, nil
}

// firstKept is the place in ids, the oldest first and the current one last, from which on they are kept.
func (r Retention) firstKept(ids []string, now time.Time) int {
	for i := len(ids) - 2; i >= 0; i-- {
		replaced, err := idTime(ids[i+1])
		if err != nil || now.Sub(replaced) < r.Grace {
			continue
		}
		t, err := idTime(ids[i])
		tooMany := r.Keep > 0 && len(ids)-i > r.Keep
		tooOld := r.Age > 0 && err == nil && now.Sub(t) > r.Age
		if tooMany || tooOld {
			return i + 1
		}
	}
	return 0
}
