package worktree

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/state"
)

// Seen is a regular file whose content was known when it had this stat.
type Seen struct {
	Stat
	// Racy is set when a later change could leave the same stat: the file changed shortly before the scan, or another process had
	// it open for writing while it was read. It is read again, as git does with racily clean entries.
	Racy bool
	Node *state.Node
}

// Index is the local cache of the last sync: the whole base, and the files seen. It makes a sync without changes fast and
// is never needed: without it, or when it does not match the state file beside it, the base comes from that file and
// every file is hashed again.
type Index struct {
	Remote string // the place of the base's sync
	Token  string // of the remote state that the base was last compared with
	// Whole is set when the base is all of that remote state, so an unchanged token means that nothing changed there.
	Whole     bool
	Probed    objectstore.Probed // what this folder has found the store to honor
	StateFile Stat               // of the state file written with this index
	Base      state.State
	Seen      []Seen // in walk order
}

var errIndex = errors.New("index: not readable")

const indexMagic = "sluice-index-5\n\x00"

// castagnoli is made once, by package crc32.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

type indexWriter struct{ b []byte }

func (w *indexWriter) uint(v uint64)   { w.b = binary.AppendUvarint(w.b, v) }
func (w *indexWriter) int(v int64)     { w.b = binary.AppendVarint(w.b, v) }
func (w *indexWriter) string(s string) { w.uint(uint64(len(s))); w.b = append(w.b, s...) }

func (w *indexWriter) bool(v bool) {
	if v {
		w.b = append(w.b, 1)
	} else {
		w.b = append(w.b, 0)
	}
}

func (w *indexWriter) stat(s *Stat) {
	w.int(s.Size)
	w.int(s.Mtime)
	w.int(s.Ctime - s.Mtime)
	w.uint(s.Inode)
	w.uint(uint64(s.Mode))
}

func (w *indexWriter) node(n *state.Node) {
	flags := byte(n.Kind) << 2
	if n.Sparse {
		flags |= 1
	}
	if n.Hashed {
		flags |= 2
	}
	w.b = append(w.b, flags)
	w.uint(uint64(n.Mode))
	switch n.Kind {
	case state.Symlink:
		w.string(n.Target)
	case state.File:
		w.int(n.Size)
		w.int(n.Modified)
		w.b = append(w.b, n.MD5[:]...)
		w.b = append(w.b, n.Digest[:]...)
		w.uint(uint64(len(n.At.Objects)))
		for _, o := range n.At.Objects {
			w.uint(uint64(o))
		}
		if len(n.At.Objects) == 1 {
			w.int(n.At.Offset)
		}
	}
}

// Encode returns the index as bytes: a checksum, the paths of the base as one blob, then records without their paths.
func (x *Index) Encode() []byte {
	size := 1024 + len(x.Base.Objects)*48
	for i := range x.Base.Nodes {
		size += len(x.Base.Nodes[i].Path) + 80
	}
	w := &indexWriter{b: make([]byte, 0, size+len(x.Seen)*32)}
	w.b = append(w.b, indexMagic...)
	w.b = append(w.b, 0, 0, 0, 0)
	w.string(x.Remote)
	w.string(x.Token)
	w.bool(x.Whole)
	w.b = append(w.b, byte(x.Probed))
	w.stat(&x.StateFile)
	s := &x.Base
	syncedAt := int64(0) // where there was no sync
	if !s.SyncedAt.IsZero() {
		syncedAt = s.SyncedAt.UnixNano()
	}
	w.int(syncedAt)
	w.string(string(s.Layout))
	w.string(s.ID)
	w.string(s.Floor)
	w.uint(uint64(len(s.Lineage)))
	for _, id := range s.Lineage {
		w.string(id)
	}
	w.uint(s.Generation)
	w.uint(s.Count)
	w.objects(s.Objects)
	w.segments(&s.Segments)
	w.uint(uint64(len(s.ETags)))
	for _, path := range slices.Sorted(maps.Keys(s.ETags)) {
		w.string(path)
		w.string(s.ETags[path])
	}
	all := make([]*state.Node, len(s.Nodes), len(s.Nodes)+len(x.Seen)/8)
	for i := range s.Nodes {
		all[i] = &s.Nodes[i]
	}
	// Only files that differ from the base have their own node.
	refs := make([]uint64, len(x.Seen))
	for i, at := 0, 0; i < len(x.Seen); i++ {
		n := x.Seen[i].Node
		for at < len(s.Nodes) && state.ComparePaths(s.Nodes[at].Path, n.Path) < 0 {
			at++
		}
		if at < len(s.Nodes) && s.Nodes[at].Path == n.Path && state.Same(&s.Nodes[at], n) {
			refs[i] = uint64(at)
		} else {
			refs[i] = uint64(len(all))
			all = append(all, n)
		}
	}
	blob := 0
	for _, n := range all {
		blob += len(n.Path)
	}
	w.uint(uint64(blob))
	for _, n := range all {
		w.b = append(w.b, n.Path...)
	}
	w.uint(uint64(len(s.Nodes)))
	w.uint(uint64(len(all) - len(s.Nodes)))
	for _, n := range all {
		w.uint(uint64(len(n.Path)))
		w.node(n)
	}
	w.uint(uint64(len(x.Seen)))
	for i := range x.Seen {
		e := &x.Seen[i]
		w.uint(refs[i])
		w.bool(e.Racy)
		w.stat(&e.Stat)
	}
	binary.LittleEndian.PutUint32(w.b[len(indexMagic):], crc32.Checksum(w.b[len(indexMagic)+4:], castagnoli()))
	return w.b
}

// DecodeIndex reads what Encode wrote, of size bytes, with at most limit entries. It allocates at most a fixed multiple of size, whatever
// it reads. On any error the caller goes on without an index.
func DecodeIndex(in io.Reader, size int64, limit int) (x *Index, err error) {
	head := make([]byte, len(indexMagic)+4)
	if _, err := io.ReadFull(in, head); err != nil || string(head[:len(indexMagic)]) != indexMagic {
		return nil, errIndex
	}
	r := newIndexReader(in, size-int64(len(head)))
	x = &Index{Remote: r.string(), Token: r.string(), Whole: r.bool(), Probed: objectstore.Probed(r.byte())}
	r.stat(&x.StateFile)
	s := &x.Base
	if at := r.int(); at != 0 {
		s.SyncedAt = time.Unix(0, at).UTC()
	}
	s.Layout, s.ID, s.Floor = state.Layout(r.string()), r.string(), r.string()
	if n := r.count(1); n > 0 {
		s.Lineage = make([]string, n)
		for i := range s.Lineage {
			s.Lineage[i] = r.string()
		}
	}
	s.Generation, s.Count = r.uint(), r.uint()
	s.Objects, s.Segments = r.objects(), r.segments()
	if n := r.count(2); n > 0 {
		s.ETags = make(map[string]string, n)
		for range n {
			path := r.string()
			s.ETags[path] = r.string()
		}
	}
	paths := r.string()
	nodes, own := r.count(3), r.count(3)
	if nodes+own > len(paths) || max(nodes, own) > limit { // every node has a path
		return nil, errIndex
	}
	all := make([]state.Node, nodes+own)
	for i := range all {
		n := r.count(0)
		if n > len(paths) {
			return nil, errIndex
		}
		all[i].Path, paths = paths[:n], paths[n:]
		r.node(&all[i])
	}
	s.Nodes = all[:nodes:nodes]
	seen := r.count(7)
	if seen > len(all) {
		return nil, errIndex
	}
	x.Seen = make([]Seen, seen)
	for i := range x.Seen {
		e := &x.Seen[i]
		at := r.uint()
		if at >= uint64(len(all)) {
			return nil, errIndex
		}
		e.Node, e.Racy = &all[at], r.bool()
		r.stat(&e.Stat)
	}
	if !r.ended(binary.LittleEndian.Uint32(head[len(indexMagic):])) {
		return nil, errIndex
	}
	return x, nil
}
