package packed

import (
	"context"
	"crypto/sha256"
	"io"
	"sync"

	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/state"
)

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
	data, _, err := r.store.Get(r.ctx, object.Key(), rng, r.data[:0])
	if err == nil && (int64(len(data)) != rng.Length || state.Digest(sha256.Sum256(data)) != digest) {
		err = damaged(r.node.Path)
	}
	if err != nil {
		r.data = nil
		return err
	}
	r.chunk, r.data = chunk, data
	return nil
}
