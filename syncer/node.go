package syncer

import (
	"crypto/md5"
	"crypto/sha256"
	"strings"
	"time"
)

// Kind says what a path of a workspace is.
type Kind uint8

// The kinds. There are no others in a state: sockets, devices and fifos are skipped and reported.
const (
	File    Kind = iota + 1 // a regular file
	Dir                     // a folder
	Symlink                 // a symbolic link, kept as data and never followed
)

// String is the kind's name.
func (k Kind) String() string {
	switch k {
	case File:
		return "file"
	case Dir:
		return "folder"
	case Symlink:
		return "symlink"
	default:
		return "nothing"
	}
}

// ChunkSize is how many bytes of a file one object of the packed layout holds at most, and about how large a pack is.
// It is part of the format: the digest of a larger file is built from its chunks'.
const ChunkSize = 8 << 20

// Digest identifies content: the SHA-256 of a file of up to [ChunkSize] bytes, and of a larger one the SHA-256 of the
// SHA-256 digests of its chunks, one after the other. It lets chunks be checked and stored independently.
type Digest [sha256.Size]byte

// Checksum is the MD5 that the documented state format asks for. Nothing is decided by it alone, since two files with
// one MD5 are easily made.
type Checksum [md5.Size]byte

// Node is one path of a workspace, as it is on disk, as it was at the last sync, or as it is in the store.
type Node struct {
	Path     string // relative, slash-separated, byte for byte as on disk
	Kind     Kind
	Mode     uint16 // the permission bits, 0o777 at most; 0 for a symlink
	Sparse   bool   // the file had holes when it was read
	Size     int64  // bytes; 0 for folders and symlinks
	Modified int64  // nanoseconds since 1970; 0 for folders and symlinks
	Target   string // of a symlink
	MD5      Checksum
	Digest   Digest
	// Hashed is false for a local file that has changed by its size or times and has not been read yet, and for a
	// remote file whose state was written by a tool that knows the MD5 alone.
	Hashed bool
	// At says where the content is kept: object numbers of the state this node belongs to. Nil for local nodes, for
	// empty files and in the plain layout.
	At Location
}

// Location says where in the packed layout a file's content is: in one object from Offset on, or, for a file over
// [ChunkSize], in several, one per chunk, each from its start.
type Location struct {
	Objects []uint32 // indexes into [State].Objects
	Offset  int64
}

// ModTime is Modified as a time, in UTC.
func (n *Node) ModTime() time.Time { return time.Unix(0, n.Modified).UTC() }

// sameContent says whether a and b hold the same bytes. Without a digest on both sides the MD5 and the size decide,
// which is all that a state written by another tool offers.
func sameContent(a, b *Node) bool {
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

// same says whether a and b are the same in all that a sync carries. Times are not part of that: a touched file is
// not a changed one. Either may be nil.
func same(a, b *Node) bool {
	if a == b || a == nil || b == nil {
		return a == b
	}
	return sameContent(a, b) && (a.Mode == b.Mode || a.Kind == Symlink)
}

// comparePaths orders paths as a walk meets them: a folder is followed by all that is in it before its next sibling.
// That is the byte order with the slash before every other byte, and every list of nodes is kept in it.
func comparePaths(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if x, y := a[i], b[i]; x != y {
			if x == '/' {
				return -1
			}
			if y == '/' {
				return 1
			}
			if x < y {
				return -1
			}
			return 1
		}
	}
	return len(a) - len(b)
}

// parent is the folder p is in, "" for the root.
func parent(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i]
	}
	return ""
}

// within says whether p is in the folder dir, at any depth.
func within(p, dir string) bool {
	return len(p) > len(dir) && p[len(dir)] == '/' && p[:len(dir)] == dir
}

// ReservedName is the name of the state file, local and remote. Names in the root that are it, or begin with it and a
// dot, are Sluice's own and are never synced.
const ReservedName = ".sandbox-state"

// reserved says whether the path is Sluice's own.
func reserved(p string) bool {
	if !strings.HasPrefix(p, ReservedName) {
		return false
	}
	rest := p[len(ReservedName):]
	return rest == "" || rest[0] == '/' || rest[0] == '.'
}
