package worktree

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"strings"

	"github.com/sluice-dev/sluice/syncer/state"
)

// indexReader reads up to the first invalid value, and zeros from there on. It holds a piece of the input at a time.
type indexReader struct {
	in    io.Reader
	left  int64  // bytes of in that have not been read
	b     []byte // read, and not used yet
	piece []byte // has b
	sum   uint32 // of what was read
	bad   bool
	chunk []uint32 // memory for locations: one allocation for each file would be slow
}

func newIndexReader(in io.Reader, size int64) *indexReader {
	return &indexReader{in: in, left: max(size, 0), piece: make([]byte, min(max(size, 0), 256<<10))}
}

// more reads on. What is not used yet stays.
func (r *indexReader) more() {
	kept := copy(r.piece, r.b)
	n := int(min(r.left, int64(len(r.piece)-kept)))
	if _, err := io.ReadFull(r.in, r.piece[kept:kept+n]); err != nil {
		r.fail()
		return
	}
	r.sum = crc32.Update(r.sum, castagnoli(), r.piece[kept:kept+n])
	r.b, r.left = r.piece[:kept+n], r.left-int64(n)
}

// need reads on where fewer than n bytes, of at most a few, are there.
func (r *indexReader) need(n int) {
	if len(r.b) < n && r.left > 0 {
		r.more()
	}
}

// ended reports that all of the input was valid, and has a checksum.
func (r *indexReader) ended(sum uint32) bool {
	return !r.bad && len(r.b) == 0 && r.left == 0 && r.sum == sum
}

func (r *indexReader) fail() { r.bad, r.b, r.left = true, nil, 0 }

func (r *indexReader) uint() uint64 {
	r.need(binary.MaxVarintLen64)
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *indexReader) int() int64 {
	r.need(binary.MaxVarintLen64)
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
	if size > 0 && v > (uint64(len(r.b))+uint64(r.left))/uint64(size) || v > 1<<40 {
		r.fail()
		return 0
	}
	return int(v)
}

func (r *indexReader) string() string {
	n := r.count(1)
	if n <= len(r.b) {
		s := string(r.b[:n])
		r.b = r.b[n:]
		return s
	}
	var s strings.Builder
	s.Grow(n)
	for n > 0 && !r.bad {
		if len(r.b) == 0 {
			r.more()
		}
		k := min(n, len(r.b))
		s.Write(r.b[:k])
		r.b, n = r.b[k:], n-k
	}
	return s.String()
}

func (r *indexReader) byte() byte {
	if r.need(1); len(r.b) == 0 {
		r.fail()
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *indexReader) bool() bool { return r.byte() != 0 }

func (r *indexReader) copy(into []byte) {
	if r.need(len(into)); len(r.b) < len(into) {
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
