package syncer

// OnConflict says what becomes of a path that has changed on both sides since the last sync.
type OnConflict string

// The ways to settle a conflict.
const (
	ConflictFail   OnConflict = "fail"   // change nothing and report it; the default
	ConflictLocal  OnConflict = "local"  // the folder's side is kept
	ConflictRemote OnConflict = "remote" // the store's side is kept
	// ConflictBoth keeps the folder's side at the path, and the store's beside it as path.conflict-VERSION.
	ConflictBoth OnConflict = "both"
)

// Decision is what a plan says about one path.
type Decision uint8

// The decisions.
const (
	InSync     Decision = iota // both sides are the same
	TakeLocal                  // the folder's side goes to the store; done by a push
	TakeRemote                 // the store's side goes to the folder; done by a pull
	KeepBoth                   // as TakeLocal, and the store's side is kept beside it
	Clash                      // both sides changed, and nobody said which to keep
	Leave                      // the path is ignored or cannot be carried: neither side is touched
)

// Step is one path of a plan: what it was at the last sync, what it is on each side, each nil when it is not there,
// and what to do.
type Step struct {
	Base, Local, Remote *Node
	Do                  Decision
	// settled is set when Do was chosen by the caller's OnConflict.
	settled bool
}

// Path is the step's path.
func (s *Step) Path() string {
	for _, n := range []*Node{s.Local, s.Remote, s.Base} {
		if n != nil {
			return n.Path
		}
	}
	return ""
}

// merged is what the path will be once both sides have taken what is theirs to take.
func (s *Step) merged() *Node {
	if s.Do == TakeRemote {
		return s.Remote
	}
	return s.Local
}

// plan joins the three trees, each in the order of a walk, and decides for every path. It reads nothing but its
// arguments. Where the sides differ in their modes alone, and it cannot be told who changed them, prefer decides. leave says which paths are not to be touched. contested are the places in local of files that must be
// hashed before anything can be decided: then there are no steps.
func plan(base []Node, local []*Node, remote []Node, on OnConflict, prefer Decision, leave func(*Node) bool) (
	steps []Step, contested []int) {
	steps = make([]Step, 0, max(len(local), len(remote)))
	for b, l, r := 0, 0, 0; b < len(base) || l < len(local) || r < len(remote); {
		path, some := "", false
		next := func(p string) {
			if !some || comparePaths(p, path) < 0 {
				path, some = p, true
			}
		}
		if b < len(base) {
			next(base[b].Path)
		}
		if l < len(local) {
			next(local[l].Path)
		}
		if r < len(remote) {
			next(remote[r].Path)
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
		case s.Local != nil && !s.Local.Hashed:
			if !same(s.Base, s.Remote) {
				contested = append(contested, l-1)
			}
			s.Do = TakeLocal // whatever it holds: the other side has not changed
		case s.Local == nil && (s.Base != nil || s.Remote != nil) && leave(firstOf(s.Remote, s.Base)):
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

func firstOf(nodes ...*Node) *Node {
	for _, n := range nodes {
		if n != nil {
			return n
		}
	}
	return nil
}

func (s *Step) decide(on OnConflict, prefer Decision) {
	b, l, r := s.Base, s.Local, s.Remote
	switch {
	case same(l, r):
		s.Do = InSync
	case same(b, l):
		s.Do = TakeRemote
	case same(b, r):
		s.Do = TakeLocal
	case l != nil && r != nil && sameContent(l, r):
		// The modes alone differ. That is not worth a conflict: whoever changed it is right.
		switch {
		case b != nil && b.Kind == l.Kind && b.Mode == r.Mode:
			s.Do = TakeLocal
		case b != nil && b.Kind == l.Kind && b.Mode == l.Mode:
			s.Do = TakeRemote
		default:
			s.Do = prefer
		}
	case l == nil && r.Kind == Dir:
		s.Do = TakeLocal // it was removed here and got another mode there
	case r == nil && l.Kind == Dir:
		s.Do = TakeRemote
	default:
		s.settle(on)
	}
}

// settle decides a conflict as the caller wants it.
func (s *Step) settle(on OnConflict) {
	s.settled = true
	switch {
	case on == ConflictLocal:
		s.Do = TakeLocal
	case on == ConflictRemote:
		s.Do = TakeRemote
	case on == ConflictBoth && s.Local == nil:
		s.Do = TakeRemote
	case on == ConflictBoth && s.Remote == nil:
		s.Do = TakeLocal
	case on == ConflictBoth && s.Local.Kind != Dir && s.Remote.Kind != Dir:
		s.Do = KeepBoth
	default:
		s.Do = Clash
	}
}

// keepTree makes the steps agree with one another. A folder stays while something in it does; and where one side has
// put a file in place of a folder in which the other has changed something, that is a conflict of all of them.
func keepTree(steps []Step, on OnConflict) {
	var above []int
	for i := range steps {
		path := steps[i].Path()
		for len(above) > 0 && !within(path, steps[above[len(above)-1]].Path()) {
			above = above[:len(above)-1]
		}
		for _, a := range above {
			// What an ancestor further up is settled to may have taken this path away.
			if steps[i].merged() == nil || steps[i].Do == Leave || steps[i].Do == Clash {
				break
			}
			switch up := &steps[a]; {
			case up.Do == Leave || up.Do == Clash:
			case up.merged() == nil && up.Local != nil && up.Local.Kind == Dir:
				up.Do = TakeLocal
			case up.merged() == nil && up.Remote != nil && up.Remote.Kind == Dir:
				up.Do = TakeRemote
			case up.merged() != nil && up.merged().Kind != Dir:
				settleBelow(steps[a:], on)
			}
		}
		above = append(above, i)
	}
}

// settleBelow gives the path of the first step, and everything under it, to one side.
func settleBelow(steps []Step, on OnConflict) {
	do := Clash
	switch on {
	case ConflictLocal:
		do = TakeLocal
	case ConflictRemote:
		do = TakeRemote
	}
	top := steps[0].Path()
	for i := range steps {
		s := &steps[i]
		if i > 0 && !within(s.Path(), top) {
			return
		}
		if s.Do != Leave && !same(s.Local, s.Remote) {
			s.Do, s.settled = do, true
		}
	}
}
