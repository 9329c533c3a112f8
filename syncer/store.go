package syncer

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"io"
	"iter"
	"time"
)

// Store is the object store a workspace is kept in, already narrowed to one prefix: keys are relative to it.
//
// Errors carry a code of package schemas: not_found for a key that is not there, conflict for a condition that does
// not hold, permission_denied and unauthenticated for credentials that do not suffice, too_large for an object over a
// limit given, and unavailable for whatever may pass when tried again. [Retry] repeats the last kind.
type Store interface {
	// Get reads an object, or the part of it that r names, into dst's spare capacity, growing it where that is too
	// small, and returns the bytes read.
	Get(ctx context.Context, key string, r Range, dst []byte) ([]byte, Info, error)
	// Stat is what is known of an object without reading it.
	Stat(ctx context.Context, key string) (Info, error)
	// Put stores an object whole or not at all and returns its token. A reader sees the old bytes or the new ones.
	Put(ctx context.Context, key string, c Content, cond Condition) (token string, err error)
	// List gives every object whose key begins with prefix, in the order of their keys.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
	// Delete removes objects. A key that is not there is no error.
	Delete(ctx context.Context, keys ...string) error
}

// Range says which bytes of an object to read. The zero Range is all of them.
type Range struct {
	Offset int64  // the first byte
	Length int64  // how many; 0 is all from Offset on
	Max    int64  // with Length 0: more bytes than this are refused with too_large; 0 is no limit
	Match  string // the token the object must still have, else conflict; "" is any
}

// Info describes a stored object.
type Info struct {
	Key      string
	Size     int64     // bytes
	Token    string    // changes whenever the object does; compared, never parsed
	Modified time.Time // by the store's clock
	// MD5 is the content's, where the store is known to say it: nil for multipart and encrypted objects.
	MD5 *[md5.Size]byte
}

// Content is what a Put stores. It can be read again from the start, which a retry needs.
type Content struct {
	Reader io.ReaderAt
	Size   int64 // bytes
	// SHA256 and MD5 are the content's where the caller has them, so that the store need not compute them again and
	// can refuse what arrives damaged.
	SHA256 *[sha256.Size]byte
	MD5    *[md5.Size]byte
}

// Open is a reader over the whole content, from its start.
func (c Content) Open() *io.SectionReader { return io.NewSectionReader(c.Reader, 0, c.Size) }

// Condition is what must hold for a Put to take place, else it is a conflict. The zero Condition always holds.
type Condition struct {
	Absent bool   // no object may have this key
	Match  string // the object must have this token
}
