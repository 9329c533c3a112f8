package plain

import (
	"cmp"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"iter"
	"sync/atomic"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/parallel"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// Fetch brings files from under their own paths, and those that are pending from their packs. Every file is verified before
// it is published. read is in bytes.
func Fetch(ctx context.Context, f *packed.Fetcher, s *state.State, targets []packed.Target) (read int64, err error) {
	var pending, inPlace []packed.Target
	for _, t := range targets {
		if len(t.Node.At.Objects) > 0 {
			pending = append(pending, t)
		} else {
			inPlace = append(inPlace, t)
		}
	}
	if read, err = f.Fetch(ctx, s, pending); err != nil {
		return read, err
	}
	var own atomic.Int64
	err = parallel.Run(ctx, cmp.Or(f.Parallel, 64), len(inPlace), func(ctx context.Context, indexes iter.Seq[int]) (err error) {
		w := worktree.NewWriter(f.Root)
		defer func() { err = errors.Join(err, w.Close()) }()
		var buf []byte // for the next file
		for i := range indexes {
			d := &download{Fetcher: f, w: w, etag: s.ETags[inPlace[i].Node.Path], target: inPlace[i], buf: buf}
			if err = d.run(ctx); err != nil {
				return err
			}
			buf = d.buf
			own.Add(inPlace[i].Node.Size - d.kept)
			f.Done(1, 0)
		}
		return nil
	})
	return read + own.Load(), err
}

// download fetches one file.
type download struct {
	*packed.Fetcher
	w       *worktree.Writer
	etag    string // the state's, "" where it has none
	target  packed.Target
	buf     []byte
	large   *worktree.LargeFile // nil for a file of one chunk
	counted int64               // bytes, which a later try does not count again
	kept    int64               // bytes of an interrupted pull
}

// run fetches the file. Content that is not the state's although its token is was damaged on its way, and is read again.
func (d *download) run(ctx context.Context) error {
	defer func() {
		if d.large != nil {
			d.large.Abort() // unless it is complete
		}
	}()
	if d.target.Node.Size == 0 {
		return d.w.WriteFile(d.target.Path, d.target.Node, nil)
	}
	return objectstore.Reread(func() error { return d.fetch(ctx) })
}

func (d *download) fetch(ctx context.Context) (err error) {
	n := d.target.Node
	v := newVerifier(n)
	r := objectstore.Range{}
	resumed := false
	d.kept = 0
	if d.target.Kept {
		d.target.Kept, resumed = false, true // once: should it not be the content, all of it is fetched
		if r.Offset, err = d.keep(v); err != nil {
			return err
		}
	}
	if n.MD5 == (state.Checksum{}) {
		r.Match = d.etag
	}
	sure := false // the object is the one that the state means
	for r.Offset < n.Size {
		r.Length = min(n.Size-r.Offset, state.ChunkSize)
		d.grow(r.Length)
		data, info, err := d.Store.Get(ctx, Key(d.target.From), r, d.buf[:0])
		if err != nil {
			return err
		}
		other := info.MD5 != nil && *info.MD5 != n.MD5 && n.MD5 != (state.Checksum{})
		if other || int64(len(data)) != r.Length || info.Size != n.Size {
			return replaced(n)
		}
		sure = info.MD5 != nil || d.etag != "" && d.etag == info.Token
		r.Match = info.Token
		v.add(data)
		d.buf = data
		if n.Size > state.ChunkSize {
			if err := d.write(data, r.Offset); err != nil {
				return err
			}
		}
		r.Offset += r.Length
	}
	switch {
	case !v.ok() && (sure || resumed):
		return schemas.Errorf(schemas.CodeDamaged, "store: the content of %q is damaged: its digest does not match: repair it from a folder that has it, "+
			"with check --repair", state.Clip(n.Path)).With("path", state.Clip(n.Path))
	case !v.ok():
		return replaced(n)
	case d.large != nil:
		_, err = d.large.Done(d.w)
		return err
	}
	d.Done(0, n.Size)
	return d.w.WriteFile(d.target.Path, n, d.buf)
}

func (d *download) grow(size int64) {
	if int64(cap(d.buf)) < size {
		d.buf = make([]byte, 0, max(size, 64<<10))
	}
}

// keep reads what an interrupted pull has written of the file, and returns where to go on: before the last chunk, which shows whether
// the object is still the one.
func (d *download) keep(v *verifier) (at int64, err error) {
	if d.large, err = d.w.OpenLarge(d.target.Path, d.target.Node, 1, true); err != nil {
		return 0, err
	}
	most := min(d.large.Kept(), d.target.Node.Size-1)
	d.grow(state.ChunkSize)
	data := d.buf[:state.ChunkSize]
	for ; at+state.ChunkSize <= most; at += state.ChunkSize {
		if n, _ := d.large.ReadAt(data, at); n < len(data) {
			break // the rest is fetched
		}
		v.add(data)
	}
	d.Done(0, at)
	d.counted, d.kept = at, at
	return at, nil
}

func (d *download) write(data []byte, at int64) (err error) {
	if d.large == nil {
		if d.large, err = d.w.OpenLarge(d.target.Path, d.target.Node, 1, false); err != nil {
			return err
		}
	}
	if at >= d.counted {
		d.Done(0, int64(len(data)))
		d.counted += int64(len(data))
	}
	return d.large.Write(data, at)
}

// Copy writes a file from under its own path to w, and verifies it in the end.
func Copy(ctx context.Context, store objectstore.Store, n *state.Node, w io.Writer) error {
	v := newVerifier(n)
	r := objectstore.Range{}
	var buf []byte
	for r.Offset < n.Size {
		r.Length = min(n.Size-r.Offset, state.ChunkSize)
		data, info, err := store.Get(ctx, Key(n.Path), r, buf[:0])
		if err != nil {
			return err
		}
		if info.Size != n.Size || int64(len(data)) != r.Length {
			return replaced(n)
		}
		v.add(data)
		if _, err := w.Write(data); err != nil {
			return err
		}
		buf, r.Match, r.Offset = data, info.Token, r.Offset+r.Length
	}
	if n.Size > 0 && !v.ok() {
		return replaced(n)
	}
	return nil
}

// verifier checks that content read chunk by chunk is a node's: by its digest, or, where the node has none, by its MD5.
// The MD5 costs twice as much and is computed only then. A node that has neither gets the MD5: see [Checksums].
type verifier struct {
	node   *state.Node
	md5    hash.Hash // nil where the digest decides
	chunks []state.Digest
}

func newVerifier(n *state.Node) *verifier {
	v := &verifier{node: n, chunks: make([]state.Digest, 0, state.ChunkCount(n.Size))}
	if n.Digest == (state.Digest{}) {
		v.md5 = md5.New()
	}
	return v
}

func (v *verifier) add(chunk []byte) {
	v.chunks = append(v.chunks, sha256.Sum256(chunk))
	if v.md5 != nil {
		v.md5.Write(chunk)
	}
}

func (v *verifier) ok() bool {
	if v.md5 == nil {
		return state.FileDigest(v.chunks) == v.node.Digest
	}
	sum := state.Checksum(v.md5.Sum(nil))
	if v.node.MD5 == (state.Checksum{}) {
		v.node.MD5 = sum
	}
	return sum == v.node.MD5
}

func replaced(n *state.Node) error {
	return schemas.Errorf(schemas.CodeConflict,
		"store: %q differs from the state: a push is running, or another tool wrote it; pull again, or push the right one",
		state.Clip(n.Path)).With("path", state.Clip(n.Path))
}

// Adopt makes a state out of the objects in the store, for a workspace that other tools put there. A file of which neither the listing
// nor known, by the token, has the MD5 gets none: see [Checksums].
func Adopt(ctx context.Context, store objectstore.Store, limits state.Limits, known *state.State) (*state.State, error) {
	s := &state.State{Layout: state.Plain}
	folders := map[string]bool{}
	for info, err := range store.List(ctx, "") {
		if err != nil {
			return nil, err
		}
		if state.Reserved(info.Key) {
			continue
		}
		if err := state.CheckPath(info.Key); err != nil {
			return nil, err
		}
		if len(s.Nodes) >= limits.Entries {
			return nil, schemas.Errorf(schemas.CodeTooLarge, "store: more than %d objects", limits.Entries)
		}
		n := state.Node{Path: info.Key, Kind: state.File, Mode: 0o644, Size: info.Size, Modified: info.Modified.UnixNano(), Hashed: true}
		if info.MD5 != nil {
			n.MD5 = *info.MD5
		} else if at, ok := known.Search(n.Path); ok && known.ETags[n.Path] == info.Token && known.Nodes[at].Size == n.Size {
			n.MD5, n.Digest = known.Nodes[at].MD5, known.Nodes[at].Digest
		}
		s.SetETag(&n, info.Token)
		s.Nodes = append(s.Nodes, n)
		for dir := state.Parent(n.Path); dir != "" && !folders[dir]; dir = state.Parent(dir) {
			folders[dir] = true
		}
	}
	for dir := range folders {
		s.Nodes = append(s.Nodes, state.Node{Path: dir, Kind: state.Dir, Mode: 0o755, Hashed: true})
	}
	state.SortNodes(s.Nodes)
	return s, s.Check(limits)
}

// Checksums reads the files that have no MD5, except those that later reports: a fetch of them finds it.
func Checksums(ctx context.Context, store objectstore.Store, s *state.State, later func(n *state.Node) bool) error {
	return parallel.Run(ctx, 8, len(s.Nodes), func(ctx context.Context, indexes iter.Seq[int]) (err error) {
		for i := range indexes {
			n := &s.Nodes[i]
			if n.Kind != state.File || n.MD5 != (state.Checksum{}) || n.Size > 0 && later != nil && later(n) {
				continue
			}
			if n.MD5, err = checksum(ctx, store, &objectstore.Info{Key: n.Path, Size: n.Size, Token: s.ETags[n.Path]}); err != nil {
				return err
			}
		}
		return nil
	})
}

// checksum returns the MD5 of a stored object. It reads the object where the store does not report the MD5.
func checksum(ctx context.Context, store objectstore.Store, info *objectstore.Info) (state.Checksum, error) {
	if info.MD5 != nil {
		return state.Checksum(*info.MD5), nil
	}
	sum := md5.New()
	var buf []byte
	for at := int64(0); at < info.Size; at += int64(len(buf)) {
		r := objectstore.Range{Offset: at, Length: min(state.ChunkSize, info.Size-at), Match: info.Token}
		data, _, err := store.Get(ctx, info.Key, r, buf[:0])
		if err != nil {
			return state.Checksum{}, err
		}
		if len(data) == 0 {
			return state.Checksum{}, schemas.Errorf(schemas.CodeConflict, "store: %q was replaced while it was read: sync again",
				state.Clip(info.Key))
		}
		sum.Write(data)
		buf = data
	}
	return state.Checksum(sum.Sum(nil)), nil
}
