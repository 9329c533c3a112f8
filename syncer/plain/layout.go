package plain

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"iter"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/parallel"
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
	large, in := &worktree.Hasher{}, worktree.NewFolders(l.Root)
	defer func() { err = errors.Join(err, in.Close()) }()
	for i, n := range files {
		if r := remote[i]; r != nil && r.Kind == state.File && n.Size > worktree.SmallFile && n.Size == r.Size {
			if err := ctx.Err(); err != nil {
				return nil, 0, err
			}
			c, err := worktree.HashFile(in, n.Path, nil, large)
			if err != nil && l.Unread(n.Path, err) {
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
			delete(next.ETags, n.Path)
			drop = append(drop, n.Path)
		}
	}
	next.ETags = maps.Clone(l.Remote.ETags)
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
			delete(next.ETags, n.Path)
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
			"choose the folder's side with --on-conflict local", state.Clip(n.Path)).With("path", state.Clip(n.Path))
}

// preconditions finds, before the commit, the object that each file will replace. Only what the state or an earlier push
// put there may be replaced, so that another tool's work is not overwritten unnoticed.
type preconditions struct {
	*Layout
	files, before []*state.Node // the files to write, and what the state had at their paths
	pending       map[string]state.Pending
	dropped       map[string]bool
}

// listPage is how many objects one page of a listing has. It decides from which number of paths on a listing needs fewer
// requests than a Stat of each.
const listPage = 1000

// check fills in next's pending files. A file that is in place already is not pending.
func (c *preconditions) check(ctx context.Context, next *state.State) error {
	exists, listed, err := c.list(ctx)
	if err != nil {
		return err
	}
	over := make([]string, len(c.files))
	inPlace := make([]bool, len(c.files))
	err = parallel.Run(ctx, cmp.Or(c.Parallel, 64), len(c.files), func(ctx context.Context, indexes iter.Seq[int]) (err error) {
		for i := range indexes {
			if listed && !exists[Key(c.files[i].Path)] {
				continue
			}
			if over[i], inPlace[i], err = c.replaces(ctx, c.files[i], c.before[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, n := range c.files {
		if inPlace[i] {
			n.At = state.Location{}
			continue
		}
		next.Pending = append(next.Pending, state.Pending{Path: n.Path, Over: over[i]})
	}
	slices.SortFunc(next.Pending, func(a, b state.Pending) int { return state.ComparePaths(a.Path, b.Path) })
	return nil
}

// list returns which of the files' keys exist, where that needs fewer requests than a Stat of each.
func (c *preconditions) list(ctx context.Context) (exists map[string]bool, listed bool, err error) {
	if len(c.files) <= 1+len(c.Remote.Nodes)/listPage {
		return nil, false, nil
	}
	exists = make(map[string]bool, len(c.files))
	for _, n := range c.files {
		exists[Key(n.Path)] = false
	}
	for info, err := range c.Store.List(ctx, "") {
		if err != nil {
			return nil, false, err
		}
		if _, ok := exists[info.Key]; ok {
			exists[info.Key] = true
		}
	}
	return exists, true, nil
}

// replaces returns the token of the object that n may replace, "" when there is none. inPlace reports that the object is n.
func (c *preconditions) replaces(ctx context.Context, n, was *state.Node) (over string, inPlace bool, err error) {
	info, err := c.Store.Stat(ctx, Key(n.Path))
	if errors.Is(err, schemas.ErrNotFound) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	p, pending := c.pending[n.Path]
	if c.Overwrite || c.dropped[n.Path] || pending && p.Over == info.Token ||
		info.Token != "" && info.Token == c.Remote.ETags[n.Path] {
		return info.Token, false, nil
	}
	sum, err := checksum(ctx, c.Store, &info)
	switch {
	case err != nil:
		return "", false, err
	case sum == n.MD5 && info.Size == n.Size:
		return "", true, nil
	case was != nil && was.Kind == state.File && sum == was.MD5:
		return info.Token, false, nil
	}
	return "", false, c.foreign(ctx, n)
}

// addDropping records the paths whose objects to delete, except those that are files again.
func addDropping(s *state.State, paths []string) {
	slices.SortFunc(paths, state.ComparePaths)
	for _, path := range slices.Compact(paths) {
		if at, ok := s.Search(path); !ok || s.Nodes[at].Kind != state.File {
			s.Dropping = append(s.Dropping, path)
		}
	}
}
