package cryptstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"iter"
	"math/bits"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/state"
)

// An object is chunks, each with the same head. An empty object is one empty chunk.
const (
	magic     = "SLUICEe1"
	idSize    = 8
	saltSize  = 32
	headSize  = len(magic) + idSize + saltSize
	tagSize   = 16
	overhead  = int64(headSize + tagSize)
	openChunk = int64(64 << 10) // bytes of content
	sealChunk = openChunk + overhead
)

// ErrKey means that a workspace needs a key, another key, or none.
var ErrKey = errors.New("nothing was changed")

func errKey(what string) error {
	return schemas.Errorf(schemas.CodePermissionDenied, "sync: %s: %w", what, ErrKey)
}

func errNoKey() error {
	return errKey("the workspace is encrypted: pass its key with --key-file or SLUICE_SYNC_KEY")
}

// New returns s encrypted by a key. Without a key, nil, it is s that refuses encrypted workspaces.
//
// A Put reads the content several times, and fails when that changes meanwhile. Tokens are those of s with the key's ID: what was read with
// one key is read again with another.
// Errors, beside those of s: permission_denied, which is [ErrKey], and damaged for what no Put of the same object with this key has
// stored. Get then returns the chunks that are whole, and zeros for the others.
func New(s objectstore.Store, key *Key) objectstore.Store {
	if key == nil {
		return guard{s}
	}
	return &sealed{store: s, key: key, suffix: "." + hex.EncodeToString(key.id[:])}
}

// guard is a store that is not encrypted.
type guard struct{ objectstore.Store }

// Get implements [objectstore.Store].
func (g guard) Get(ctx context.Context, key string, r objectstore.Range, dst []byte) ([]byte, objectstore.Info, error) {
	data, info, err := g.Store.Get(ctx, key, r, dst)
	if err == nil && isState(key) && len(data) >= len(magic) && near(data[:len(magic)], []byte(magic)) {
		return nil, info, errNoKey()
	}
	return data, info, err
}

// isState reports whether a key is that of a state, which is what an operation reads first.
func isState(key string) bool {
	return key == state.ReservedName || strings.HasPrefix(key, state.VersionPrefix)
}

// near reports whether eight bytes are others, but for a few bits: damage must not look as if it were another key, or none.
func near(a, b []byte) bool {
	return bits.OnesCount64(binary.BigEndian.Uint64(a)^binary.BigEndian.Uint64(b)) <= 8
}

type sealed struct {
	store  objectstore.Store
	key    *Key
	suffix string // of tokens
}

var _ objectstore.Store = (*sealed)(nil)

// name returns the key under which an object is stored. The names of content are digests, which would show what it is.
func (s *sealed) name(key string) string {
	if !strings.HasPrefix(key, state.ObjectPrefix) {
		return key
	}
	dir, base := path.Split(key)
	return dir + s.key.sealName(base)
}

// open returns what s.store says of an object as the caller knows it.
func (s *sealed) open(key string, i objectstore.Info) objectstore.Info {
	if i.Token != "" {
		i.Token += s.suffix
	}
	i.Key, i.Size, i.MD5 = key, openSize(i.Size), nil
	return i
}

func sealSize(open int64) int64 { return open + overhead*max(1, (open+openChunk-1)/openChunk) }

func openSize(sealed int64) int64 {
	return max(0, sealed-overhead*((sealed+sealChunk-1)/sealChunk))
}

func nonce(chunk int64, last bool) []byte {
	n := make([]byte, 12)
	binary.BigEndian.PutUint64(n[4:], uint64(chunk))
	if last {
		n[0] = 1
	}
	return n
}

// Get implements [objectstore.Store].
func (s *sealed) Get(ctx context.Context, key string, r objectstore.Range, dst []byte) ([]byte, objectstore.Info, error) {
	first := r.Offset / openChunk
	in := objectstore.Range{Offset: first * sealChunk, Match: strings.TrimSuffix(r.Match, s.suffix)}
	if r.Length > 0 {
		in.Length = ((r.Offset+r.Length-1)/openChunk - first + 1) * sealChunk
	} else if r.Max > 0 {
		in.Max = sealSize(r.Offset%openChunk + r.Max)
	}
	data, info, err := s.store.Get(ctx, s.name(key), in, dst)
	if err != nil {
		return nil, s.open(key, info), err
	}
	dst, err = s.decrypt(key, data, first, (info.Size-1)/sealChunk, r)
	info = s.open(key, info)
	if r.Length == 0 && r.Max > 0 && int64(len(dst)) > r.Max {
		return nil, info, schemas.Errorf(schemas.CodeTooLarge, "store: %q has more than %d bytes", key, r.Max)
	}
	return dst, info, err
}

// decrypt returns the range r of an object of which data has the chunks from first on. It is in the memory of data.
func (s *sealed) decrypt(key string, data []byte, first, last int64, r objectstore.Range) ([]byte, error) {
	damage := schemas.Errorf(schemas.CodeDamaged, "store: %q is damaged: %w", key, state.ErrCorrupt)
	if err := s.checkHead(key, data); err != nil {
		return nil, err
	}
	if len(data) < int(overhead) {
		return nil, damage
	}
	head := bytes.Clone(data[:headSize])
	aead, err := s.key.object(key, head[len(magic)+idSize:])
	if err != nil {
		return nil, err
	}
	damaged, most := false, openSize(int64(len(data)))
	if r.Length > 0 {
		most = min(most, r.Length)
	}
	dst := data[:0] // what is shorter than the chunks does not reach the next one
	for n := first; len(data) > 0; n++ {
		chunk := data[:min(sealChunk, int64(len(data)))]
		data = data[len(chunk):]
		if len(chunk) < int(overhead) {
			damaged = true
			break
		}
		open, err := aead.Open(chunk[headSize:headSize], nonce(n, n == last), chunk[headSize:], chunk[:headSize])
		if err != nil || !bytes.Equal(chunk[:headSize], head) {
			damaged, open = true, make([]byte, len(chunk)-int(overhead))
		}
		if n == first {
			open = open[min(r.Offset%openChunk, int64(len(open))):]
		}
		dst = append(dst, open[:min(int64(len(open)), most-int64(len(dst)))]...)
	}
	if damaged {
		return dst, damage
	}
	return dst, nil
}

// checkHead checks that a state was encrypted with this key.
func (s *sealed) checkHead(key string, data []byte) error {
	switch {
	case !isState(key):
	case bytes.HasPrefix(data, []byte("{")): // JSON
		return errKey("the workspace is not encrypted: leave the key out, or push to a new prefix to encrypt it")
	case len(data) >= headSize && near(data, []byte(magic)) && !near(data[len(magic):], s.key.id[:]):
		return errKey("the workspace is encrypted with another key: pass its key with --key-file or SLUICE_SYNC_KEY")
	}
	return nil
}

// Stat implements [objectstore.Store].
func (s *sealed) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	info, err := s.store.Stat(ctx, s.name(key))
	return s.open(key, info), err
}

// Put implements [objectstore.Store].
func (s *sealed) Put(ctx context.Context, key string, c objectstore.Content, cond objectstore.Condition) (string, error) {
	body, err := s.seal(key, c)
	if err != nil {
		return "", err
	}
	out := objectstore.Content{Reader: body, Size: sealSize(c.Size), Send: c.Send, Repeat: c.Repeat}
	sum := sha256.New()
	if _, err := io.Copy(sum, out.Open()); err != nil {
		return "", err
	}
	out.SHA256 = (*[sha256.Size]byte)(sum.Sum(nil))
	cond.Match = strings.TrimSuffix(cond.Match, s.suffix)
	token, err := s.store.Put(ctx, s.name(key), out, cond)
	if err != nil {
		return "", err
	}
	return token + s.suffix, nil
}

// sealing is content as it is stored. It seals a chunk whenever that is read: all of them would take as much memory as the content.
type sealing struct {
	key     string
	content objectstore.Content
	head    []byte
	aead    cipher.AEAD

	mu    sync.Mutex
	now   int64 // the chunk in chunk
	chunk []byte
	buf   []byte          // its memory
	tags  [][tagSize]byte // of the chunks that have been read
}

func (s *sealed) seal(key string, c objectstore.Content) (*sealing, error) {
	head := make([]byte, headSize)
	copy(head, magic)
	copy(head[len(magic):], s.key.id[:])
	_, _ = rand.Read(head[len(magic)+idSize:]) // it never fails
	aead, err := s.key.object(key, head[len(magic)+idSize:])
	return &sealing{key: key, content: c, head: head, aead: aead, now: -1, buf: make([]byte, sealChunk)}, err
}

// ReadAt implements [io.ReaderAt].
func (s *sealing) ReadAt(p []byte, at int64) (count int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for count < len(p) && at < sealSize(s.content.Size) {
		if err := s.load(at / sealChunk); err != nil {
			return count, err
		}
		n := copy(p[count:], s.chunk[at%sealChunk:])
		count, at = count+n, at+int64(n)
	}
	if count < len(p) {
		return count, io.EOF
	}
	return count, nil
}

// load seals chunk n. One that is not what it was at its first read is refused: two contents under one nonce would tell the store of both.
func (s *sealing) load(n int64) error {
	if s.now == n {
		return nil
	}
	s.now = -1
	from := n * openChunk
	open := s.buf[copy(s.buf, s.head):][:min(s.content.Size-from, openChunk)]
	if k, err := s.content.Reader.ReadAt(open, from); k < len(open) {
		return schemas.Errorf(schemas.CodeInternal, "store: reading what to store as %q: %w", s.key, err)
	}
	closed := s.aead.Seal(open[:0], nonce(n, from+openChunk >= s.content.Size), open, s.head) // in its own memory
	switch tag := [tagSize]byte(closed[len(closed)-tagSize:]); {
	case n == int64(len(s.tags)): // Put reads all of it in order first
		s.tags = append(s.tags, tag)
	case s.tags[n] != tag:
		return schemas.Errorf(schemas.CodeInternal, "store: the content of %q changed while it was stored", s.key)
	}
	s.now, s.chunk = n, s.buf[:headSize+len(closed)]
	return nil
}

// List implements [objectstore.Store].
func (s *sealed) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Info, error] {
	return func(yield func(objectstore.Info, error) bool) {
		from := prefix
		if strings.HasPrefix(prefix, state.ObjectPrefix) {
			from, _ = path.Split(prefix)
		}
		var all []objectstore.Info
		for info, err := range s.store.List(ctx, from) {
			if err != nil {
				yield(objectstore.Info{}, err)
				return
			}
			key := info.Key
			if dir, base := path.Split(key); strings.HasPrefix(key, state.ObjectPrefix) {
				if name, ok := s.key.openName(base); ok {
					key = dir + name
				}
			}
			if strings.HasPrefix(key, prefix) {
				all = append(all, s.open(key, info))
			}
		}
		slices.SortFunc(all, func(a, b objectstore.Info) int { return cmp.Compare(a.Key, b.Key) })
		for _, info := range all {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// Delete implements [objectstore.Store].
func (s *sealed) Delete(ctx context.Context, keys ...string) error {
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = s.name(key)
	}
	return s.store.Delete(ctx, names...)
}

// AbortUpload implements [objectstore.Store]. An upload has the name of the object in s.store, where it was begun.
func (s *sealed) AbortUpload(ctx context.Context, u objectstore.Upload) error {
	return s.store.AbortUpload(ctx, u)
}
