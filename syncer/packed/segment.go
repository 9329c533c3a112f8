package packed

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"

	"github.com/sluice-dev/sluice/syncer/state"
)

// StateSizes decide which part of a state is in segments. They are no part of the format.
type StateSizes struct {
	Whole   int64 // bytes up to which a state is whole, in the documented form; default 128 KiB
	Root    int64 // bytes of changed paths up to which no segment is written; default 64 KiB
	Entries int   // the most of a segment; default 512
	Object  int64 // bytes of segments that one object has, about; default 4 MiB
	Objects int   // with segments, about, each of which costs a pull a request; default 32
}

// WithDefaults returns z with the defaults in place of what is not set.
func (z StateSizes) WithDefaults() StateSizes {
	z.Whole = cmp.Or(max(z.Whole, 0), 128<<10)
	z.Root = cmp.Or(max(z.Root, 0), 64<<10)
	z.Entries = cmp.Or(max(z.Entries, 0), 512)
	z.Object = cmp.Or(max(z.Object, 0), 4<<20)
	z.Objects = cmp.Or(max(z.Objects, 0), 32)
	return z
}

// segmentBytes is the size of a segment, before compression, from which on it is cut.
const segmentBytes = 1 << 20

// Segment stores the parts of next that are too much for its root as segments. It writes those anew that have changed most, and keeps the
// others of was; nil keeps none.
func (l *Layout) Segment(ctx context.Context, next, was *state.State) error {
	z := l.Sizes.WithDefaults()
	next.Segments = state.Segments{}
	if next.Layout != state.Packed || !next.LongerThan(z.Whole) {
		return nil
	}
	if was != nil {
		next.Carry(was)
	}
	w := &segmentWriter{ctx: ctx, index: l.Index, sizes: z, next: next, old: next.Segments}
	return w.write(outdated(next, z))
}

// outdated returns which segments of s to write anew.
func outdated(s *state.State, z StateSizes) []bool {
	g := &s.Segments
	rewrite := make([]bool, len(g.List))
	if len(g.List) > 4*(len(s.Nodes)/z.Entries)+8 { // most of them are nearly empty
		for i := range rewrite {
			rewrite[i] = true
		}
		return rewrite
	}
	costs, total := s.Costs()
	most := make([]int, len(costs))
	for i := range most {
		most[i] = i
	}
	slices.SortFunc(most, func(a, b int) int { return cmp.Compare(costs[b], costs[a]) })
	for _, i := range most {
		if total <= z.Root {
			break
		}
		rewrite[i] = true
		total -= costs[i]
	}
	if slices.Contains(rewrite, true) {
		gather(g, rewrite, z)
	}
	return rewrite
}

// gather adds the segments of the objects of which the least is in use, where there would be too many objects with the new one. Of one
// object that is at most the share of one in all, so that a push of little stays small.
func gather(g *state.Segments, rewrite []bool, z StateSizes) {
	live := make([]int64, len(g.Objects))
	for i, p := range g.List {
		if !rewrite[i] {
			live[p.Object] += p.Size
		}
	}
	least := make([]int, len(live))
	for o := range least {
		least[o] = o
	}
	slices.SortFunc(least, func(a, b int) int { return cmp.Compare(live[a], live[b]) })
	joined := least[:max(0, len(least)-(z.Objects-1))]
	for i, p := range g.List {
		rewrite[i] = rewrite[i] || slices.Contains(joined, int(p.Object))
	}
}

// segmentWriter makes the next list of segments.
type segmentWriter struct {
	ctx   context.Context
	index *ObjectIndex
	sizes StateSizes
	next  *state.State
	old   state.Segments

	list    []state.Segment
	objects []state.Object
	kept    map[uint32]uint32 // numbers of old objects in objects
	data    []byte            // of the next object
	within  []int             // its segments in list

	compressor Compressor
}

// write writes the segments that rewrite marks, all where there are none yet.
func (w *segmentWriter) write(rewrite []bool) error {
	if len(rewrite) > 0 && !slices.Contains(rewrite, true) {
		return nil
	}
	w.kept = map[uint32]uint32{}
	if len(rewrite) == 0 {
		if err := w.split(w.next.Nodes); err != nil {
			return err
		}
	}
	for i := 0; i < len(rewrite); {
		if !rewrite[i] {
			w.keep(w.old.List[i])
			i++
			continue
		}
		nodes := w.next.NodesIn(i)
		for i++; i < len(rewrite) && rewrite[i]; i++ {
			nodes = nodes[:len(nodes)+len(w.next.NodesIn(i))] // they are neighbors
		}
		if err := w.split(nodes); err != nil {
			return err
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(w.old.Changed), func(path string) bool { return rewrite[w.old.Find(path)] })
	w.next.Segments = state.Segments{List: w.list, Objects: w.objects, Changed: left}
	return nil
}

// keep takes a segment over as it is.
func (w *segmentWriter) keep(p state.Segment) {
	number, ok := w.kept[p.Object]
	if !ok {
		number = uint32(len(w.objects))
		w.kept[p.Object] = number
		w.objects = append(w.objects, w.old.Objects[p.Object])
	}
	p.Object = number
	w.list = append(w.list, p)
}

// split writes nodes as segments of equal numbers of entries.
func (w *segmentWriter) split(nodes []state.Node) error {
	for parts := (len(nodes) + w.sizes.Entries - 1) / w.sizes.Entries; parts > 0; parts-- {
		n := (len(nodes) + parts - 1) / parts
		if err := w.add(nodes[:n]); err != nil {
			return err
		}
		nodes = nodes[n:]
	}
	return nil
}

// add writes one segment, or two where it is too large.
func (w *segmentWriter) add(nodes []state.Node) error {
	data := w.next.EncodeSegment(nodes)
	if half := len(nodes) / 2; half > 0 && len(data) > segmentBytes {
		if err := w.add(nodes[:half]); err != nil {
			return err
		}
		return w.add(nodes[half:])
	}
	packed, err := w.compressor.Compress(data)
	if err != nil {
		return err
	}
	if len(w.data) > 0 && int64(len(w.data)+len(packed)) > w.sizes.Object {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.within = append(w.within, len(w.list))
	w.list = append(w.list, state.Segment{First: nodes[0].Path, Offset: int64(len(w.data)), Size: int64(len(packed)),
		Bytes: int64(len(data)), Entries: len(nodes), Digest: sha256.Sum256(packed)})
	w.data = append(w.data, packed...)
	return nil
}

// flush stores the segments that wait as an object.
func (w *segmentWriter) flush() error {
	if len(w.data) == 0 {
		return nil
	}
	stored, _, err := w.index.Add(w.ctx, w.data)
	if err != nil {
		return err
	}
	for _, i := range w.within {
		w.list[i].Object = uint32(len(w.objects))
	}
	w.objects = append(w.objects, w.index.object(stored))
	w.data, w.within = nil, nil // the store may read the data later
	return nil
}
