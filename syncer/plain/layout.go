package plain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"unicode/utf8"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// Layout is the plain layout for one push.
type Layout struct {
	packed.Layout              // where new content goes before the commit; for single files Parallel 0 is 64
	Remote        *state.State // the state that the push replaces
	Token         string       // of that state's object
	Overwrite     bool         // replace whatever is under a path
}

// ErrOvertaken means that another writer replaced the state first. The push starts again from the read.
var ErrOvertaken = errors.New("sync: another writer replaced the state")

// Key returns the key of a path's object: the path, where every tool and server accepts it as a key, else a name derived
// from it.
func Key(path string) string {
	ok := utf8.ValidString(path) && len(path) <= 900
	for i := 0; ok && i < len(path); i++ {
		ok = path[i] >= ' ' && path[i] != 0x7f && path[i] != '\\'
	}
	if ok {
		return path
	}
	sum := sha256.Sum256([]byte(path))
	return state.ReservedName + ".d/odd/" + hex.EncodeToString(sum[:])
}

// Upload stores new content in packs. A large file of unchanged size is hashed first: the object under its path is in no
// pack, so its chunks would be sent again for nothing.
func (l *Layout) Upload(ctx context.Context, files, remote []*state.Node) (results []*worktree.Content, sent int64, err error) {
	results = make([]*worktree.Content, len(files))
	var index []int
	var changed, before []*state.Node
	large := &worktree.Hasher{}
	for i, n := range files {
		if r := remote[i]; r != nil && r.Kind == state.File && n.Size > worktree.SmallFile && n.Size == r.Size {
			if err := ctx.Err(); err != nil {
				return nil, 0, err
			}
			c, err := worktree.HashFile(l.Root, n.Path, nil, large)
			if worktree.IsGone(err) {
				continue
			}
			if err != nil {
				return nil, 0, err
			}
			if now := c.Node(n); state.SameContent(&now, r) {
				results[i] = &c
				continue
			}
		}
		index, changed, before = append(index, i), append(changed, n), append(before, remote[i])
	}
	uploaded, sent, err := l.Layout.Upload(ctx, changed, before)
	if err != nil {
		return nil, sent, err
	}
	for k, c := range uploaded {
		results[index[k]] = c
	}
	return results, sent, nil
}

// KeepRemote stores the store's side of each conflict of which both sides are kept, since its path will be overwritten.
func (l *Layout) KeepRemote(ctx context.Context, steps []plan.Step) error {
	for i := range steps {
		r := steps[i].Remote
		if steps[i].Do != plan.KeepBoth || r.Kind != state.File || r.Size == 0 || len(r.At.Objects) > 0 {
			continue
		}
		n := *r
		v := newVerifier(&n)
		var match string
		var buf []byte
		for at := int64(0); at < n.Size; at += state.ChunkSize {
			length := min(state.ChunkSize, n.Size-at)
			data, info, err := l.Store.Get(ctx, Key(n.Path), objectstore.Range{Offset: at, Length: length, Match: match}, buf[:0])
			if err != nil && !errors.Is(err, schemas.ErrNotFound) && !errors.Is(err, schemas.ErrConflict) {
				return err
			}
			if err != nil || info.Size != n.Size || int64(len(data)) != length {
				return l.foreign(ctx, &n)
			}
			v.add(data)
			object, _, err := l.Index.Add(ctx, data)
			if err != nil {
				return err
			}
			n.At.Objects = append(n.At.Objects, object)
			match, buf = info.Token, data
		}
		if !v.ok() {
			return l.foreign(ctx, &n)
		}
		n.Digest = state.FileDigest(v.chunks)
		steps[i].Remote = &n
	}
	return nil
}

// Prepare records in next what to do after its commit: which files to write under their own paths, each over the object
// that is there now, and which objects to delete.
func (l *Layout) Prepare(ctx context.Context, next *state.State) error {
	pending := make(map[string]state.Pending, len(l.Remote.Pending))
	for _, p := range l.Remote.Pending {
		pending[p.Path] = p
	}
	c := &preconditions{Layout: l, pending: pending, dropped: make(map[string]bool, len(l.Remote.Dropping))}
	var drop []string
	for _, path := range l.Remote.Dropping {
		c.dropped[path] = true
		drop = append(drop, path)
	}
	dropFile := func(n *state.Node) {
		if n.Kind == state.File {
			drop = append(drop, n.Path)
		}
	}
	old := l.Remote.Nodes
	for i := range next.Nodes {
		n := &next.Nodes[i]
		for ; len(old) > 0 && state.ComparePaths(old[0].Path, n.Path) < 0; old = old[1:] {
			dropFile(&old[0])
		}
		var was *state.Node
		if len(old) > 0 && old[0].Path == n.Path {
			was = &old[0]
			old = old[1:]
		}
		switch {
		case n.Kind != state.File && was != nil:
			dropFile(was)
		case n.Kind != state.File:
		case was != nil && was.Kind == state.File && state.SameContent(n, was):
			if p, ok := pending[n.Path]; ok {
				next.Pending = append(next.Pending, p)
			}
		default:
			c.files, c.before = append(c.files, n), append(c.before, was)
		}
	}
	for i := range old {
		dropFile(&old[i])
	}
	if err := c.check(ctx, next); err != nil {
		return err
	}
	addDropping(next, drop)
	next.CompactObjects() // files that are in place already need no pack
	return nil
}

// foreign returns the error for an object that differs from the state: [ErrOvertaken] where the state has been replaced,
// else a conflict, since another tool wrote the object.
func (l *Layout) foreign(ctx context.Context, n *state.Node) error {
	info, err := l.Store.Stat(ctx, state.ReservedName)
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return err
	}
	if info.Token != l.Token {
		return ErrOvertaken
	}
	return schemas.Errorf(schemas.CodeConflict,
		"sync: %q in the store differs from the state: another tool wrote it; nothing was changed: "+
			"choose the folder's side with on-conflict local", state.Clip(n.Path)).With("path", state.Clip(n.Path))
}
