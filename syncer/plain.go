package syncer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"unicode/utf8"

	"github.com/sluice-dev/sluice/schemas"
)

// plain keeps each file as an object under its own path, for other tools to read. A push first stores what is new in
// packs, as in the packed layout, and commits a state that refers to them: before that nothing has changed for anybody,
// and from then on whoever reads the state has all of the new tree. Only then are the files put under their own paths,
// the packs being what an interrupted push is finished from; and a second commit says that they lie there.
//
//	packs ──► claims ──► state (pending) ──► objects under their paths ──► state (settled) ──► packs go
type plain struct {
	packed
	was   *State
	token string // of was
	puts  int    // how many requests for single files run at once
	force bool   // overwrite whatever is there
}

var _ keeper = (*plain)(nil)

// errOvertaken says that another writer was first, which a push takes as a lost race.
var errOvertaken = errors.New("overtaken")

// plainKey is where a path is kept: the path itself, where that can be a key for every tool and server, else a name
// made from it.
func plainKey(path string) string {
	ok := utf8.ValidString(path) && len(path) <= 900
	for i := 0; ok && i < len(path); i++ {
		ok = path[i] >= ' ' && path[i] != 0x7f && path[i] != '\\'
	}
	if ok {
		return path
	}
	sum := sha256.Sum256([]byte(path))
	return oddPrefix + hex.EncodeToString(sum[:])
}

// send stores what is new. A large file that looks changed is read first when it may well not be: what lies under its
// path is in no pack, so that nothing would keep it from being sent for nothing.
func (p *plain) send(ctx context.Context, x *session, files []*Node, was []*Node) ([]*content, error) {
	results := make([]*content, len(files))
	var todo []int
	var changed, before []*Node
	large := &hashing{}
	for i, n := range files {
		if w := was[i]; w != nil && w.Kind == File && n.Size > packLimit && n.Size == w.Size {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			c, err := hashFile(x.root, n.Path, nil, large)
			if missing(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if now := c.node(n); sameContent(&now, w) {
				results[i] = &c
				continue
			}
		}
		todo, changed, before = append(todo, i), append(changed, n), append(before, was[i])
	}
	sent, err := p.packed.send(ctx, x, changed, before)
	if err != nil {
		return nil, err
	}
	for k, c := range sent {
		results[todo[k]] = c
	}
	return results, nil
}

// aside stores the store's side of each conflict of which both sides are kept, since its path is to be overwritten.
func (p *plain) aside(ctx context.Context, steps []Step) error {
	for i := range steps {
		r := steps[i].Remote
		if steps[i].Do != KeepBoth || r.Kind != File || r.Size == 0 || len(r.At.Objects) > 0 {
			continue
		}
		n := *r
		sums := newSums(&n)
		var match string
		var buf []byte
		for at := int64(0); at < n.Size; at += ChunkSize {
			length := min(ChunkSize, n.Size-at)
			data, info, err := p.shelf.store.Get(ctx, plainKey(n.Path), Range{Offset: at, Length: length, Match: match}, buf[:0])
			if err != nil && !errors.Is(err, schemas.ErrNotFound) && !errors.Is(err, schemas.ErrConflict) {
				return err
			}
			if err != nil || info.Size != n.Size || int64(len(data)) != length {
				return p.taken(ctx, &n)
			}
			sums.add(data)
			object, _, err := p.shelf.add(ctx, data)
			if err != nil {
				return err
			}
			n.At.Objects = append(n.At.Objects, object)
			match, buf = info.Token, data
		}
		if !sums.hold() {
			return p.taken(ctx, &n)
		}
		n.Digest = seal(sums.chunks)
		steps[i].Remote = &n
	}
	return nil
}

// finish says in next what is to be done once it is committed: which files are to be put under their own paths, each
// over the object that is there now, and which objects go.
func (p *plain) finish(ctx context.Context, next *State) error {
	known := make(map[string]Pending, len(p.was.Pending))
	for _, k := range p.was.Pending {
		known[k.Path] = k
	}
	c := &claims{plain: p, known: known, dropped: make(map[string]bool, len(p.was.Dropping))}
	var drop []string
	for _, path := range p.was.Dropping {
		c.dropped[path] = true
		drop = append(drop, path)
	}
	w := 0
	for i := range next.Nodes {
		n := &next.Nodes[i]
		for ; w < len(p.was.Nodes) && comparePaths(p.was.Nodes[w].Path, n.Path) < 0; w++ {
			drop = appendFilePath(drop, &p.was.Nodes[w])
		}
		var was *Node
		if w < len(p.was.Nodes) && p.was.Nodes[w].Path == n.Path {
			was = &p.was.Nodes[w]
			w++
		}
		switch {
		case n.Kind != File && was != nil:
			drop = appendFilePath(drop, was)
		case n.Kind != File:
		case was != nil && was.Kind == File && sameContent(n, was):
			if k, ok := known[n.Path]; ok {
				next.Pending = append(next.Pending, k)
			}
		default:
			c.files, c.before = append(c.files, n), append(c.before, was)
		}
	}
	for ; w < len(p.was.Nodes); w++ {
		drop = appendFilePath(drop, &p.was.Nodes[w])
	}
	if err := c.stake(ctx, next); err != nil {
		return err
	}
	next.addDropping(drop)
	next.compactObjects() // what turned out to lie there already need not be kept
	return nil
}

func appendFilePath(paths []string, n *Node) []string {
	if n.Kind == File {
		paths = append(paths, n.Path)
	}
	return paths
}

// taken is the error for an object that is not what the state says: a lost race, where the state is another one by
// now, and else somebody else's work.
func (p *plain) taken(ctx context.Context, n *Node) error {
	info, err := p.shelf.store.Stat(ctx, stateKey)
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return err
	}
	if info.Token != p.token {
		return errOvertaken
	}
	return schemas.Errorf(schemas.CodeConflict,
		"sync: %q in the store is not what the state says: another tool wrote it; nothing was changed: "+
			"choose the folder's side with on-conflict local", clip(n.Path)).With("path", clip(n.Path))
}

// sumStored is the MD5 of what is stored, which has to be read where the store does not know it.
func sumStored(ctx context.Context, store Store, info *Info) (Checksum, error) {
	if info.MD5 != nil {
		return Checksum(*info.MD5), nil
	}
	return sumObject(ctx, store, info)
}
