package plain

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/parallel"
	"github.com/sluice-dev/sluice/syncer/state"
)

// Replaced is the problem of a file of which the object has other content than the state says: another tool wrote it, or it is
// damaged.
const Replaced = "replaced"

// Found is what is under the own path of a file.
type Found struct {
	Problem string // [packed.Missing] or [Replaced]
	Token   string // of the object; "" for none
}

// Verify reads every file of s under its own path, and returns those that are not what s says, and the objects under the prefix that
// are no files of s. read is in bytes.
func Verify(ctx context.Context, store objectstore.Store, s *state.State, requests int) (
	bad map[string]Found, others []string, read int64, err error) {
	var files []*state.Node
	keys := map[string]bool{}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Kind == state.File {
			keys[Key(n.Path)] = true
			if len(n.At.Objects) == 0 {
				files = append(files, n)
			}
		}
	}
	for _, path := range s.Dropping {
		keys[Key(path)] = true
	}
	for info, err := range store.List(ctx, "") {
		if err != nil {
			return nil, nil, 0, err
		}
		if !state.Reserved(info.Key) && !keys[info.Key] {
			others = append(others, info.Key)
		}
	}
	bad = map[string]Found{}
	var mu sync.Mutex
	err = parallel.Run(ctx, cmp.Or(requests, 64), len(files), func(ctx context.Context, indexes iter.Seq[int]) error {
		for i := range indexes {
			found, err := verifyFile(ctx, store, files[i])
			if err != nil {
				return err
			}
			mu.Lock()
			read += files[i].Size
			if found.Problem != "" {
				bad[files[i].Path] = found
			}
			mu.Unlock()
		}
		return nil
	})
	return bad, others, read, err
}

func verifyFile(ctx context.Context, store objectstore.Store, n *state.Node) (found Found, err error) {
	info, err := store.Stat(ctx, Key(n.Path))
	if errors.Is(err, schemas.ErrNotFound) {
		return Found{Problem: packed.Missing}, nil
	}
	if err != nil {
		return Found{}, err
	}
	found.Token = info.Token
	err = objectstore.Reread(func() error {
		v := newVerifier(n)
		var data []byte
		for at := int64(0); at < n.Size && info.Size == n.Size; at += int64(len(data)) {
			r := objectstore.Range{Offset: at, Length: min(state.ChunkSize, n.Size-at), Match: info.Token}
			if data, _, err = store.Get(ctx, Key(n.Path), r, data[:0]); err != nil {
				return err
			}
			if len(data) == 0 {
				break
			}
			v.add(data)
		}
		if info.Size != n.Size || n.Size > 0 && !v.ok() {
			return schemas.Errorf(schemas.CodeDamaged, "store: %q differs from the state", state.Clip(n.Path))
		}
		return nil
	})
	if errors.Is(err, schemas.ErrDamaged) || errors.Is(err, schemas.ErrConflict) || errors.Is(err, schemas.ErrNotFound) {
		return Found{Problem: Replaced, Token: found.Token}, nil
	}
	return found, err
}
