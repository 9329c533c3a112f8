package worktree

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
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

func indexSum(records []byte) uint32 {
	return crc32.Checksum(records, crc32.MakeTable(crc32.Castagnoli))
}

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
	binary.LittleEndian.PutUint32(w.b[len(indexMagic):], indexSum(w.b[len(indexMagic)+4:]))
	return w.b
}

// DecodeIndex reads what Encode wrote, with at most limit entries. It allocates at most a fixed multiple of the size of data, whatever
// that is. On any error the caller goes on without an index.
func DecodeIndex(data []byte, limit int) (x *Index, err error) {
	head := len(indexMagic) + 4
	if len(data) < head || string(data[:len(indexMagic)]) != indexMagic ||
		indexSum(data[head:]) != binary.LittleEndian.Uint32(data[len(indexMagic):]) {
		return nil, errIndex
	}
	r := &indexReader{b: data[head:]}
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
	if r.bad || len(r.b) > 0 {
		return nil, errIndex
	}
	return x, nil
}

// indexReader reads up to the first invalid value, and zeros from there on.
type indexReader struct {
	b     []byte
	bad   bool
	chunk []uint32 // memory for locations: one allocation for each file would be slow
}

func (r *indexReader) fail() { r.bad, r.b = true, nil }

func (r *indexReader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *indexReader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads a number of records of at least size bytes each. The remaining bytes must be able to hold them.
func (r *indexReader) count(size int) int {
	v := r.uint()
	if size > 0 && v > uint64(len(r.b)/size) || v > 1<<40 {
		r.fail()
		return 0
	}
	return int(v)
}

func (r *indexReader) string() string {
	n := r.count(1)
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *indexReader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *indexReader) bool() bool { return r.byte() != 0 }

func (r *indexReader) copy(into []byte) {
	if len(r.b) < len(into) {
		r.fail()
		return
	}
	r.b = r.b[copy(into, r.b):]
}

func (r *indexReader) stat(s *Stat) {
	s.Size, s.Mtime = r.int(), r.int()
	s.Ctime = s.Mtime + r.int()
	s.Inode, s.Mode = r.uint(), uint16(r.uint())
}

func (r *indexReader) node(n *state.Node) {
	flags := r.byte()
	n.Kind, n.Sparse, n.Hashed = state.Kind(flags>>2), flags&1 != 0, flags&2 != 0
	n.Mode = uint16(r.uint())
	switch n.Kind {
	case state.Symlink:
		n.Target = r.string()
	case state.File:
		n.Size, n.Modified = r.int(), r.int()
		r.copy(n.MD5[:])
		r.copy(n.Digest[:])
		count := r.count(1)
		if count == 0 {
			return
		}
		if len(r.chunk)+count > cap(r.chunk) {
			r.chunk = make([]uint32, 0, max(4096, count))
		}
		start := len(r.chunk)
		for range count {
			r.chunk = append(r.chunk, uint32(r.uint()))
		}
		n.At.Objects = r.chunk[start:len(r.chunk):len(r.chunk)]
		if count == 1 {
			n.At.Offset = r.int()
		}
	}
}
