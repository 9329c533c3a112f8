package worktree

import "github.com/sluice-dev/sluice/syncer/state"

func (w *indexWriter) objects(all []state.Object) {
	w.uint(uint64(len(all)))
	for i := range all {
		w.b = append(w.b, all[i].Digest[:]...)
		w.int(all[i].Size)
		w.uint(all[i].Generation)
	}
}

func (r *indexReader) objects() []state.Object {
	all := make([]state.Object, r.count(34))
	for i := range all {
		r.copy(all[i].Digest[:])
		all[i].Size, all[i].Generation = r.int(), r.uint()
	}
	return all
}

func (w *indexWriter) segments(g *state.Segments) {
	w.uint(uint64(len(g.List)))
	if len(g.List) == 0 {
		return
	}
	w.objects(g.Objects)
	for i := range g.List {
		p := &g.List[i]
		w.string(p.First)
		w.uint(uint64(p.Object))
		w.int(p.Offset)
		w.int(p.Size)
		w.int(p.Bytes)
		w.uint(uint64(p.Entries))
		w.b = append(w.b, p.Digest[:]...)
	}
	w.uint(uint64(len(g.Changed)))
	for _, path := range g.Changed {
		w.string(path)
	}
}

func (r *indexReader) segments() (g state.Segments) {
	n := r.count(38)
	if n == 0 {
		return g
	}
	g.Objects = r.objects()
	g.List = make([]state.Segment, n)
	for i := range g.List {
		p := &g.List[i]
		p.First, p.Object = r.string(), uint32(r.uint())
		p.Offset, p.Size, p.Bytes, p.Entries = r.int(), r.int(), r.int(), int(r.uint())
		r.copy(p.Digest[:])
		if int64(p.Object) >= int64(len(g.Objects)) {
			r.fail()
		}
	}
	g.Changed = make([]string, r.count(1))
	for i := range g.Changed {
		g.Changed[i] = r.string()
	}
	return g
}
