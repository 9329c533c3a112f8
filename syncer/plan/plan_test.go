package plan_test

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/state/statetest"
)

func leaveNothing(*state.Node) bool { return false }

func pointers(nodes []state.Node) []*state.Node {
	all := make([]*state.Node, len(nodes))
	for i := range nodes {
		all[i] = &nodes[i]
	}
	return all
}

// tree returns the tree of one node, or of none for nil.
func tree(n *state.Node) []state.Node {
	if n == nil {
		return nil
	}
	return []state.Node{*n}
}

func TestMakeDecides(t *testing.T) {
	one, two, three := statetest.File("f", "1"), statetest.File("f", "2"), statetest.File("f", "3")
	exec := one
	exec.Mode = 0o755
	dir := state.Node{Path: "f", Kind: state.Dir, Mode: 0o755, Hashed: true}
	link := state.Node{Path: "f", Kind: state.Symlink, Target: "x", Hashed: true}
	touched := one
	touched.Modified = 99
	for _, c := range []struct {
		name    string
		b, l, r *state.Node
		want    plan.Decision
	}{
		{"nothing new", &one, &one, &one, plan.InSync},
		{"touched", &one, &touched, &one, plan.InSync},
		{"added here", nil, &one, nil, plan.TakeLocal},
		{"added there", nil, nil, &one, plan.TakeRemote},
		{"added alike", nil, &one, &touched, plan.InSync},
		{"added differently", nil, &one, &two, plan.Conflict},
		{"changed here", &one, &two, &one, plan.TakeLocal},
		{"changed there", &one, &one, &two, plan.TakeRemote},
		{"changed alike", &one, &two, &two, plan.InSync},
		{"changed differently", &one, &two, &three, plan.Conflict},
		{"deleted here", &one, nil, &one, plan.TakeLocal},
		{"deleted there", &one, &one, nil, plan.TakeRemote},
		{"deleted twice", &one, nil, nil, plan.InSync},
		{"deleted here, changed there", &one, nil, &two, plan.Conflict},
		{"changed here, deleted there", &one, &two, nil, plan.Conflict},
		{"mode here", &one, &exec, &one, plan.TakeLocal},
		{"mode there", &one, &one, &exec, plan.TakeRemote},
		{"mode differs from the start", nil, &exec, &one, plan.TakeLocal},
		{"a folder here", &one, &dir, &one, plan.TakeLocal},
		{"a folder there", &one, &one, &dir, plan.TakeRemote},
		{"a link here, a file there", nil, &link, &one, plan.Conflict},
	} {
		steps, _ := plan.Make(tree(c.b), pointers(tree(c.l)), tree(c.r), plan.ConflictFail, plan.TakeLocal, leaveNothing)
		if len(steps) != 1 {
			t.Fatalf("%s: %d steps, want 1", c.name, len(steps))
		}
		if got := steps[0].Do; got != c.want {
			t.Errorf("%s: decision = %d, want %d", c.name, got, c.want)
		}
	}
}

func TestMakeContestsUnhashedFilesOnlyWhenNeeded(t *testing.T) {
	one, two, unread := statetest.File("f", "1"), statetest.File("f", "2"), statetest.File("f", "3")
	unread.Hashed = false
	for _, c := range []struct {
		base, remote *state.Node
		want         int
	}{{nil, nil, 0}, {&one, &one, 0}, {&one, &two, 1}, {nil, &one, 1}, {&one, nil, 1}} {
		_, contested := plan.Make(tree(c.base), []*state.Node{&unread}, tree(c.remote), plan.ConflictFail, plan.TakeLocal, leaveNothing)
		if len(contested) != c.want {
			t.Errorf("base %v, remote %v: contested = %v, want %d", c.base, c.remote, contested, c.want)
		}
	}
}

// isTree reports whether every node lies in a folder.
func isTree(nodes []state.Node) bool {
	s := state.State{Nodes: slices.Clone(nodes)}
	return s.Check(state.Limits{}.WithDefaults()) == nil
}

// pushTree returns what the store has after a push, as a push computes it.
func pushTree(steps []plan.Step) (nodes []state.Node) {
	for _, s := range steps {
		if s.Do == plan.TakeLocal || s.Do == plan.KeepBoth {
			nodes = append(nodes, tree(s.Local)...)
		} else {
			nodes = append(nodes, tree(s.Remote)...)
		}
	}
	return nodes
}

// pullTree returns what the folder has after a pull.
func pullTree(steps []plan.Step) (nodes []state.Node) {
	for _, s := range steps {
		if s.Do == plan.TakeRemote {
			nodes = append(nodes, tree(s.Remote)...)
		} else {
			nodes = append(nodes, tree(s.Local)...)
		}
	}
	return nodes
}

func TestPlanAfterApplyIsEmpty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, local, remote := statetest.Tree(t, "base "), statetest.Tree(t, "local "), statetest.Tree(t, "remote ")
		on := rapid.SampledFrom([]plan.OnConflict{plan.ConflictLocal, plan.ConflictRemote, plan.ConflictBoth, plan.ConflictFail}).Draw(t, "on")
		steps, contested := plan.Make(base, pointers(local), remote, on, plan.TakeLocal, leaveNothing)
		if len(contested) > 0 {
			t.Fatalf("contested = %v, want none: every file is hashed", contested)
		}
		for i := range steps {
			s := &steps[i]
			if s.Do == plan.TakeRemote && !s.Settled && s.Local != nil && !state.Same(s.Local, s.Base) &&
				(s.Local.Kind != state.Dir) && !state.SameContent(s.Local, cmp.Or(s.Remote, s.Base)) {
				t.Fatalf("%q was changed here and would be lost", s.Path())
			}
			if s.Do == plan.Conflict {
				return // such a plan is not applied
			}
		}
		pushed, pulled := pushTree(steps), pullTree(steps)
		for name, nodes := range map[string][]state.Node{"push": pushed, "pull": pulled} {
			if !isTree(nodes) {
				t.Fatalf("the nodes after a %s are not a tree: %+v", name, nodes)
			}
		}
		// A push, then a pull, then another of each.
		base2, _ := plan.PushedBase(steps, pushed)
		second, _ := plan.Make(base2, pointers(local), pushed, on, plan.TakeRemote, leaveNothing)
		for i := range second {
			if d := second[i].Do; d == plan.TakeLocal || d == plan.KeepBoth || d == plan.Conflict {
				t.Fatalf("after a push: decision = %d for %q, want nothing to push", d, second[i].Path())
			}
		}
		after := pullTree(second)
		if !isTree(after) {
			t.Fatalf("the nodes after a pull are not a tree: %+v", after)
		}
		base3, _ := plan.PulledBase(second, pushed)
		third, _ := plan.Make(base3, pointers(after), pushed, on, plan.TakeRemote, leaveNothing)
		for i := range third {
			if third[i].Do != plan.InSync {
				t.Fatalf("after a push and a pull: decision = %d for %q, want in sync", third[i].Do, third[i].Path())
			}
		}
	})
}

// TestLeftLinksReplaceNothing leaves some symlinks of the store alone: what the folder has at their paths and below stays, and both sides
// stay trees. Sync 7.
func TestLeftLinksReplaceNothing(t *testing.T) {
	left := func(n *state.Node) bool { return n.Kind == state.Symlink && n.Target == "y" }
	rapid.Check(t, func(t *rapid.T) {
		base, local, remote := statetest.Tree(t, "base "), statetest.Tree(t, "local "), statetest.Tree(t, "remote ")
		local = slices.DeleteFunc(local, func(n state.Node) bool { return left(&n) }) // a walk skips them
		on := rapid.SampledFrom([]plan.OnConflict{plan.ConflictLocal, plan.ConflictRemote, plan.ConflictBoth}).Draw(t, "on")
		steps, _ := plan.Make(base, pointers(local), remote, on, plan.TakeLocal, left)
		if slices.ContainsFunc(steps, func(s plan.Step) bool { return s.Do == plan.Conflict }) {
			return // such a plan is not applied
		}
		pushed, pulled := pushTree(steps), pullTree(steps)
		if !isTree(pushed) || !isTree(pulled) {
			t.Fatalf("not a tree after a push or a pull: %+v, %+v", pushed, pulled)
		}
		if err := plan.Check(steps, state.Limits{}.WithDefaults()); err != nil {
			t.Fatal(err)
		}
		link := ""
		for i := range steps {
			s := &steps[i]
			if s.Remote != nil && left(s.Remote) {
				link = s.Path()
			}
			if link != "" && (s.Path() == link || state.Within(s.Path(), link)) && s.Local != nil && s.Do != plan.Leave {
				t.Fatalf("%q: decision = %d, want that it is left alone", s.Path(), s.Do)
			}
		}
	})
}
