package syncer

import "context"

// packed keeps content in packs and chunks.
type packed struct {
	shelf    *shelf
	parallel int
}

var _ keeper = (*packed)(nil)

func (p *packed) send(ctx context.Context, x *session, files, was []*Node) ([]*content, error) {
	meter := newMeter(x.cfg.Progress, "upload", files)
	results, sent, err := upload(ctx, x.root, p.shelf, files, was, p.parallel, meter.add)
	x.report.BytesSent += sent
	return results, err
}

func (p *packed) has(n *Node) (Location, bool) {
	if n.Kind != File || !n.Hashed {
		return Location{}, false
	}
	if n.Size == 0 {
		return Location{}, true // there is nothing to keep
	}
	return p.shelf.file(n.Digest)
}

// settle drops objects that no file is in any more from the list, and numbers the rest anew.
func (p *packed) settle(next *State) {
	p.shelf.mu.Lock()
	defer p.shelf.mu.Unlock()
	next.Objects = p.shelf.objects
	next.compactObjects()
}

func (p *packed) finish(ctx context.Context, next *State) error { return p.repack(ctx, next) }

// aside has nothing to do: nothing is overwritten in this layout.
func (p *packed) aside(context.Context, []Step) error { return nil }

// adopt takes over what another shelf of the same generation has stored.
func (h *shelf) adopt(old *shelf) {
	old.mu.Lock()
	defer old.mu.Unlock()
	number := func(o uint32) uint32 {
		from := old.objects[o]
		at, ok := h.byHash[from.Digest]
		if !ok {
			at = uint32(len(h.objects))
			h.objects = append(h.objects, from)
			h.byHash[from.Digest] = at
		}
		return at
	}
	for d, at := range old.files {
		if _, ok := h.files[d]; ok || !old.mine(at) {
			continue
		}
		objects := make([]uint32, len(at.Objects))
		for i, o := range at.Objects {
			objects[i] = number(o)
		}
		h.files[d] = Location{Objects: objects, Offset: at.Offset}
	}
	for i := range old.objects {
		if old.added[old.objects[i].Digest] {
			number(uint32(i))
			h.added[old.objects[i].Digest] = true
		}
	}
}

// mine says whether all of a location was stored through this shelf.
func (h *shelf) mine(at Location) bool {
	for _, o := range at.Objects {
		if !h.added[h.objects[o].Digest] {
			return false
		}
	}
	return true
}

// compactObjects keeps the objects that a node refers to, in their order.
func (s *State) compactObjects() {
	number := make([]uint32, len(s.Objects))
	for i := range s.Nodes {
		for _, o := range s.Nodes[i].At.Objects {
			number[o] = 1
		}
	}
	kept := make([]Object, 0, len(s.Objects))
	for i := range s.Objects {
		if number[i] != 0 {
			number[i] = uint32(len(kept))
			kept = append(kept, s.Objects[i])
		}
	}
	if len(kept) == len(s.Objects) {
		s.Objects = kept
		return
	}
	s.Objects = kept
	for i := range s.Nodes {
		at := &s.Nodes[i].At
		if len(at.Objects) == 0 {
			continue
		}
		renamed := make([]uint32, len(at.Objects))
		for k, o := range at.Objects {
			renamed[k] = number[o]
		}
		at.Objects = renamed
	}
}

// mineAll are the objects that this push has stored and that no other may rely on.
func (h *shelf) mineAll() (objects []Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.objects {
		if o := h.objects[i]; o.Push != "" && h.added[o.Digest] {
			objects = append(objects, o)
		}
	}
	return objects
}
