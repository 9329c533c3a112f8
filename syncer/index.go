package syncer

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"time"
)

// stat is what the file system says of a file, and what tells a changed one from an unchanged one.
type stat struct {
	Size  int64
	Mtime int64 // nanoseconds since 1970
	Ctime int64
	Inode uint64
	Mode  uint16
}

// seen is a regular file whose content was known when it had this stat.
type seen struct {
	stat
	// racy is set when the file was changed so shortly before it was looked at that a later change could have left
	// the same stat behind. Its content is read again, as git does with racily clean entries.
	racy bool
	node *Node
}

// index is the local memory of the last sync: the base in full, and the files seen. It makes the common case fast and
// is never needed: without it, or with one that does not fit the state file beside it, the base comes from that file
// and everything is hashed again.
type index struct {
	remote string // where the base was synced with
	token  string // of the remote state that the base was last compared with
	// whole is set when the base is all of that remote state, so that an unchanged token means nothing to do.
	whole bool
	// stateFile is the stat of the state file that was written with this index.
	stateFile stat
	base      State
	seen      []seen // in the order of a walk
}

var errIndex = errors.New("index: not readable")

const indexMagic = "sluice-index-1\n\x00"

// indexSum is the checksum of an index's records.
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

func (w *indexWriter) stat(s *stat) {
	w.int(s.Size)
	w.int(s.Mtime)
	w.int(s.Ctime - s.Mtime)
	w.uint(s.Inode)
	w.uint(uint64(s.Mode))
}

func (w *indexWriter) node(n *Node) {
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
	case Symlink:
		w.string(n.Target)
	case File:
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

// encode is the index as bytes: a checksum, the paths of the base as one blob, then records without their paths.
func (x *index) encode() []byte {
	size := 1024 + len(x.base.Objects)*48
	for i := range x.base.Nodes {
		size += len(x.base.Nodes[i].Path) + 80
	}
	w := &indexWriter{b: make([]byte, 0, size+len(x.seen)*32)}
	w.b = append(w.b, indexMagic...)
	w.b = append(w.b, 0, 0, 0, 0)
	w.string(x.remote)
	w.string(x.token)
	w.bool(x.whole)
	w.stat(&x.stateFile)
	s := &x.base
	w.int(s.SyncedAt.UnixNano())
	w.string(string(s.Layout))
	w.string(s.ID)
	w.string(s.Parent)
	w.string(s.Floor)
	w.uint(s.Generation)
	w.uint(s.Count)
	w.uint(uint64(len(s.Objects)))
	for i := range s.Objects {
		o := &s.Objects[i]
		w.b = append(w.b, o.Digest[:]...)
		w.int(o.Size)
		w.uint(o.Generation)
	}
	// The files that are not as the base has them bring a node of their own.
	var own []*Node
	refs := make([]uint64, len(x.seen))
	for i, at := 0, 0; i < len(x.seen); i++ {
		n := x.seen[i].node
		for at < len(s.Nodes) && comparePaths(s.Nodes[at].Path, n.Path) < 0 {
			at++
		}
		if at < len(s.Nodes) && &s.Nodes[at] == n {
			refs[i] = uint64(at)
		} else {
			refs[i] = uint64(len(s.Nodes) + len(own))
			own = append(own, n)
		}
	}
	blob := 0
	for i := range s.Nodes {
		blob += len(s.Nodes[i].Path)
	}
	for _, n := range own {
		blob += len(n.Path)
	}
	w.uint(uint64(blob))
	for i := range s.Nodes {
		w.b = append(w.b, s.Nodes[i].Path...)
	}
	for _, n := range own {
		w.b = append(w.b, n.Path...)
	}
	w.uint(uint64(len(s.Nodes)))
	w.uint(uint64(len(own)))
	for i := range s.Nodes {
		w.uint(uint64(len(s.Nodes[i].Path)))
		w.node(&s.Nodes[i])
	}
	for _, n := range own {
		w.uint(uint64(len(n.Path)))
		w.node(n)
	}
	w.uint(uint64(len(x.seen)))
	for i := range x.seen {
		e := &x.seen[i]
		w.uint(refs[i])
		w.bool(e.racy)
		w.stat(&e.stat)
	}
	binary.LittleEndian.PutUint32(w.b[len(indexMagic):], indexSum(w.b[len(indexMagic)+4:]))
	return w.b
}

// search is where the path stands in the state, or would.
func (s *State) search(path string) (int, bool) {
	return slices.BinarySearchFunc(s.Nodes, path, func(n Node, p string) int { return comparePaths(n.Path, p) })
}

// decodeIndex reads what encode wrote. Any error means: do without.
func decodeIndex(data []byte) (x *index, err error) {
	head := len(indexMagic) + 4
	if len(data) < head || string(data[:len(indexMagic)]) != indexMagic ||
		indexSum(data[head:]) != binary.LittleEndian.Uint32(data[len(indexMagic):]) {
		return nil, errIndex
	}
	r := &indexReader{b: data[head:]}
	x = &index{remote: r.string(), token: r.string(), whole: r.bool()}
	r.stat(&x.stateFile)
	s := &x.base
	s.SyncedAt = time.Unix(0, r.int()).UTC()
	s.Layout, s.ID, s.Parent, s.Floor = Layout(r.string()), r.string(), r.string(), r.string()
	s.Generation, s.Count = r.uint(), r.uint()
	s.Objects = make([]Object, r.count(34))
	for i := range s.Objects {
		r.copy(s.Objects[i].Digest[:])
		s.Objects[i].Size, s.Objects[i].Generation = r.int(), r.uint()
	}
	paths := r.string()
	nodes, own := r.count(3), r.count(3)
	all := make([]Node, nodes+own)
	for i := range all {
		n := r.count(0)
		if n > len(paths) {
			return nil, errIndex
		}
		all[i].Path, paths = paths[:n], paths[n:]
		r.node(&all[i])
	}
	s.Nodes = all[:nodes:nodes]
	x.seen = make([]seen, r.count(6))
	for i := range x.seen {
		e := &x.seen[i]
		at := r.uint()
		if at >= uint64(len(all)) {
			return nil, errIndex
		}
		e.node, e.racy = &all[at], r.bool()
		r.stat(&e.stat)
	}
	if r.bad || len(r.b) > 0 {
		return nil, errIndex
	}
	return x, nil
}

// indexReader reads until the first thing that does not fit, and zeros from there on.
type indexReader struct {
	b     []byte
	bad   bool
	chunk []uint32 // the room that locations are cut from, since one allocation for each file would be felt
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

// count is a number of records of at least size bytes each, which what is left must be able to hold.
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
	if r.bad || n > len(r.b) {
		r.fail()
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *indexReader) bool() bool {
	if len(r.b) == 0 {
		r.fail()
		return false
	}
	v := r.b[0] != 0
	r.b = r.b[1:]
	return v
}

func (r *indexReader) copy(into []byte) {
	if len(r.b) < len(into) {
		r.fail()
		return
	}
	r.b = r.b[copy(into, r.b):]
}

func (r *indexReader) stat(s *stat) {
	s.Size, s.Mtime = r.int(), r.int()
	s.Ctime = s.Mtime + r.int()
	s.Inode, s.Mode = r.uint(), uint16(r.uint())
}

func (r *indexReader) node(n *Node) {
	var flags [1]byte
	r.copy(flags[:])
	n.Kind, n.Sparse, n.Hashed = Kind(flags[0]>>2), flags[0]&1 != 0, flags[0]&2 != 0
	n.Mode = uint16(r.uint())
	switch n.Kind {
	case Symlink:
		n.Target = r.string()
	case File:
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
