package plain

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"os"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/parallel"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// publishRounds is how often files that could not be written are tried again, beside the store's own retries. The push has
// been committed by then, so persistence is worth more than a quick answer.
const publishRounds = 8

// Publisher writes the pending files of a committed state under their own paths.
type Publisher struct {
	Store     objectstore.Store
	Root      *os.Root
	Tree      *worktree.Tree
	State     *state.State
	Token     string // of the state
	Uploads   int    // files at once; 0 is 64
	Overwrite bool   // replace whatever is under a path
	Send      objectstore.Sending
	Meter     packed.Meter
	// Written receives the token of each file's object, from several goroutines at once.
	Written func(n *state.Node, token string)

	done func(files, bytes int64)
}

// Run deletes the objects that the state drops, and writes its pending files. It returns what is still pending, with the
// last error.
func (p *Publisher) Run(ctx context.Context) (left []state.Pending, err error) {
	left = p.State.Pending
	if err := p.drop(ctx); err != nil {
		return left, err
	}
	files := make([]*state.Node, 0, len(left))
	for i := range left {
		files = append(files, p.node(&left[i]))
	}
	p.done = p.Meter("publish", files)
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))
	for range publishRounds {
		var foreign int
		left, foreign, err = p.round(ctx, left)
		if len(left) == foreign || ctx.Err() != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait.NextBackOff()):
		}
	}
	if len(left) > 0 {
		return left, cmp.Or(ctx.Err(), err)
	}
	return nil, nil
}

func (p *Publisher) node(f *state.Pending) *state.Node {
	at, _ := p.State.Search(f.Path)
	return &p.State.Nodes[at]
}

// drop deletes the objects of paths that are no longer files. It comes before any write, since a server that keeps objects
// as files cannot have both a and a/b. It does nothing when another writer has replaced the state, in which one of the
// paths may be a file again.
func (p *Publisher) drop(ctx context.Context) error {
	if len(p.State.Dropping) == 0 {
		return nil
	}
	info, err := p.Store.Stat(ctx, state.ReservedName)
	if err != nil {
		return err
	}
	if info.Token != p.Token {
		return ErrOvertaken
	}
	keys := make([]string, len(p.State.Dropping))
	for i, path := range p.State.Dropping {
		keys[i] = Key(path)
	}
	return p.Store.Delete(ctx, keys...)
}

// round tries every file once. It returns those that are still pending, how many of them another tool has replaced, and the
// last error.
func (p *Publisher) round(ctx context.Context, todo []state.Pending) (left []state.Pending, foreign int, last error) {
	errs := make([]error, len(todo))
	put := func(_ context.Context, indexes iter.Seq[int]) error {
		in := worktree.NewFolders(p.Root)
		var scratch []byte
		for i := range indexes {
			n := p.node(&todo[i])
			if scratch, errs[i] = p.put(ctx, in, n, todo[i].Over, scratch); errs[i] == nil {
				p.done(1, n.Size)
			}
		}
		return in.Close()
	}
	// Once ctx ends each put fails at once, so that every file that is not written is counted.
	_ = parallel.Run(context.WithoutCancel(ctx), cmp.Or(p.Uploads, 64), len(todo), put)
	for i, err := range errs {
		if err == nil {
			continue
		}
		left, last = append(left, todo[i]), err
		if errors.Is(err, errForeign) {
			foreign++
		}
	}
	return left, foreign, last
}

var errForeign = errors.New("another tool has written there; choose the folder's side with --on-conflict local")

// put writes one file over the object found before the commit. The content comes from the folder where it is still the
// same there, and else from the packs.
func (p *Publisher) put(ctx context.Context, in *worktree.Folders, n *state.Node, over string, scratch []byte) (_ []byte, err error) {
	if err := ctx.Err(); err != nil {
		return scratch, err
	}
	key, cond := Key(n.Path), objectstore.Condition{Match: over, Absent: over == ""}
	body, steady, scratch := p.fromFolder(ctx, in, n, scratch)
	body.From = p.objects(n)
	token, err := p.Store.Put(ctx, key, body, cond)
	if !steady() && err == nil {
		token, err = p.Store.Put(ctx, key, p.fromPacks(ctx, n), objectstore.Condition{Match: token})
	}
	defer func() {
		if err == nil {
			p.Written(n, token)
		}
	}()
	for range 3 {
		if !errors.Is(err, schemas.ErrConflict) && !errors.Is(err, schemas.ErrNotFound) {
			return scratch, err
		}
		info, statErr := p.Store.Stat(ctx, key)
		switch {
		case errors.Is(statErr, schemas.ErrNotFound):
			cond = objectstore.Condition{Absent: true}
		case statErr != nil:
			return scratch, statErr
		default:
			sum, err := checksum(ctx, p.Store, &info)
			if err != nil {
				return scratch, err
			}
			if sum == n.MD5 && info.Size == n.Size {
				token = info.Token
				return scratch, nil
			}
			if !p.Overwrite {
				return scratch, fmt.Errorf("%q: %w", state.Clip(n.Path), errForeign)
			}
			cond = objectstore.Condition{Match: info.Token}
		}
		token, err = p.Store.Put(ctx, key, p.fromPacks(ctx, n), cond)
	}
	return scratch, err
}

// fromFolder returns a file's content from the folder, or from the packs when the folder has other content. The caller
// calls steady after sending: it reports whether the file stayed the same.
func (p *Publisher) fromFolder(ctx context.Context, in *worktree.Folders, n *state.Node, scratch []byte) (
	body objectstore.Content, steady func() bool, _ []byte) {
	always := func() bool { return true }
	fallback := func() (objectstore.Content, func() bool, []byte) { return p.fromPacks(ctx, n), always, scratch }
	sum := [md5.Size]byte(n.MD5)
	if n.Size == 0 {
		return objectstore.Content{Reader: bytes.NewReader(nil), MD5: &sum}, always, scratch
	}
	at, ok := p.Tree.Search(n.Path)
	if !ok || !p.Tree.Nodes[at].Hashed || !state.SameContent(p.Tree.Nodes[at], n) {
		return fallback()
	}
	if n.Size <= worktree.SmallFile {
		if int64(len(scratch)) <= n.Size {
			scratch = make([]byte, min(worktree.SmallFile+1, 2*n.Size+1))
		}
		data, c, fits, err := worktree.ReadSmall(in, n.Path, scratch)
		if err != nil || !fits || c.Digest != n.Digest {
			return fallback()
		}
		sha := [sha256.Size]byte(c.Digest)
		return objectstore.Content{Reader: bytes.NewReader(data), Size: n.Size, SHA256: &sha, MD5: &sum, Send: p.Send}, always, scratch
	}
	f, st, _, err := worktree.Open(p.Root, n.Path)
	if err != nil {
		return fallback()
	}
	if st != p.Tree.Stats[at] {
		_ = f.Close() // nothing was read
		return fallback()
	}
	return objectstore.Content{Reader: f, Size: n.Size, MD5: &sum, Send: p.Send}, func() bool {
		after, err := worktree.StatFile(f)
		return errors.Join(err, f.Close()) == nil && after == st
	}, scratch
}

// fromPacks returns a file's content as it is stored.
func (p *Publisher) fromPacks(ctx context.Context, n *state.Node) objectstore.Content {
	sum := [md5.Size]byte(n.MD5)
	return objectstore.Content{Reader: packed.NewReader(ctx, p.Store, p.State, n), Size: n.Size, MD5: &sum, Send: p.Send, Slow: true,
		From: p.objects(n)}
}

// objects returns the objects that a large file consists of, in which it was stored before the commit.
func (p *Publisher) objects(n *state.Node) (from []objectstore.Info) {
	if len(n.At.Objects) < 2 {
		return nil
	}
	for _, o := range n.At.Objects {
		object := &p.State.Objects[o]
		from = append(from, objectstore.Info{Key: object.Key(), Size: object.Size})
	}
	return from
}
