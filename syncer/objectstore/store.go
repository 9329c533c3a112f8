package objectstore

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// Store is an object store narrowed to one prefix: keys are relative to it.
//
// Errors carry a code of package schemas: not_found for a missing key, conflict for a condition that does not hold,
// permission_denied and unauthenticated for insufficient credentials, too_large for an object over a given limit, and
// unavailable for faults that a later attempt may not meet. [Retry] repeats the last kind.
type Store interface {
	// Get reads an object, or the range r of it, into dst's spare capacity, which grows where needed, and returns the
	// bytes read. A store that encrypts needs more than it returns.
	Get(ctx context.Context, key string, r Range, dst []byte) ([]byte, Info, error)
	// Stat returns an object's description without its content.
	Stat(ctx context.Context, key string) (Info, error)
	// Put stores an object completely or not at all and returns its token. Readers see the old bytes or the new ones.
	Put(ctx context.Context, key string, c Content, cond Condition) (token string, err error)
	// List yields every object whose key begins with prefix, in key order.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
	// Delete removes objects. A missing key is not an error.
	Delete(ctx context.Context, keys ...string) error
	// AbortUpload removes the parts of an upload that a killed process has begun: see [Uploads]. One that has ended is not an error.
	AbortUpload(ctx context.Context, u Upload) error
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
	Send   Sending
	// Slow means that each read may be a request: a Put in parts reads the content once, and in order.
	Slow bool
	// From is stored objects that have this content one after the other: a store that can copy them does so instead of reading the
	// content, where it is sent in parts anyway. Each but the last has at least 5 MiB.
	From []Info
	// Repeat runs each request of a Put that takes several; nil runs it once. [Retry] sets it, so that one that fails does not
	// repeat the others.
	Repeat func(ctx context.Context, request func() error) error
}

// PartsFrom is the size in bytes above which a store may send content in parts.
const PartsFrom = 16 << 20

// Sending is whether a Put may send content in parts, which end with a request of their own. Some servers honor the conditions of
// a Put in one request, and ignore those of that last one.
type Sending uint8

// The ways to send content.
const (
	BySize  Sending = iota // in parts above PartsFrom
	InOne                  // in one request
	InParts                // in parts, whatever the size
)

// Bytes returns data as content, without its digests.
func Bytes(data []byte) Content {
	return Content{Reader: bytes.NewReader(data), Size: int64(len(data))}
}

// Open returns a reader over the whole content.
func (c Content) Open() *io.SectionReader { return io.NewSectionReader(c.Reader, 0, c.Size) }

// Condition must hold for a Put to take place, else the Put is a conflict. The zero Condition always holds.
type Condition struct {
	Absent bool   // no object has this key
	Match  string // the object has this token
}

// Decorator is a [Store] of which Do runs every request except listings.
type Decorator struct {
	Store
	Do func(ctx context.Context, request func() error) error
}

// Get implements [Store].
func (d *Decorator) Get(ctx context.Context, key string, r Range, dst []byte) (data []byte, info Info, err error) {
	err = d.Do(ctx, func() (err error) {
		data, info, err = d.Store.Get(ctx, key, r, dst)
		return err
	})
	return data, info, err
}

// Stat implements [Store].
func (d *Decorator) Stat(ctx context.Context, key string) (info Info, err error) {
	err = d.Do(ctx, func() (err error) {
		info, err = d.Store.Stat(ctx, key)
		return err
	})
	return info, err
}

// Put implements [Store].
func (d *Decorator) Put(ctx context.Context, key string, c Content, cond Condition) (token string, err error) {
	err = d.Do(ctx, func() (err error) {
		token, err = d.Store.Put(ctx, key, c, cond)
		return err
	})
	return token, err
}

// Delete implements [Store].
func (d *Decorator) Delete(ctx context.Context, keys ...string) error {
	return d.Do(ctx, func() error { return d.Store.Delete(ctx, keys...) })
}

// AbortUpload implements [Store].
func (d *Decorator) AbortUpload(ctx context.Context, u Upload) error {
	return d.Do(ctx, func() error { return d.Store.AbortUpload(ctx, u) })
}

// ErrIgnored means that a store ignores a condition of a Put.
var ErrIgnored = errors.New("so two writers could overwrite each other's work")

// Probed is the ways to send content with which a store has been found to honor the conditions of a Put, or to ignore them.
type Probed uint8

// What a probe has found.
const (
	HonoredInOne   Probed = 1 << iota
	HonoredInParts        // those of content in parts too
	IgnoredInParts
)

// ProbeConditions checks with an object under prefix that the store honors the conditions of a Put that sends content in a way. A
// store that ignores them lets two writers overwrite each other's state unnoticed: the invalid_argument error, which is
// [ErrIgnored], names the ignored condition.
func ProbeConditions(ctx context.Context, store Store, prefix string, send Sending) (err error) {
	key := prefix + rand.Text()
	defer func() { err = errors.Join(err, store.Delete(context.WithoutCancel(ctx), key)) }()
	put := func(text string, cond Condition) (string, error) {
		c := Bytes([]byte(text))
		c.Send = send
		return store.Put(ctx, key, c, cond)
	}
	ignored := func(condition string) error {
		return schemas.Errorf(schemas.CodeInvalidArgument,
			"store: the server ignores %s, %w: use another store, or set --single-writer if nothing else writes here", condition, ErrIgnored)
	}
	first, err := put("1", Condition{Absent: true})
	if errors.Is(err, schemas.ErrConflict) {
		// A retried request whose first attempt took place.
		var info Info
		if info, err = store.Stat(ctx, key); err == nil {
			first = info.Token
		}
	}
	if err != nil {
		return err
	}
	if _, err = put("2", Condition{Absent: true}); err == nil {
		return ignored("If-None-Match")
	} else if !errors.Is(err, schemas.ErrConflict) {
		return err
	}
	if _, err = put("3", Condition{}); err != nil {
		return err
	}
	if _, err = put("4", Condition{Match: first}); err == nil {
		return ignored("If-Match")
	} else if !errors.Is(err, schemas.ErrConflict) {
		return err
	}
	return nil
}
