package packed

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"iter"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/parallel"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// The most that one request reads of a pack, and the gap between wanted parts up to which it reads on. In bytes.
const (
	fetchSize = 4 << 20
	fetchGap  = 128 << 10
)

// Target is a file to fetch and where to write it.
type Target struct {
	Node *state.Node
	Path string // in the stage
	From string // the path under which the store has it
	Kept bool   // a file of an interrupted pull is at Path, of any content and the right size; only where it has several chunks
}

// Fetcher brings files from a store into the stage of a folder.
type Fetcher struct {
	Store    objectstore.Store
	Root     *os.Root
	Parallel int                      // requests at once; 0 is the layout's default: 8 packed, 64 plain
	Done     func(files, bytes int64) // counts what is written; for a large file bytes come first
}

type part struct {
	offset, length int64
	digest         state.Digest
	target         Target
	large          *worktree.LargeFile // nil for a file that is this part alone
	at             int64               // offset in the large file
}

type request struct {
	object *state.Object
	offset int64
	length int64
	parts  []part
}

// requests combines the parts of each object into ranged reads. A part that several files share is read once.
func requests(objects []state.Object, parts map[uint32][]part) []request {
	numbers := make([]uint32, 0, len(parts))
	for o := range parts {
		numbers = append(numbers, o)
	}
	slices.Sort(numbers)
	var all []request
	for _, o := range numbers {
		list := parts[o]
		slices.SortFunc(list, func(a, b part) int { return int(a.offset - b.offset) })
		var now *request
		for _, p := range list {
			end := p.offset + p.length
			if now == nil || p.offset > now.offset+now.length+fetchGap ||
				end > now.offset+now.length && end-now.offset > fetchSize {
				all = append(all, request{object: &objects[o], offset: p.offset})
				now = &all[len(all)-1]
			}
			now.length = max(now.length, end-now.offset)
			now.parts = append(now.parts, p)
		}
	}
	return all
}

// Fetch brings files out of the packs and chunks of s, and verifies everything before it writes it. read is in bytes.
func (f *Fetcher) Fetch(ctx context.Context, s *state.State, targets []Target) (read int64, err error) {
	parts := make(map[uint32][]part)
	var large []*worktree.LargeFile
	defer func() {
		for _, l := range large {
			l.Abort()
		}
	}()
	w := worktree.NewWriter(f.Root)
	open := func(t Target) error {
		n := t.Node
		switch objects := n.At.Objects; {
		case n.Size == 0:
			if err := w.WriteFile(t.Path, n, nil); err != nil {
				return err
			}
			f.Done(1, 0)
			return nil
		case len(objects) == 1:
			parts[objects[0]] = append(parts[objects[0]], part{offset: n.At.Offset, length: n.Size, digest: n.Digest, target: t})
			return nil
		default:
			digests := make([]state.Digest, len(objects))
			for i, o := range objects {
				digests[i] = s.Objects[o].Digest
			}
			if state.FileDigest(digests) != n.Digest {
				return schemas.Errorf(schemas.CodeInvalidArgument, "state: %q: its digest does not match its chunks", state.Clip(n.Path))
			}
			l, err := w.OpenLarge(t.Path, n, len(objects), t.Kept)
			if err != nil {
				return err
			}
			large = append(large, l)
			for i, o := range objects {
				if t.Kept && keeps(l, digests[i], int64(i)*state.ChunkSize, s.Objects[o].Size) {
					if err := f.done(w, l, s.Objects[o].Size); err != nil {
						return err
					}
					continue
				}
				parts[o] = append(parts[o], part{length: s.Objects[o].Size, digest: digests[i], target: t, large: l,
					at: int64(i) * state.ChunkSize})
			}
			return nil
		}
	}
	for _, t := range targets {
		if err := open(t); err != nil {
			return 0, errors.Join(err, w.Close())
		}
	}
	if err := w.Close(); err != nil {
		return 0, err
	}
	return f.run(ctx, requests(s.Objects, parts))
}

func (f *Fetcher) run(ctx context.Context, all []request) (int64, error) {
	var read atomic.Int64
	longest := int64(0)
	for i := range all {
		longest = max(longest, all[i].length)
	}
	err := parallel.Run(ctx, cmp.Or(f.Parallel, 8), len(all), func(ctx context.Context, indexes iter.Seq[int]) (err error) {
		w := worktree.NewWriter(f.Root)
		defer func() { err = errors.Join(err, w.Close()) }()
		var buf []byte // reused: a new one for each request costs more than filling it
		for i := range indexes {
			r := &all[i]
			if int64(cap(buf)) < r.length {
				buf = make([]byte, 0, max(r.length, min(longest, fetchSize)))
			}
			var data []byte
			err := objectstore.Reread(func() (err error) {
				if data, _, err = f.Store.Get(ctx, r.object.Key(), objectstore.Range{Offset: r.offset, Length: r.length}, buf[:0]); err == nil {
					err = r.verify(data)
				}
				return err
			})
			if errors.Is(err, schemas.ErrNotFound) {
				err = schemas.Errorf(schemas.CodeNotFound, "store: the content of %q is gone: pull again, its version may have been removed: %w",
					state.Clip(r.parts[0].target.Node.Path), err)
			}
			if err != nil {
				return err
			}
			buf = data // a store may have made a larger one
			if err := f.write(w, r, data); err != nil {
				return err
			}
			read.Add(int64(len(data)))
		}
		return nil
	})
	return read.Load(), err
}

func damaged(path string, o *state.Object) error {
	return schemas.Errorf(schemas.CodeDamaged,
		"store: the content of %q in object %s is damaged: its digest does not match: repair it from a folder that has it, with check --repair",
		state.Clip(path), o.Key()).With("path", state.Clip(path))
}

// piece returns the content of a part.
func (r *request) piece(p *part, data []byte) []byte { return data[p.offset-r.offset:][:p.length] }

// verify checks every part of what was read.
func (r *request) verify(data []byte) error {
	if int64(len(data)) != r.length {
		return schemas.Errorf(schemas.CodeDamaged, "store: object %s returned %d bytes instead of %d", r.object.Key(), len(data), r.length)
	}
	var last *part
	for i := range r.parts {
		p := &r.parts[i]
		// Files of one content share a part, which is verified once.
		if last == nil || last.offset != p.offset || last.length != p.length || last.digest != p.digest {
			if state.Digest(sha256.Sum256(r.piece(p, data))) != p.digest {
				return damaged(p.target.Node.Path, r.object)
			}
		}
		last = p
	}
	return nil
}

// write writes the parts of verified content.
func (f *Fetcher) write(w *worktree.Writer, r *request, data []byte) error {
	for i := range r.parts {
		p := &r.parts[i]
		piece := r.piece(p, data)
		if p.large == nil {
			if err := w.WriteFile(p.target.Path, p.target.Node, piece); err != nil {
				return err
			}
			f.Done(1, p.length)
			continue
		}
		if err := p.large.Write(piece, p.at); err != nil {
			return err
		}
		if err := f.done(w, p.large, p.length); err != nil {
			return err
		}
	}
	return nil
}

// done counts a chunk of a large file.
func (f *Fetcher) done(w *worktree.Writer, l *worktree.LargeFile, length int64) error {
	f.Done(0, length)
	finished, err := l.Done(w)
	if finished && err == nil {
		f.Done(1, 0)
	}
	return err
}

// keeps reports whether a kept file has a chunk already.
func keeps(l *worktree.LargeFile, d state.Digest, at, length int64) bool {
	data := make([]byte, length)
	_, err := l.ReadAt(data, at)
	return err == nil && state.Digest(sha256.Sum256(data)) == d
}

// reader reads a file out of its objects, one verified chunk at a time.
type reader struct {
	ctx   context.Context
	store objectstore.Store
	state *state.State
	node  *state.Node

	mu    sync.Mutex
	chunk int
	data  []byte
}

// NewReader returns the content of a file that s keeps in packs and chunks.
func NewReader(ctx context.Context, store objectstore.Store, s *state.State, n *state.Node) io.ReaderAt {
	return &reader{ctx: ctx, store: store, state: s, node: n}
}

// ReadAt implements [io.ReaderAt].
func (r *reader) ReadAt(p []byte, at int64) (count int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for count < len(p) {
		if at >= r.node.Size {
			return count, io.EOF
		}
		if err := r.load(int(at / state.ChunkSize)); err != nil {
			return count, err
		}
		k := copy(p[count:], r.data[at%state.ChunkSize:])
		count, at = count+k, at+int64(k)
	}
	return count, nil
}

func (r *reader) load(chunk int) error {
	if r.data != nil && r.chunk == chunk {
		return nil
	}
	object := &r.state.Objects[r.node.At.Objects[chunk]]
	rng, digest := objectstore.Range{Length: object.Size}, object.Digest
	if len(r.node.At.Objects) == 1 {
		rng, digest = objectstore.Range{Length: r.node.Size, Offset: r.node.At.Offset}, r.node.Digest
	}
	var data []byte
	err := objectstore.Reread(func() (err error) {
		data, _, err = r.store.Get(r.ctx, object.Key(), rng, r.data[:0])
		if err == nil && (int64(len(data)) != rng.Length || state.Digest(sha256.Sum256(data)) != digest) {
			err = damaged(r.node.Path, object)
		}
		return err
	})
	if err != nil {
		r.data = nil
		return err
	}
	r.chunk, r.data = chunk, data
	return nil
}
