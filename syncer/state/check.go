package state

import (
	"cmp"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

// Limits bound what a state may ask of the machine that reads it. The zero value has the defaults.
type Limits struct {
	StateBytes int64 // size of a state; default 512 MiB
	Entries    int   // files, folders and symlinks together; default 1,500,000
	FileBytes  int64 // one file; default 64 GiB
	TotalBytes int64 // all files; default 1 TiB
}

// WithDefaults returns l with the defaults in place of what is not set.
func (l Limits) WithDefaults() Limits {
	l.StateBytes = cmp.Or(max(l.StateBytes, 0), 512<<20)
	l.Entries = cmp.Or(max(l.Entries, 0), 1_500_000)
	l.FileBytes = cmp.Or(max(l.FileBytes, 0), 64<<30)
	l.TotalBytes = cmp.Or(max(l.TotalBytes, 0), 1<<40)
	return l
}

// The most values of one entry: its fields, and one more for each object of a file.
const maxValues = 16

// The fewest bytes of JSON that a file and any other entry have, and how much fewer a state may have than its entries need: lists that
// are empty count as one entry, and a lineage has short ones. Without this, a small state could take much memory.
const (
	minFile  = 70
	minOther = 12
	minSlack = 4096
)

// checkCounts refuses a state that is too costly to decode, before any of it is decoded. Bytes that are not JSON are
// refused later.
func checkCounts(data []byte, limits Limits) error {
	files, others, values := 0, 0, int64(0) // elements of any kind: each takes the memory of an entry
	depth, inString := 0, false
	var list [4]bool // whether the brackets at these depths are of lists
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
		case '{', '[':
			if depth++; depth >= 0 && depth < len(list) {
				list[depth] = c == '['
			}
		case '}', ']':
			depth--
			continue
		case ',':
			values++
		default:
			continue
		}
		switch {
		case c == '{':
		case depth == 2 && list[2]: // {"files":[
			files++
		case depth == 3 && list[3]: // {"sluice":{"objects":[
			others++
		}
	}
	if files*minFile+others*minOther > len(data)+minSlack {
		return schemas.Errorf(schemas.CodeInvalidArgument, "state: %d files and %d other entries cannot be in %d bytes", files, others, len(data))
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

// Seal returns the state as [State.Encode] does, once it has passed the checks of [Decode]: what a push stores, a pull can read.
func (s *State) Seal(limits Limits) ([]byte, error) {
	limits = limits.WithDefaults()
	if err := s.Check(limits); err != nil {
		return nil, err
	}
	data := s.Encode()
	return data, checkSize(data, limits)
}

// checkSize refuses a state that is too large, or too costly to decode.
func checkSize(data []byte, limits Limits) error {
	if int64(len(data)) > limits.StateBytes {
		return schemas.Errorf(schemas.CodeTooLarge, "state: %d bytes, the limit is %d", len(data), limits.StateBytes)
	}
	return checkCounts(data, limits)
}

// Check returns an error for a state that breaks a rule or exceeds a limit. The errors are those of [Decode].
func (s *State) Check(limits Limits) error {
	if err := s.checkNames(); err != nil {
		return err
	}
	if err := s.Segments.check(s, limits); err != nil {
		return err
	}
	tree := TreeChecker{Limits: limits, entries: len(s.Dropping)}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if err := tree.Add(n); err != nil {
			return err
		}
		if n.Kind != File {
			continue
		}
		if why := s.badLocation(n); why != "" {
			return badNode(n, why)
		}
	}
	return s.checkPending()
}

// checkNames checks what becomes part of keys, and the objects.
func (s *State) checkNames() error {
	if len(s.Lineage) > MaxLineage {
		return schemas.Errorf(schemas.CodeInvalidArgument, "state: a lineage of %d states, the limit is %d", len(s.Lineage), MaxLineage)
	}
	for _, id := range append([]string{s.ID, s.Floor}, s.Lineage...) {
		if id != "" && !IsID(id) {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: %q is not the ID of a version", Clip(id))
		}
	}
	if err := checkObjects(s.Objects); err != nil {
		return err
	}
	return checkObjects(s.Segments.Objects)
}

func checkObjects(objects []Object) error {
	for i := range objects {
		if size := objects[i].Size; size <= 0 || size > 2*ChunkSize {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: object %d: impossible size of %d bytes", i, size)
		}
		if !isPushName(objects[i].Push) {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: object %d: %q is not the name of a push", i, Clip(objects[i].Push))
		}
	}
	return nil
}

func badNode(n *Node, why string) error {
	return schemas.Errorf(schemas.CodeInvalidArgument, "state: %q: %s", Clip(n.Path), why).With("path", Clip(n.Path))
}

// TreeChecker checks the nodes of a tree: that they are in walk order, each once, and in folders alone, that their paths and
// targets are valid, and that they are within the limits.
type TreeChecker struct {
	Limits  Limits
	entries int
	total   int64   // bytes
	above   []*Node // the node before and the folders above it
}

// Add checks the next node.
func (c *TreeChecker) Add(n *Node) error {
	if err := CheckPath(n.Path); err != nil {
		return err
	}
	if c.entries++; c.entries > c.Limits.Entries {
		return schemas.Errorf(schemas.CodeTooLarge, "state: more than %d entries", c.Limits.Entries)
	}
	if len(c.above) > 0 {
		switch order := ComparePaths(c.above[len(c.above)-1].Path, n.Path); {
		case order == 0:
			return badNode(n, "it occurs twice")
		case order > 0:
			return badNode(n, "it is not in order")
		}
	}
	for len(c.above) > 0 && !Within(n.Path, c.above[len(c.above)-1].Path) {
		c.above = c.above[:len(c.above)-1]
	}
	if len(c.above) > 0 && c.above[len(c.above)-1].Kind != Dir {
		return badNode(n, "it is under a "+c.above[len(c.above)-1].Kind.String())
	}
	c.above = append(c.above, n)
	switch n.Kind {
	case Symlink:
		if n.Target == "" || len(n.Target) > MaxPath || strings.IndexByte(n.Target, 0) >= 0 {
			return badNode(n, "its target is invalid")
		}
	case File:
		return c.addFile(n)
	}
	return nil
}

func (c *TreeChecker) addFile(n *Node) error {
	if n.Size < 0 {
		return badNode(n, "its size is negative")
	}
	if n.Size > c.Limits.FileBytes {
		return schemas.Errorf(schemas.CodeTooLarge, "state: %q: %d bytes, the limit is %d",
			Clip(n.Path), n.Size, c.Limits.FileBytes).With("path", Clip(n.Path))
	}
	if c.total += n.Size; c.total > c.Limits.TotalBytes {
		return schemas.Errorf(schemas.CodeTooLarge, "state: its files have more than %d bytes together", c.Limits.TotalBytes)
	}
	return nil
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

// isToken reports whether token can be an object's. It becomes a header of a request.
func isToken(token string) bool {
	for i := range len(token) {
		if c := token[i]; c < ' ' || c > '~' {
			return false
		}
	}
	return len(token) <= 1024
}

func (s *State) checkPending() error {
	if s.Layout == Packed && !s.Published() {
		return schemas.Errorf(schemas.CodeInvalidArgument, "state: pending files in the packed layout")
	}
	for i, p := range s.Pending {
		at, ok := s.Search(p.Path)
		if !ok || s.Nodes[at].Kind != File || i > 0 && ComparePaths(s.Pending[i-1].Path, p.Path) >= 0 {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: pending %q is not a file of the state", Clip(p.Path))
		}
		if !isToken(p.Over) {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: pending %q: %q is not the token of an object", Clip(p.Path), Clip(p.Over))
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
