package state

import (
	"crypto/md5"
	"crypto/sha256"
	"slices"
	"time"
)

// Kind is the type of a path in a workspace.
type Kind uint8

// The kinds. A state has no others: sockets, devices and fifos are skipped and reported.
const (
	File    Kind = iota + 1 // a regular file
	Dir                     // a folder
	Symlink                 // a symbolic link, kept as data and never followed
)

// String returns the kind's name.
func (k Kind) String() string {
	switch k {
	case File:
		return "file"
	case Dir:
		return "folder"
	case Symlink:
		return "symlink"
	default:
		return "unknown"
	}
}

// ChunkSize is the most bytes of a file that one object of the packed layout holds, and about the size of a pack. It is
// part of the format: the digest of a larger file is computed from its chunks' digests.
const ChunkSize = 8 << 20

// Digest identifies content: the SHA-256 of a file of up to [ChunkSize] bytes, and for a larger one the SHA-256 of the
// concatenated SHA-256 digests of its chunks. Chunks can so be verified and stored independently.
type Digest [sha256.Size]byte

// Checksum is the MD5 that the documented state format requires. No decision rests on it alone, since MD5 collisions are
// easy to make.
type Checksum [md5.Size]byte

// Node is one path of a workspace: on disk, at the last sync, or in the store.
type Node struct {
	Path   string // relative, slash-separated, byte for byte as on disk
	Kind   Kind
	Sparse bool   // the file had holes when it was read
	Mode   uint16 // the permission bits, 0o777 at most; 0 for a symlink
	// Hashed is false for a local file whose size or times changed and whose content has not been read yet.
	Hashed   bool
	Size     int64  // bytes; 0 for folders and symlinks
	Modified int64  // nanoseconds since 1970; 0 for folders and symlinks
	Target   string // of a symlink
	MD5      Checksum
	Digest   Digest
	// At locates the content in the objects of this node's state. It is zero for local nodes, for empty files and for
	// files of the plain layout.
	At Location
}

// Location locates a file's content in the packed layout: one object from Offset on, or, for a file over [ChunkSize], one
// object per chunk, each from its start.
type Location struct {
	Objects []uint32 // indexes into [State].Objects
	Offset  int64
}

// ModTime returns Modified as a time in UTC.
func (n *Node) ModTime() time.Time { return time.Unix(0, n.Modified).UTC() }

// SameContent reports whether a and b hold the same bytes. Without a digest on both sides the MD5 and the size decide: a
// state that another tool wrote has nothing else.
func SameContent(a, b *Node) bool {
	if a.Kind != b.Kind {
		return false
	}
	switch a.Kind {
	case File:
		if a.Size != b.Size {
			return false
		}
		if a.Digest != (Digest{}) && b.Digest != (Digest{}) {
			return a.Digest == b.Digest
		}
		return a.MD5 == b.MD5 && a.MD5 != (Checksum{})
	case Symlink:
		return a.Target == b.Target
	default:
		return true
	}
}

// Same reports whether a and b are equal in everything that a sync carries. Times are not part of that: a touched file is
// not a changed one. Either may be nil.
func Same(a, b *Node) bool {
	if a == b || a == nil || b == nil {
		return a == b
	}
	return SameContent(a, b) && (a.Mode == b.Mode || a.Kind == Symlink)
}

// SortNodes sorts nodes in walk order.
func SortNodes(nodes []Node) {
	slices.SortFunc(nodes, func(a, b Node) int { return ComparePaths(a.Path, b.Path) })
}

// FileDigest computes the digest of a file from its chunks' digests. A file without chunks is empty.
func FileDigest(chunks []Digest) Digest {
	if len(chunks) == 1 {
		return chunks[0]
	}
	h := sha256.New()
	for i := range chunks {
		h.Write(chunks[i][:])
	}
	return Digest(h.Sum(nil))
}

// ChunkCount returns the number of chunks of a file of size bytes.
func ChunkCount(size int64) int { return int((size + ChunkSize - 1) / ChunkSize) }
