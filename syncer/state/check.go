package state

import (
	"cmp"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

// Limits bound what a state may ask of the machine that reads it. The zero value has the defaults.
type Limits struct {
	StateBytes int64 // size of a state; default 256 MiB
	Entries    int   // files, folders and symlinks together; default 500,000
	FileBytes  int64 // one file; default 64 GiB
	TotalBytes int64 // all files; default 1 TiB
}

// WithDefaults returns l with the defaults in place of what is not set.
func (l Limits) WithDefaults() Limits {
	l.StateBytes = cmp.Or(max(l.StateBytes, 0), 256<<20)
	l.Entries = cmp.Or(max(l.Entries, 0), 500_000)
	l.FileBytes = cmp.Or(max(l.FileBytes, 0), 64<<30)
	l.TotalBytes = cmp.Or(max(l.TotalBytes, 0), 1<<40)
	return l
}

// The most values of one entry: its fields, and one more for each object of a file.
const maxValues = 16

// checkCounts refuses a state that is too costly to decode, before any of it is decoded. Bytes that are not JSON are
// refused later.
func checkCounts(data []byte, limits Limits) error {
	files, others, values := 0, 0, int64(0)
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		c := data[i]
		if inString {
			switch c {
			case '\\':
				i++
			case '"':
				inString = false
			}
			continue
		}
		switch c {
		case '"':
			inString = true
		case ',':
			values++
		case '{', '[':
			switch {
			case c == '[':
			case depth == 2: // {"files":[{
				files++
			case depth == 3: // {"sluice":{"objects":[{
				others++
			}
			depth++
		case '}', ']':
			depth--
		}
	}
	if files > limits.Entries {
		return schemas.Errorf(schemas.CodeTooLarge, "state: %d files, the limit is %d entries", files, limits.Entries)
	}
	// Folders, symlinks and paths to drop are entries, pending files are files, and every object holds part of a file.
	if most := 3*limits.Entries + int(limits.TotalBytes/ChunkSize); others > most {
		return schemas.Errorf(schemas.CodeTooLarge, "state: %d folders, symlinks and objects, the limit is %d", others, most)
	}
	if most := int64(maxValues)*int64(limits.Entries) + limits.TotalBytes/ChunkSize; values > most {
		return schemas.Errorf(schemas.CodeTooLarge, "state: %d values, the limit is %d", values, most)
	}
	return nil
}

// Check returns an error for a state that breaks a rule or exceeds a limit. The errors are those of [Decode].
func (s *State) Check(limits Limits) error {
	bad := func(n *Node, why string) error {
		return schemas.Errorf(schemas.CodeInvalidArgument, "state: %q: %s", Clip(n.Path), why).With("path", Clip(n.Path))
	}
	for i := range s.Objects {
		if size := s.Objects[i].Size; size <= 0 || size > 2*ChunkSize {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: object %d: impossible size of %d bytes", i, size)
		}
		if !isPushName(s.Objects[i].Push) {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: object %d: %q is not the name of a push", i, Clip(s.Objects[i].Push))
		}
	}
	var total int64
	var above []*Node // the ancestors of the current node
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if err := CheckPath(n.Path); err != nil {
			return err
		}
		if i > 0 && s.Nodes[i-1].Path == n.Path {
			return bad(n, "it occurs twice")
		}
		for len(above) > 0 && !Within(n.Path, above[len(above)-1].Path) {
			above = above[:len(above)-1]
		}
		if len(above) > 0 && above[len(above)-1].Kind != Dir {
			return bad(n, "it is under a "+above[len(above)-1].Kind.String())
		}
		above = append(above, n)
		switch n.Kind {
		case Symlink:
			if n.Target == "" || len(n.Target) > MaxPath || strings.IndexByte(n.Target, 0) >= 0 {
				return bad(n, "its target is invalid")
			}
		case File:
			if n.Size < 0 {
				return bad(n, "its size is negative")
			}
			if n.Size > limits.FileBytes {
				return schemas.Errorf(schemas.CodeTooLarge, "state: %q: %d bytes, the limit is %d",
					Clip(n.Path), n.Size, limits.FileBytes).With("path", Clip(n.Path))
			}
			if total += n.Size; total > limits.TotalBytes {
				return schemas.Errorf(schemas.CodeTooLarge, "state: its files have more than %d bytes together", limits.TotalBytes)
			}
			if why := s.badLocation(n); why != "" {
				return bad(n, why)
			}
		}
	}
	return s.checkPending()
}

// isPushName reports whether name can be a push's. It becomes part of keys.
func isPushName(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(name) <= 32
}

func (s *State) checkPending() error {
	if s.Layout == Packed && !s.Published() {
		return schemas.Errorf(schemas.CodeInvalidArgument, "state: pending files in the packed layout")
	}
	for i, p := range s.Pending {
		at, ok := s.Search(p.Path)
		if !ok || s.Nodes[at].Kind != File || i > 0 && s.Pending[i-1].Path == p.Path {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: pending %q is not a file of the state", Clip(p.Path))
		}
		if n := &s.Nodes[at]; n.Size > 0 && len(n.At.Objects) == 0 {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: pending %q has no stored content", Clip(p.Path))
		}
	}
	for _, p := range s.Dropping {
		if err := CheckPath(p); err != nil {
			return err
		}
		if at, ok := s.Search(p); ok && s.Nodes[at].Kind == File {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: %q is a file, and its object is to be deleted", Clip(p))
		}
	}
	return nil
}

// badLocation returns what is wrong with n's location, "" when nothing is.
func (s *State) badLocation(n *Node) string {
	if s.Layout != Packed && len(n.At.Objects) == 0 {
		return "" // it is under its own path
	}
	if s.Layout == "" {
		return "it has a location without a layout"
	}
	if n.Digest == (Digest{}) {
		return "it has no digest"
	}
	if s.Remote != "" {
		n.At = Location{} // a local state is a base: its locations mean nothing
		return ""
	}
	chunks := ChunkCount(n.Size)
	if len(n.At.Objects) != chunks {
		return "its location does not match its size"
	}
	for i, o := range n.At.Objects {
		if int64(o) >= int64(len(s.Objects)) {
			return "its location is not in the state"
		}
		size := s.Objects[o].Size
		if chunks == 1 {
			if n.At.Offset < 0 || n.At.Offset > size-n.Size {
				return "it reaches beyond its object"
			}
		} else if size != min(ChunkSize, n.Size-int64(i)*ChunkSize) {
			return "a chunk of it has the wrong size"
		}
	}
	return ""
}
