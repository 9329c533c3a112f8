package plan

import (
	"cmp"

	"github.com/sluice-dev/sluice/syncer/state"
)

// OnConflict is how a path that changed on both sides since the last sync is settled.
type OnConflict string

// The ways to settle a conflict.
const (
	ConflictFail   OnConflict = "fail"   // change nothing and report it; the default
	ConflictLocal  OnConflict = "local"  // keep the folder's side
	ConflictRemote OnConflict = "remote" // keep the store's side
	// ConflictBoth keeps the folder's side at the path, and the store's beside it as path.conflict-VERSION.
	ConflictBoth OnConflict = "both"
)

// Decision is what a plan does with one path.
type Decision uint8

// The decisions.
const (
	InSync     Decision = iota // both sides are the same
	TakeLocal                  // the folder's side goes to the store, by a push
	TakeRemote                 // the store's side goes to the folder, by a pull
	KeepBoth                   // as TakeLocal, and the store's side is kept beside it
	Conflict                   // both sides changed, and OnConflict does not settle it
	Leave                      // the path is ignored or cannot be synced: neither side changes
)

// Step is one path of a plan: what it was at the last sync, what it is on each side, each nil when it does not exist, and
// the decision.
type Step struct {
	Base, Local, Remote *state.Node
	Do                  Decision
	Settled             bool // Do was chosen by OnConflict
}

// Path returns the step's path.
func (s *Step) Path() string { return cmp.Or(s.Local, s.Remote, s.Base).Path }

// merged returns what the path will be once both sides have taken what they have to take.
func (s *Step) merged() *state.Node {
	if s.Do == TakeRemote {
		return s.Remote
	}
	return s.Local
}

// Make joins the three trees, each in walk order, and decides for every path. It reads nothing but its arguments. prefer
// decides where only the modes differ and the base does not show which side changed them. leave reports the paths to
// leave alone: of those that the folder does not have, and of the store's symlinks, with everything below them.
// contested are the indexes in local of files to hash before anything can be decided: then there are no steps.
func Make(base []state.Node, local []*state.Node, remote []state.Node, on OnConflict, prefer Decision,
	leave func(*state.Node) bool) (steps []Step, contested []int) {
	steps = make([]Step, 0, max(len(local), len(remote)))
	link := "" // a symlink of the store that is left alone
	for b, l, r := 0, 0, 0; b < len(base) || l < len(local) || r < len(remote); {
		path, found := "", false
		first := func(p string) {
			if !found || state.ComparePaths(p, path) < 0 {
				path, found = p, true
			}
		}
		if b < len(base) {
			first(base[b].Path)
		}
		if l < len(local) {
			first(local[l].Path)
		}
		if r < len(remote) {
			first(remote[r].Path)
		}
		var s Step
		if b < len(base) && base[b].Path == path {
			s.Base = &base[b]
			b++
		}
		if l < len(local) && local[l].Path == path {
			s.Local = local[l]
			l++
		}
		if r < len(remote) && remote[r].Path == path {
			s.Remote = &remote[r]
			r++
		}
		switch {
		case link != "" && state.Within(path, link):
			s.Do = Leave
		case s.Local != nil && s.Remote != nil && s.Remote.Kind == state.Symlink && !state.Same(s.Local, s.Remote) && leave(s.Remote):
			s.Do, link = Leave, path
		case s.Local != nil && !s.Local.Hashed:
			if !state.Same(s.Base, s.Remote) {
				contested = append(contested, l-1)
			}
			s.Do = TakeLocal // whatever its content is: the other side has not changed
		case s.Local == nil && (s.Base != nil || s.Remote != nil) && leave(cmp.Or(s.Remote, s.Base)):
			s.Do = Leave
		default:
			s.decide(on, prefer)
		}
		steps = append(steps, s)
	}
	if len(contested) > 0 {
		return nil, contested
	}
	keepTree(steps, on)
	return steps, nil
}

func (s *Step) decide(on OnConflict, prefer Decision) {
	b, l, r := s.Base, s.Local, s.Remote
	switch {
	case state.Same(l, r):
		s.Do = InSync
	case state.Same(b, l):
		s.Do = TakeRemote
	case state.Same(b, r):
		s.Do = TakeLocal
	case l != nil && r != nil && state.SameContent(l, r):
		// Only the modes differ, which is not a conflict: the side that changed its mode wins.
		switch {
		case b != nil && b.Kind == l.Kind && b.Mode == r.Mode:
			s.Do = TakeLocal
		case b != nil && b.Kind == l.Kind && b.Mode == l.Mode:
			s.Do = TakeRemote
		default:
			s.Do = prefer
		}
	case l == nil && r.Kind == state.Dir:
		s.Do = TakeLocal // removed here; only its mode changed there
	case r == nil && l.Kind == state.Dir:
		s.Do = TakeRemote
	default:
		s.settle(on)
	}
}

func (s *Step) settle(on OnConflict) {
	s.Settled = true
	switch {
	case on == ConflictLocal:
		s.Do = TakeLocal
	case on == ConflictRemote:
		s.Do = TakeRemote
	case on == ConflictBoth && s.Local == nil:
		s.Do = TakeRemote
	case on == ConflictBoth && s.Remote == nil:
		s.Do = TakeLocal
	case on == ConflictBoth && s.Local.Kind != state.Dir && s.Remote.Kind != state.Dir:
		s.Do = KeepBoth
	default:
		s.Do = Conflict
	}
}

// keepTree makes the steps consistent with each other. A folder stays while something in it does. Where one side put a
// file in place of a folder in which the other changed something, or in which something is left alone, all of them are a conflict.
func keepTree(steps []Step, on OnConflict) {
	var above []int
	for i := range steps {
		path := steps[i].Path()
		for len(above) > 0 && !state.Within(path, steps[above[len(above)-1]].Path()) {
			above = above[:len(above)-1]
		}
		if steps[i].Do == Leave && steps[i].Remote != nil {
			keepAbove(steps, above, on)
		}
		for _, a := range above {
			// The decision on an ancestor further up may have removed this path.
			if steps[i].merged() == nil || steps[i].Do == Leave || steps[i].Do == Conflict {
				break
			}
			switch up := &steps[a]; {
			case up.Do == Leave && up.Local == nil && up.Remote != nil && up.Remote.Kind == state.Dir && steps[i].Do == TakeRemote:
				up.Do = TakeRemote // it is ignored, but what is in it is not
			case up.Do == Leave || up.Do == Conflict:
			case up.merged() == nil && up.Local != nil && up.Local.Kind == state.Dir:
				up.Do = TakeLocal
			case up.merged() == nil && up.Remote != nil && up.Remote.Kind == state.Dir:
				up.Do = TakeRemote
			case up.merged() != nil && up.merged().Kind != state.Dir:
				settleBelow(steps[a:], on)
			}
		}
		above = append(above, i)
	}
}

// keepAbove keeps the store's folders above something that is left alone there: a file in place of one of them is a conflict, and
// only the store's side settles it.
func keepAbove(steps []Step, above []int, on OnConflict) {
	if on != ConflictRemote {
		on = ConflictFail
	}
	for _, a := range above {
		if up := &steps[a]; up.Do == TakeLocal && up.Local != nil && up.Local.Kind != state.Dir {
			settleBelow(steps[a:], on)
		}
	}
}

// settleBelow gives the path of the first step and everything under it to one side.
func settleBelow(steps []Step, on OnConflict) {
	do := Conflict
	switch on {
	case ConflictLocal:
		do = TakeLocal
	case ConflictRemote:
		do = TakeRemote
	}
	top := steps[0].Path()
	for i := range steps {
		s := &steps[i]
		if i > 0 && !state.Within(s.Path(), top) {
			return
		}
		if s.Do != Leave && !state.Same(s.Local, s.Remote) {
			s.Do, s.Settled = do, true
		}
	}
}

// Check returns an error where the tree that a push would leave in the store breaks a rule or exceeds a limit: before
// anything is sent.
func Check(steps []Step, limits state.Limits) error {
	tree := state.TreeChecker{Limits: limits}
	for i := range steps {
		n := steps[i].Remote
		if d := steps[i].Do; d == TakeLocal || d == KeepBoth {
			n = steps[i].Local
		}
		if n == nil {
			continue
		}
		if err := tree.Add(n); err != nil {
			return err
		}
	}
	return nil
}

// PushedBase returns what both sides have in common after a push that left the store with the tree now: the paths that are
// in sync, and for the rest their base. whole reports whether that is everything the store has.
func PushedBase(steps []Step, now []state.Node) (base []state.Node, whole bool) {
	base = make([]state.Node, 0, len(steps))
	kept, at := 0, 0
	for i := range steps {
		s := &steps[i]
		path := s.Path()
		for at < len(now) && state.ComparePaths(now[at].Path, path) < 0 {
			at++
		}
		switch s.Do {
		case InSync, TakeLocal, KeepBoth:
			if at < len(now) && now[at].Path == path {
				base = append(base, now[at])
				kept++
			}
		default:
			if s.Base != nil {
				n := *s.Base
				n.At = state.Location{}
				base = append(base, n)
			}
		}
	}
	return base, kept == len(base) && kept == len(now)
}

// PulledBase returns what both sides have in common after a pull: everything the store has except what was left alone.
func PulledBase(steps []Step, now []state.Node) (base []state.Node, whole bool) {
	base = make([]state.Node, 0, len(now))
	whole = true
	for i := range steps {
		s := &steps[i]
		n := s.Remote
		if s.Do == Leave {
			whole = whole && s.Base == s.Remote
			n = s.Base
		}
		if n != nil {
			base = append(base, *n)
		}
	}
	return base, whole
}
