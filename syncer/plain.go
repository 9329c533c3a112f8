package syncer

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"sync/atomic"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/schemas"
)

// plain keeps each file as an object under its own path, for other tools to read. An object is replaced only while it
// is the one that the state, or a writer before, has left there, so that two pushes do not overwrite each other's
// files unnoticed. A reader may still meet a mixed tree while a push is on its way: that is the layout's price.
type plain struct {
	store    Store
	parallel int
	was      *State
	force    bool     // overwrite whatever is there
	drop     []string // keys that the next state no longer has
}

var _ keeper = (*plain)(nil)

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

// has is never true: what is under one path cannot stand in for another.
func (p *plain) has(*Node) (Location, bool) { return Location{}, false }

func (p *plain) settle(next *State) {
	next.Objects = nil
	for i := range next.Nodes {
		next.Nodes[i].At = Location{}
	}
}

// send stores the files, each whole, with a condition that no other writer has been there since.
func (p *plain) send(ctx context.Context, x *session, files []*Node, was []*Node) ([]*content, error) {
	if err := p.clear(ctx, files); err != nil {
		return nil, err
	}
	meter := newMeter(x.cfg.Progress, "upload", files)
	results := make([]*content, len(files))
	var next, sent atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range min(len(files), p.parallel) {
		group.Go(func() error {
			scratch := make([]byte, 64<<10)
			large := &hashing{}
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(files) {
					return nil
				}
				if files[i].Size >= int64(len(scratch)) && len(scratch) <= packLimit {
					scratch = make([]byte, packLimit+1)
				}
				c, err := p.sendOne(ctx, x.root, files[i], was[i], scratch, large)
				if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotRegular) {
					continue
				}
				if err != nil {
					return err
				}
				results[i] = c
				sent.Add(c.stat.Size)
				meter.add(c.stat.Size)
			}
			return ctx.Err()
		})
	}
	err := group.Wait()
	x.report.BytesSent += sent.Load()
	return results, err
}

// clear removes objects in whose place a folder is to be. A server that keeps objects as files can have only one of
// the two, and the state still says that they are there; so this comes as late as it can, and before the content.
func (p *plain) clear(ctx context.Context, files []*Node) error {
	var gone []string
	seen := map[string]bool{}
	for _, n := range files {
		for dir := parent(n.Path); dir != "" && !seen[dir]; dir = parent(dir) {
			seen[dir] = true
			if at, ok := p.was.search(dir); ok && p.was.Nodes[at].Kind == File {
				gone = append(gone, plainKey(dir))
			}
		}
		if at, ok := p.was.search(n.Path); ok && p.was.Nodes[at].Kind == Dir {
			for at++; at < len(p.was.Nodes) && within(p.was.Nodes[at].Path, n.Path); at++ {
				if p.was.Nodes[at].Kind == File {
					gone = append(gone, plainKey(p.was.Nodes[at].Path))
				}
			}
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return p.store.Delete(ctx, gone...)
}

func (p *plain) sendOne(ctx context.Context, root *os.Root, n, was *Node, scratch []byte, large *hashing) (*content, error) {
	for try := 1; ; try++ {
		data, c, fits, err := readSmallFile(root, n.Path, scratch)
		if err != nil {
			return nil, err
		}
		if fits {
			sha, sum := [sha256.Size]byte(c.digest), [md5.Size]byte(c.md5)
			body := Content{Reader: bytes.NewReader(data), Size: int64(len(data)), SHA256: &sha, MD5: &sum}
			return &c, p.put(ctx, n, was, &c, body)
		}
		large.chunks = large.chunks[:0]
		if c, err = readFile(root, n.Path, large); err != nil {
			return nil, err
		}
		c.digest = seal(large.chunks)
		f, now, _, err := openLocal(root, n.Path)
		if err != nil {
			return nil, err
		}
		if now == c.stat {
			sum := [md5.Size]byte(c.md5)
			err = p.put(ctx, n, was, &c, Content{Reader: f, Size: c.stat.Size, MD5: &sum})
		}
		after, _, _, statErr := statFile(f)
		err = errors.Join(err, statErr, f.Close())
		if err != nil {
			return nil, joined(err)
		}
		if now == c.stat && after == c.stat {
			return &c, nil
		}
		// What was stored is not what was hashed.
		if try == steadyReads {
			return nil, schemas.Errorf(schemas.CodeConflict, "sync: %q goes on changing while it is being sent", clip(n.Path))
		}
	}
}

// put stores one file. When another object is there than the state says, it may be this very content, from a push
// that was interrupted; anything else is a conflict, unless the caller wants the folder's side.
func (p *plain) put(ctx context.Context, n, was *Node, c *content, body Content) error {
	if now := c.node(n); was != nil && !p.force && sameContent(&now, was) {
		return nil // it looked changed and is not, so that what another push has put there is not this one's business
	}
	key := plainKey(n.Path)
	if p.force {
		_, err := p.store.Put(ctx, key, body, Condition{})
		return err
	}
	cond := Condition{Absent: true}
	if was != nil && was.Kind == File {
		info, sum, err := p.sum(ctx, key)
		switch {
		case errors.Is(err, schemas.ErrNotFound):
		case err != nil:
			return err
		case sum == c.md5 && info.Size == c.stat.Size:
			return nil
		case sum != was.MD5:
			return p.taken(n)
		default:
			cond = Condition{Match: info.Token}
		}
	}
	_, err := p.store.Put(ctx, key, body, cond)
	if !errors.Is(err, schemas.ErrConflict) {
		return err
	}
	if info, sum, err := p.sum(ctx, key); err == nil && sum == c.md5 && info.Size == c.stat.Size {
		return nil
	}
	return p.taken(n)
}

// sum is the MD5 of what is stored, which has to be read where the store does not know it.
func (p *plain) sum(ctx context.Context, key string) (Info, Checksum, error) {
	info, err := p.store.Stat(ctx, key)
	if err != nil {
		return info, Checksum{}, err
	}
	if info.MD5 != nil {
		return info, Checksum(*info.MD5), nil
	}
	sum, err := sumObject(ctx, p.store, &info)
	return info, sum, err
}

func (p *plain) taken(n *Node) error {
	return schemas.Errorf(schemas.CodeConflict,
		"sync: %q in the store is not what the state says: another push is on its way, or one was cut off, or another tool "+
			"wrote it; choose the folder's side with on-conflict local", clip(n.Path)).With("path", clip(n.Path))
}

// finish notes the objects that the next state no longer has. They are removed after it is committed.
func (p *plain) finish(_ context.Context, next *State) error {
	for i := range p.was.Nodes {
		n := &p.was.Nodes[i]
		if n.Kind != File {
			continue
		}
		if at, ok := next.search(n.Path); !ok || next.Nodes[at].Kind != File {
			p.drop = append(p.drop, plainKey(n.Path))
		}
	}
	return nil
}

func (p *plain) committed(ctx context.Context) error {
	if len(p.drop) == 0 {
		return nil
	}
	return p.store.Delete(ctx, p.drop...)
}
