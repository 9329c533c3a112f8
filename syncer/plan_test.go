package syncer

import (
	"crypto/md5"
	"crypto/sha256"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func leaveNothing(*Node) bool { return false }

func fileNode(path, data string) Node {
	return Node{Path: path, Kind: File, Mode: 0o644, Size: int64(len(data)), MD5: md5.Sum([]byte(data)),
		Digest: sha256.Sum256([]byte(data)), Hashed: true}
}

func pointers(nodes []Node) []*Node {
	all := make([]*Node, len(nodes))
	for i := range nodes {
		all[i] = &nodes[i]
	}
	return all
}

func TestPlanTable(t *testing.T) {
	one, two, three := fileNode("f", "1"), fileNode("f", "2"), fileNode("f", "3")
	exec := one
	exec.Mode = 0o755
	dir := Node{Path: "f", Kind: Dir, Mode: 0o755, Hashed: true}
	link := Node{Path: "f", Kind: Symlink, Target: "x", Hashed: true}
	touched := one
	touched.Modified = 99
	for _, c := range []struct {
		name    string
		b, l, r *Node
		want    Decision
	}{
		{"nothing new", &one, &one, &one, InSync},
		{"touched", &one, &touched, &one, InSync},
		{"added here", nil, &one, nil, TakeLocal},
		{"added there", nil, nil, &one, TakeRemote},
		{"added alike", nil, &one, &touched, InSync},
		{"added differently", nil, &one, &two, Clash},
		{"changed here", &one, &two, &one, TakeLocal},
		{"changed there", &one, &one, &two, TakeRemote},
		{"changed alike", &one, &two, &two, InSync},
		{"changed differently", &one, &two, &three, Clash},
		{"deleted here", &one, nil, &one, TakeLocal},
		{"deleted there", &one, &one, nil, TakeRemote},
		{"deleted twice", &one, nil, nil, InSync},
		{"deleted here, changed there", &one, nil, &two, Clash},
		{"changed here, deleted there", &one, &two, nil, Clash},
		{"mode here", &one, &exec, &one, TakeLocal},
		{"mode there", &one, &one, &exec, TakeRemote},
		{"mode differs from the start", nil, &exec, &one, TakeLocal},
		{"a folder here", &one, &dir, &one, TakeLocal},
		{"a folder there", &one, &one, &dir, TakeRemote},
		{"a link here, a file there", nil, &link, &one, Clash},
	} {
		var base, remote []Node
		var local []*Node
		if c.b != nil {
			base = []Node{*c.b}
		}
		if c.l != nil {
			local = []*Node{c.l}
		}
		if c.r != nil {
			remote = []Node{*c.r}
		}
		steps, _ := plan(base, local, remote, ConflictFail, TakeLocal, leaveNothing)
		if len(steps) != 1 || steps[0].Do != c.want {
			t.Errorf("%s: %+v, want %d", c.name, steps, c.want)
		}
	}
}

func TestUnreadFilesAreReadOnlyWhenItMatters(t *testing.T) {
	one, two, unread := fileNode("f", "1"), fileNode("f", "2"), fileNode("f", "3")
	unread.Hashed = false
	for _, c := range []struct {
		base, remote []Node
		want         int
	}{
		{nil, nil, 0}, {[]Node{one}, []Node{one}, 0}, {[]Node{one}, []Node{two}, 1}, {nil, []Node{one}, 1}, {[]Node{one}, nil, 1},
	} {
		_, contested := plan(c.base, []*Node{&unread}, c.remote, ConflictFail, TakeLocal, leaveNothing)
		if len(contested) != c.want {
			t.Errorf("base %v, remote %v: %v", c.base, c.remote, contested)
		}
	}
}

// trees draws a tree: small alphabets, so that paths meet.
func trees(t *rapid.T, name string) []Node {
	var nodes []Node
	var fill func(prefix string, depth int)
	fill = func(prefix string, depth int) {
		for _, n := range []string{"a", "a-", "b"} {
			path := prefix + n
			switch rapid.IntRange(0, 4).Draw(t, name+path) {
			case 0:
				f := fileNode(path, rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "data"))
				if rapid.Bool().Draw(t, "exec") {
					f.Mode = 0o755
				}
				nodes = append(nodes, f)
			case 1:
				nodes = append(nodes, Node{Path: path, Kind: Symlink, Hashed: true,
					Target: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "target")})
			case 2:
				if depth < 2 {
					nodes = append(nodes, Node{Path: path, Kind: Dir, Mode: 0o755, Hashed: true})
					fill(path+"/", depth+1)
				}
			}
		}
	}
	fill("", 0)
	sortNodes(nodes)
	return nodes
}

// isTree says whether everything lies in a folder.
func isTree(nodes []Node) bool {
	s := State{Nodes: slices.Clone(nodes)}
	return s.check(Limits{}.withDefaults()) == nil
}

// pushTree is what the store has after a push, as a push computes it.
func pushTree(steps []Step) (nodes []Node) {
	for i := range steps {
		n := steps[i].Remote
		if steps[i].Do == TakeLocal || steps[i].Do == KeepBoth {
			n = steps[i].Local
		}
		if n != nil {
			nodes = append(nodes, *n)
		}
	}
	return nodes
}

// pullTree is what the folder has after a pull.
func pullTree(steps []Step) (nodes []Node) {
	for i := range steps {
		n := steps[i].Local
		if steps[i].Do == TakeRemote {
			n = steps[i].Remote
		}
		if n != nil {
			nodes = append(nodes, *n)
		}
	}
	return nodes
}

func TestPlanAfterApplyIsEmpty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, local, remote := trees(t, "base "), trees(t, "local "), trees(t, "remote ")
		on := rapid.SampledFrom([]OnConflict{ConflictLocal, ConflictRemote, ConflictBoth, ConflictFail}).Draw(t, "on")
		steps, contested := plan(base, pointers(local), remote, on, TakeLocal, leaveNothing)
		if len(contested) > 0 {
			t.Fatal("everything is hashed")
		}
		for i := range steps {
			s := &steps[i]
			if s.Do == TakeRemote && !s.settled && s.Local != nil && !same(s.Local, s.Base) &&
				(s.Local.Kind != Dir) && !sameContent(s.Local, firstOf(s.Remote, s.Base)) {
				t.Fatalf("%q was changed here and would be lost", s.Path())
			}
			if s.Do == Clash {
				return // nothing is applied
			}
		}
		pushed, pulled := pushTree(steps), pullTree(steps)
		for name, nodes := range map[string][]Node{"push": pushed, "pull": pulled} {
			if !isTree(nodes) {
				t.Fatalf("a %s makes no tree: %+v", name, nodes)
			}
		}
		// A push, then a pull, then another of each.
		base2, _ := pushedBase(steps, pushed)
		second, _ := plan(base2, pointers(local), pushed, on, TakeRemote, leaveNothing)
		for i := range second {
			if d := second[i].Do; d == TakeLocal || d == KeepBoth || d == Clash {
				t.Fatalf("after a push there is more to push: %d for %q", d, second[i].Path())
			}
		}
		after := pullTree(second)
		if !isTree(after) {
			t.Fatalf("a pull makes no tree: %+v", after)
		}
		base3, _ := pulledBase(second, pushed)
		third, _ := plan(base3, pointers(after), pushed, on, TakeRemote, leaveNothing)
		for i := range third {
			if third[i].Do != InSync {
				t.Fatalf("after a push and a pull: %d for %q", third[i].Do, third[i].Path())
			}
		}
	})
}

func TestStateAndIndexComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := State{Layout: Plain, ID: "id", Count: 3, Nodes: trees(t, "")}
		back, err := DecodeState(s.Encode(), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if !sameNodes(back.Nodes, s.Nodes) {
			t.Fatalf("%+v\n%+v", back.Nodes, s.Nodes)
		}
		x := &index{remote: "r", token: "t", whole: true, base: s}
		for i := range x.base.Nodes {
			if n := &x.base.Nodes[i]; n.Kind == File {
				own := *n
				if rapid.Bool().Draw(t, "own") {
					own.Mode = 0o600
					n = &own
				}
				x.seen = append(x.seen, seen{stat: stat{Size: n.Size, Mtime: 5, Ctime: int64(i), Inode: 7, Mode: 0o644}, node: n})
			}
		}
		data := x.encode()
		again, err := decodeIndex(data)
		if err != nil || !sameNodes(again.base.Nodes, s.Nodes) || len(again.seen) != len(x.seen) {
			t.Fatalf("%+v, %v", again, err)
		}
		for i := range x.seen {
			if again.seen[i].stat != x.seen[i].stat || !sameNodes([]Node{*again.seen[i].node}, []Node{*x.seen[i].node}) {
				t.Fatalf("%+v %+v", again.seen[i], x.seen[i])
			}
		}
		data[rapid.IntRange(0, len(data)-1).Draw(t, "at")] ^= 1
		if _, err := decodeIndex(data); err == nil {
			t.Fatal("a damaged index was taken")
		}
	})
}

func sameNodes(a, b []Node) bool {
	return slices.EqualFunc(a, b, func(a, b Node) bool { return a.Path == b.Path && same(&a, &b) && a.MD5 == b.MD5 })
}
