package state

import (
	"encoding/json"
	"slices"

	"github.com/sluice-dev/sluice/schemas"
)

// Root is a state of which the segments are still to be read, in their order. Everything in them is checked as [Decode] checks a whole
// state, and that each path is in the range of its segment.
type Root struct {
	state   State // its nodes are the changed ones
	limits  Limits
	nodes   []Node
	objects []Object
	numbers map[Object]uint32 // of objects
	read    int               // segments
	changed []string          // left
	own     []Node            // left of the changed nodes
}

// DecodeRoot reads a state as [Decode] does, except for its segments.
func DecodeRoot(data []byte, limits Limits) (*Root, error) {
	limits = limits.WithDefaults()
	s, removed, err := decodeListed(data, limits)
	if err != nil {
		return nil, err
	}
	if len(s.Segments.List) == 0 {
		return &Root{state: *s, limits: limits}, nil
	}
	if err := s.checkNames(); err != nil {
		return nil, err
	}
	if err := s.Segments.check(s, limits); err != nil {
		return nil, err
	}
	changed := removed
	for i := range s.Nodes {
		changed = append(changed, s.Nodes[i].Path)
	}
	slices.SortFunc(changed, ComparePaths)
	s.Segments.Changed = slices.Compact(changed)
	r := &Root{state: *s, limits: limits, numbers: map[Object]uint32{}, changed: s.Segments.Changed, own: s.Nodes}
	r.renumber(r.own, s.Objects)
	return r, nil
}

// Segments returns what is to be read.
func (r *Root) Segments() *Segments { return &r.state.Segments }

// renumber makes the locations of nodes, which refer to objects, refer to those of the state.
func (r *Root) renumber(nodes []Node, objects []Object) {
	numbers := make([]uint32, len(objects))
	for i, o := range objects {
		numbers[i] = r.number(o)
	}
	for i := range nodes {
		at := nodes[i].At.Objects
		for k, o := range at {
			if int64(o) < int64(len(numbers)) {
				at[k] = numbers[o]
			} else {
				at[k] = ^uint32(0) // Check refuses it
			}
		}
	}
}

// Add adds the content of the next segment, decompressed.
func (r *Root) Add(data []byte) error {
	p := &r.state.Segments.List[r.read]
	bounds := r.limits
	bounds.Entries = p.Entries
	if err := checkCounts(data, bounds); err != nil {
		return err
	}
	var raw stateJSON
	if err := json.Unmarshal(data, &raw); err != nil {
		return schemas.Errorf(schemas.CodeInvalidArgument, "state: segment %d: %s", r.read, Clip(err.Error()))
	}
	part := State{Nodes: make([]Node, 0, p.Entries)}
	if err := part.fill(&raw); err != nil {
		return err
	}
	if len(part.Nodes) != p.Entries || part.Nodes[0].Path != p.First {
		return schemas.Errorf(schemas.CodeInvalidArgument, "state: segment %d: %d entries, not the %d from %q on", r.read,
			len(part.Nodes), p.Entries, Clip(p.First))
	}
	if end := r.state.Segments.end(r.read); end != "" && ComparePaths(part.Nodes[len(part.Nodes)-1].Path, end) >= 0 {
		return schemas.Errorf(schemas.CodeInvalidArgument, "state: segment %d reaches beyond %q", r.read, Clip(end))
	}
	r.renumber(part.Nodes, part.Objects)
	r.merge(part.Nodes)
	return nil
}

// Has reports whether known, which may be nil, has the nodes of segment i: it shares the segment, and every path from its first to its
// end that is changed in known is changed in this state too.
func (r *Root) Has(i int, known *State) bool {
	if known == nil || len(known.Segments.List) == 0 {
		return false
	}
	k := known.Segments.Find(r.state.Segments.List[i].First)
	if !r.state.Segments.shares(i, &known.Segments, k) || r.state.Segments.end(i) != known.Segments.end(k) {
		return false
	}
	changed := known.Segments.changedIn(k)
	first, _ := slices.BinarySearchFunc(changed, r.state.Segments.List[i].First, ComparePaths) // known may have more before it
	for _, path := range changed[first:] {
		if _, ok := slices.BinarySearchFunc(r.state.Segments.Changed, path, ComparePaths); !ok {
			return false
		}
	}
	return true
}

// Reuse takes the nodes of the next segment from a state that has them.
func (r *Root) Reuse(known *State) {
	path := r.state.Segments.List[r.read].First
	_, to := known.Segments.within(known.Segments.Find(path), len(known.Nodes), known.Search)
	from, _ := known.Search(path) // what known has before it is in another segment of this state
	nodes := slices.Clone(known.Nodes[from:to])
	for n := range nodes {
		at := &nodes[n].At
		at.Objects = slices.Clone(at.Objects)
		for o, number := range at.Objects {
			at.Objects[o] = r.number(known.Objects[number])
		}
	}
	r.merge(nodes)
}

func (r *Root) number(o Object) uint32 {
	at, ok := r.numbers[o]
	if !ok {
		at = uint32(len(r.objects))
		r.numbers[o] = at
		r.objects = append(r.objects, o)
	}
	return at
}

// merge adds the nodes of the next segment, and in their places the changed ones.
func (r *Root) merge(nodes []Node) {
	r.read++
	for i := range nodes {
		r.addChanged(nodes[i].Path)
		if len(r.changed) > 0 && r.changed[0] == nodes[i].Path {
			continue
		}
		r.nodes = append(r.nodes, nodes[i])
	}
}

// addChanged adds the changed nodes before a path, "" for all.
func (r *Root) addChanged(before string) {
	for len(r.changed) > 0 && (before == "" || ComparePaths(r.changed[0], before) < 0) {
		if len(r.own) > 0 && r.own[0].Path == r.changed[0] {
			r.nodes, r.own = append(r.nodes, r.own[0]), r.own[1:]
		}
		r.changed = r.changed[1:]
	}
}

// State returns the state once every segment was added.
func (r *Root) State() (*State, error) {
	s := r.state
	if len(s.Segments.List) > 0 {
		if r.read != len(s.Segments.List) {
			return nil, schemas.Errorf(schemas.CodeInternal, "state: %d of %d segments were read", r.read, len(s.Segments.List))
		}
		r.addChanged("")
		s.Nodes, s.Objects = append(r.nodes, r.own...), r.objects
	}
	if err := s.addParents(r.limits.Entries); err != nil {
		return nil, err
	}
	if err := s.Check(r.limits); err != nil {
		return nil, err
	}
	if len(s.Segments.List) > 0 {
		s.CompactObjects()
	}
	return &s, nil
}

type segmentJSON struct {
	First       string  `json:"first"`
	FirstBase64 string  `json:"first_base64"`
	At          []int64 `json:"at"`
	Bytes       int64   `json:"bytes"`
	Entries     int     `json:"entries"`
	SHA256      string  `json:"sha256"`
}

func (s *State) fillSegments(raw *stateJSON) (removed []string, err error) {
	x := raw.Sluice
	if x == nil {
		return nil, nil
	}
	if s.Segments.Objects, err = objectsOf(x.SegmentObjects); err != nil {
		return nil, err
	}
	for i, p := range x.Segments {
		if len(p.At) != 3 || p.At[0] < 0 || p.At[0] >= int64(len(s.Segments.Objects)) {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "state: segment %d: its object is not in the state", i)
		}
		n := Segment{First: p.First, Object: uint32(p.At[0]), Offset: p.At[1], Size: p.At[2], Bytes: p.Bytes, Entries: p.Entries}
		if err := unbase64(&n.First, p.FirstBase64); err != nil {
			return nil, err
		}
		if !unhex(n.Digest[:], p.SHA256) {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "state: segment %d: %q is not a SHA-256", i, Clip(p.SHA256))
		}
		s.Segments.List = append(s.Segments.List, n)
	}
	for _, p := range x.Removed {
		path := p.Path
		if err := unbase64(&path, p.PathBase64); err != nil {
			return nil, err
		}
		removed = append(removed, path)
	}
	return removed, nil
}
