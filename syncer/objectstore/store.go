package objectstore

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"io"
	"iter"
	"time"
)

// Store is an object store narrowed to one prefix: keys are relative to it.
//
// Errors carry a code of package schemas: not_found for a missing key, conflict for a condition that does not hold,
// permission_denied and unauthenticated for insufficient credentials, too_large for an object over a given limit, and
// unavailable for faults that a later attempt may not meet. [Retry] repeats the last kind.
type Store interface {
	// Get reads an object, or the range r of it, into dst's spare capacity, which grows where needed, and returns the
	// bytes read.
	Get(ctx context.Context, key string, r Range, dst []byte) ([]byte, Info, error)
	// Stat returns an object's description without its content.
	Stat(ctx context.Context, key string) (Info, error)
	// Put stores an object completely or not at all and returns its token. Readers see the old bytes or the new ones.
	Put(ctx context.Context, key string, c Content, cond Condition) (token string, err error)
	// List yields every object whose key begins with prefix, in key order.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
	// Delete removes objects. A missing key is not an error.
	Delete(ctx context.Context, keys ...string) error
}

// Range selects the bytes of an object to read. The zero Range selects all of them.
type Range struct {
	Offset int64  // the first byte
	Length int64  // number of bytes; 0 reads to the end
	Max    int64  // with Length 0: a longer rest is refused with too_large; 0 is no limit
	Match  string // the token the object must have, else conflict; "" accepts any
}

// Info describes a stored object.
type Info struct {
	Key      string
	Size     int64     // bytes
	Token    string    // changes whenever the object does; compared, never parsed
	Modified time.Time // by the store's clock
	// MD5 is the content's, where the store is known to report it: nil for multipart and encrypted objects.
	MD5 *[md5.Size]byte
}

// Content is what a Put stores. Its reader can start again, which a retry needs.
type Content struct {
	Reader io.ReaderAt
	Size   int64 // bytes
	// SHA256 and MD5 are the content's where the caller has them: the store need not compute them again, and can
	// refuse damaged content.
	SHA256 *[sha256.Size]byte
	MD5    *[md5.Size]byte
}

// Open returns a reader over the whole content.
func (c Content) Open() *io.SectionReader { return io.NewSectionReader(c.Reader, 0, c.Size) }

// Condition must hold for a Put to take place, else the Put is a conflict. The zero Condition always holds.
type Condition struct {
	Absent bool   // no object has this key
	Match  string // the object has this token
}
