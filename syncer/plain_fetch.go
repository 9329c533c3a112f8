package syncer

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
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
		if !n.holds(md5.Sum(data), []Digest{sha256.Sum256(data)}) {
			return buf, replaced(n)
		}
		count(n.Size)
		return buf, dir.writeSmall(t.path, n, data)
	}
	large, err := dir.openLarge(t.path, n, 1)
	if err != nil {
		return buf, err
	}
	sum, chunks := md5.New(), make([]Digest, 0, chunkCount(n.Size))
	for at := int64(0); ; {
		sum.Write(data)
		chunks = append(chunks, sha256.Sum256(data))
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
	if !n.holds(Checksum(sum.Sum(nil)), chunks) {
		return buf, joined(errors.Join(replaced(n), large.f.Close()))
	}
	_, err = large.done(dir)
	return buf, err
}

// holds says whether content with these sums is the node's: by its digest where it has one, else by its MD5.
func (n *Node) holds(sum Checksum, chunks []Digest) bool {
	if n.Digest != (Digest{}) {
		return seal(chunks) == n.Digest
	}
	return sum == n.MD5
}

func replaced(n *Node) error {
	return schemas.Errorf(schemas.CodeConflict,
		"store: %q is not what the state says: a push is on its way, or another tool wrote it; pull again, or push the right one",
		clip(n.Path)).With("path", clip(n.Path))
}
