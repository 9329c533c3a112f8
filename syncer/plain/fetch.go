package plain

import (
	"cmp"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"hash"
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
		var buf []byte
		for i := range indexes {
			if buf, err = fetchFile(ctx, f, w, inPlace[i], buf); err != nil {
				return err
			}
			own.Add(inPlace[i].Node.Size)
			f.Done(1, 0)
		}
		return nil
	})
	return read + own.Load(), err
}

// fetchFile fetches one file, and returns the buffer for the next.
func fetchFile(ctx context.Context, f *packed.Fetcher, w *worktree.Writer, t packed.Target, buf []byte) ([]byte, error) {
	n, key := t.Node, Key(t.From)
	if n.Size == 0 {
		return buf, w.WriteFile(t.Path, n, nil)
	}
	first := min(n.Size, state.ChunkSize)
	if int64(cap(buf)) < first {
		buf = make([]byte, 0, max(first, 64<<10))
	}
	data, info, err := f.Store.Get(ctx, key, objectstore.Range{Length: first}, buf[:0])
	if err != nil {
		return buf, err
	}
	if info.Size != n.Size || int64(len(data)) != first {
		return buf, replaced(n)
	}
	v := newVerifier(n)
	v.add(data)
	if n.Size <= state.ChunkSize {
		if !v.ok() {
			return buf, replaced(n)
		}
		f.Done(0, n.Size)
		return buf, w.WriteFile(t.Path, n, data)
	}
	large, err := w.OpenLarge(t.Path, n, 1)
	if err != nil {
		return buf, err
	}
	defer large.Abort() // unless it is complete
	for at := int64(0); ; {
		if err := large.Write(data, at); err != nil {
			return buf, err
		}
		f.Done(0, int64(len(data)))
		if at += int64(len(data)); at >= n.Size {
			break
		}
		length := min(n.Size-at, state.ChunkSize)
		if data, _, err = f.Store.Get(ctx, key, objectstore.Range{Offset: at, Length: length, Match: info.Token}, buf[:0]); err != nil {
			return buf, err
		}
		if int64(len(data)) != length {
			return buf, replaced(n)
		}
		v.add(data)
	}
	if !v.ok() {
		return buf, replaced(n)
	}
	_, err = large.Done(w)
	return buf, err
}

// verifier checks that content read chunk by chunk is a node's: by its digest, or, where the node has none, by its MD5.
// The MD5 costs twice as much and is computed only then.
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
	if v.md5 != nil {
		return state.Checksum(v.md5.Sum(nil)) == v.node.MD5
	}
	return state.FileDigest(v.chunks) == v.node.Digest
}

func replaced(n *state.Node) error {
	return schemas.Errorf(schemas.CodeConflict,
		"store: %q differs from the state: a push is running, or another tool wrote it; pull again, or push the right one",
		state.Clip(n.Path)).With("path", state.Clip(n.Path))
}
