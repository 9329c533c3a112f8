package syncer

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"hash"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/schemas"
)

// fetchPlain brings files from under their own paths, verified before they are published.
func (x *session) fetchPlain(ctx context.Context, targets []target, done func(files, bytes int64)) error {
	var next, read atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range min(len(targets), x.parallel(x.cfg.Downloads, 64)) {
		group.Go(func() (err error) {
			dir := &folder{root: x.root}
			defer func() { err = errors.Join(err, dir.close()) }()
			var buf []byte
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(targets) {
					return nil
				}
				count := func(bytes int64) { done(0, bytes) }
				if buf, err = x.fetchOne(ctx, dir, targets[i], buf, count); err != nil {
					return err
				}
				read.Add(targets[i].node.Size)
				done(1, 0)
			}
			return ctx.Err()
		})
	}
	err := group.Wait()
	x.report.BytesRead += read.Load()
	return err
}

func (x *session) fetchOne(ctx context.Context, dir *folder, t target, buf []byte, count func(bytes int64)) (_ []byte, err error) {
	n, key := t.node, plainKey(t.from)
	if n.Size == 0 {
		return buf, dir.writeSmall(t.path, n, nil)
	}
	first := min(n.Size, ChunkSize)
	if int64(cap(buf)) < first {
		buf = make([]byte, 0, max(first, 64<<10))
	}
	data, info, err := x.store.Get(ctx, key, Range{Length: first}, buf[:0])
	if err != nil {
		return buf, err
	}
	if info.Size != n.Size || int64(len(data)) != first {
		return buf, replaced(n)
	}
	if n.Size <= ChunkSize {
		sums := newSums(n)
		if sums.add(data); !sums.hold() {
			return buf, replaced(n)
		}
		count(n.Size)
		return buf, dir.writeSmall(t.path, n, data)
	}
	large, err := dir.openLarge(t.path, n, 1)
	if err != nil {
		return buf, err
	}
	sums := newSums(n)
	for at := int64(0); ; {
		sums.add(data)
		if err := large.write(data, at); err != nil {
			return buf, errors.Join(err, large.f.Close())
		}
		count(int64(len(data)))
		if at += int64(len(data)); at >= n.Size {
			break
		}
		length := min(n.Size-at, ChunkSize)
		data, _, err = x.store.Get(ctx, key, Range{Offset: at, Length: length, Match: info.Token}, buf[:0])
		if err == nil && int64(len(data)) != length {
			err = replaced(n)
		}
		if err != nil {
			return buf, joined(errors.Join(err, large.f.Close()))
		}
	}
	if !sums.hold() {
		return buf, joined(errors.Join(replaced(n), large.f.Close()))
	}
	_, err = large.done(dir)
	return buf, err
}

// sums tells whether content that comes chunk by chunk is a node's: by its digest where the node has one, else by its
// MD5, which costs twice as much and is computed only then.
type sums struct {
	node   *Node
	md5    hash.Hash // nil where the digest decides
	chunks []Digest
}

func newSums(n *Node) *sums {
	s := &sums{node: n, chunks: make([]Digest, 0, chunkCount(n.Size))}
	if n.Digest == (Digest{}) {
		s.md5 = md5.New()
	}
	return s
}

func (s *sums) add(chunk []byte) {
	s.chunks = append(s.chunks, sha256.Sum256(chunk))
	if s.md5 != nil {
		s.md5.Write(chunk)
	}
}

func (s *sums) hold() bool {
	if s.md5 != nil {
		return Checksum(s.md5.Sum(nil)) == s.node.MD5
	}
	return seal(s.chunks) == s.node.Digest
}

func replaced(n *Node) error {
	return schemas.Errorf(schemas.CodeConflict,
		"store: %q is not what the state says: a push is on its way, or another tool wrote it; pull again, or push the right one",
		clip(n.Path)).With("path", clip(n.Path))
}
