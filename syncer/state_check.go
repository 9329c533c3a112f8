package syncer

import (
	"errors"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

// ErrCorrupt says that a state's bytes are no state at all, as after a torn write. Such a state is made anew from what
// is there; one that is well formed and breaks a rule is refused instead.
var ErrCorrupt = errors.New("state: corrupt")

// The most that common file systems take for one name and Linux for one path.
const (
	maxName = 255
	maxPath = 4096
)

// CheckPath says why p may not stand in a state: it is nil for a relative, slash-separated path that stays in its
// root, and else an invalid_argument error.
func CheckPath(p string) error {
	bad := func(why string) error {
		return schemas.Errorf(schemas.CodeInvalidArgument, "path %q: %s", clip(p), why).With("path", clip(p))
	}
	switch {
	case p == "":
		return bad("it is empty")
	case p[0] == '/':
		return bad("it is absolute")
	case len(p) > maxPath:
		return bad("it is too long")
	case strings.IndexByte(p, 0) >= 0:
		return bad("it holds a NUL byte")
	case reserved(p):
		return bad("the name is reserved for sync itself")
	}
	for rest, more := p, true; more; {
		var name string
		name, rest, more = strings.Cut(rest, "/")
		switch {
		case name == "":
			return bad("it has an empty segment")
		case name == "." || name == "..":
			return bad("it has the segment " + name)
		case len(name) > maxName:
			return bad("a name in it is too long")
		}
	}
	return nil
}

func (s *State) check(limits Limits) error {
	bad := func(n *Node, why string) error {
		return schemas.Errorf(schemas.CodeInvalidArgument, "state: %q: %s", clip(n.Path), why).With("path", clip(n.Path))
	}
	for i := range s.Objects {
		if size := s.Objects[i].Size; size <= 0 || size > 2*ChunkSize {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: object %d: a size of %d bytes cannot be", i, size)
		}
		if !pushName(s.Objects[i].Push) {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: object %d: %q is no push", i, clip(s.Objects[i].Push))
		}
	}
	var total int64
	var above []*Node // the folders, or what claims to be one, that the node at hand is in
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if err := CheckPath(n.Path); err != nil {
			return err
		}
		if i > 0 && s.Nodes[i-1].Path == n.Path {
			return bad(n, "it stands there twice")
		}
		for len(above) > 0 && !within(n.Path, above[len(above)-1].Path) {
			above = above[:len(above)-1]
		}
		if len(above) > 0 && above[len(above)-1].Kind != Dir {
			return bad(n, "it lies under a "+above[len(above)-1].Kind.String())
		}
		above = append(above, n)
		switch n.Kind {
		case Symlink:
			if n.Target == "" || len(n.Target) > maxPath || strings.IndexByte(n.Target, 0) >= 0 {
				return bad(n, "its target cannot be one")
			}
		case File:
			if n.Size < 0 {
				return bad(n, "its size is negative")
			}
			if n.Size > limits.FileBytes {
				return schemas.Errorf(schemas.CodeTooLarge, "state: %q: %d bytes, the limit is %d",
					clip(n.Path), n.Size, limits.FileBytes).With("path", clip(n.Path))
			}
			if total += n.Size; total > limits.TotalBytes {
				return schemas.Errorf(schemas.CodeTooLarge, "state: its files have more than %d bytes", limits.TotalBytes)
			}
			if why := s.badLocation(n); why != "" {
				return bad(n, why)
			}
		}
	}
	return s.checkUnsettled()
}

// pushName says whether name can be a push's: one becomes a part of keys.
func pushName(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(name) <= 32
}

func (s *State) checkUnsettled() error {
	if s.Layout == Packed && !s.settled() {
		return schemas.Errorf(schemas.CodeInvalidArgument, "state: only the plain layout has files that are pending")
	}
	for i, p := range s.Pending {
		at, ok := s.search(p.Path)
		if !ok || s.Nodes[at].Kind != File || i > 0 && s.Pending[i-1].Path == p.Path {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: %q is pending, and is no file in it", clip(p.Path))
		}
		if n := &s.Nodes[at]; n.Size > 0 && len(n.At.Objects) == 0 {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: %q is pending, and its content is nowhere", clip(p.Path))
		}
	}
	for _, p := range s.Dropping {
		if err := CheckPath(p); err != nil {
			return err
		}
		if at, ok := s.search(p); ok && s.Nodes[at].Kind == File {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: %q is a file, and its object is to go", clip(p))
		}
	}
	return nil
}

// badLocation says what is wrong with where n is said to be; "" when nothing is.
func (s *State) badLocation(n *Node) string {
	if s.Layout != Packed && len(n.At.Objects) == 0 {
		return "" // it lies under its own path
	}
	if s.Layout == "" {
		return "it has a location outside the known layouts"
	}
	if n.Digest == (Digest{}) {
		return "it has no digest"
	}
	if s.Remote != "" {
		n.At = Location{} // a local state is a base and says nothing of where things are
		return ""
	}
	chunks := chunkCount(n.Size)
	if len(n.At.Objects) != chunks {
		return "its location does not fit its size"
	}
	for i, o := range n.At.Objects {
		if int64(o) >= int64(len(s.Objects)) {
			return "its location is not in the state"
		}
		size := s.Objects[o].Size
		if chunks == 1 {
			if n.At.Offset < 0 || n.At.Offset > size-n.Size {
				return "it reaches over the end of its object"
			}
		} else if size != chunkLength(n.Size, i) {
			return "a chunk of it has the wrong size"
		}
	}
	return ""
}

// chunkCount is how many chunks a file has.
func chunkCount(size int64) int { return int((size + ChunkSize - 1) / ChunkSize) }

// chunkLength is how long the i-th chunk of a file is.
func chunkLength(size int64, i int) int64 { return min(ChunkSize, size-int64(i)*ChunkSize) }
