package syncer

import (
	"context"
	"crypto/sha256"
	"io"
	"sync"

	"github.com/sluice-dev/sluice/schemas"
)

// stored reads a file out of the objects that hold it, a chunk at a time, each verified.
type stored struct {
	ctx   context.Context
	store Store
	s     *State
	n     *Node

	mu    sync.Mutex
	chunk int
	data  []byte
}

var _ io.ReaderAt = (*stored)(nil)

// ReadAt implements [io.ReaderAt].
func (r *stored) ReadAt(p []byte, at int64) (count int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for count < len(p) {
		if at >= r.n.Size {
			return count, io.EOF
		}
		if err := r.load(int(at / ChunkSize)); err != nil {
			return count, err
		}
		k := copy(p[count:], r.data[at%ChunkSize:])
		count, at = count+k, at+int64(k)
	}
	return count, nil
}

func (r *stored) load(chunk int) error {
	if r.data != nil && r.chunk == chunk {
		return nil
	}
	object, whole := &r.s.Objects[r.n.At.Objects[chunk]], object(r.n)
	rng, digest := Range{Length: r.n.Size, Offset: r.n.At.Offset}, r.n.Digest
	if !whole {
		rng, digest = Range{Length: object.Size}, object.Digest
	}
	data, _, err := r.store.Get(r.ctx, object.key(), rng, r.data[:0])
	if err != nil {
		r.data = nil
		return err
	}
	if int64(len(data)) != rng.Length || Digest(sha256.Sum256(data)) != digest {
		r.data = nil
		return schemas.Errorf(schemas.CodeInternal, "store: the content of %q is damaged: its digest is another one", clip(r.n.Path))
	}
	r.chunk, r.data = chunk, data
	return nil
}

// object says whether all of a file is in one object.
func object(n *Node) bool { return len(n.At.Objects) == 1 }
