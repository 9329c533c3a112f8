package syncer

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/sluice-dev/sluice/schemas"
)

// settleRounds is how often files that could not be put under their own paths are tried again, beside what the store
// itself retries. By then the push has been committed, so that persistence is worth more than a quick answer.
const settleRounds = 8

// settling puts the files of a committed state under their own paths.
type settling struct {
	*session
	s     *State
	l     *local
	force bool
	meter *meter

	mu      sync.Mutex
	foreign int   // files in whose place somebody else has put another
	last    error // why a file is still pending
}

// settle finishes a push that has been committed in the plain layout, this one or an earlier one that was cut off, and
// gives the state that is there after it. What cannot be done is noted and left to the next push: the new tree is
// stored whole, and whoever reads the state has it.
func (x *session) settle(ctx context.Context, l *local, s *State, token string) (*State, string) {
	if s.settled() {
		return s, token
	}
	q := &settling{session: x, s: s, l: l, force: x.cfg.OnConflict == ConflictLocal}
	left, err := q.run(ctx, token)
	if err != nil {
		if info, gone := x.store.Stat(ctx, stateKey); gone == nil && info.Token != token {
			return s, "" // another writer came after it, and goes on with it
		}
		x.note(fmt.Sprintf("version %s is stored, but %d of its files do not lie under their own paths for other tools yet, "+
			"which the next push sees to: %v", s.ID, len(left), err))
	}
	if len(left) == len(s.Pending) && err != nil {
		return s, token
	}
	next := *s
	next.Nodes, next.Objects = slices.Clone(s.Nodes), s.Objects
	next.Pending, next.Dropping = left, nil
	still := make(map[string]bool, len(left))
	for _, p := range left {
		still[p.Path] = true
	}
	for _, p := range s.Pending {
		if at, ok := next.search(p.Path); ok && !still[p.Path] {
			next.Nodes[at].At = Location{}
		}
	}
	next.compactObjects()
	now, done, err := x.commit(context.WithoutCancel(ctx), &snapshot{state: s, token: token}, next.Encode())
	switch {
	case err != nil:
		x.note("the files lie under their own paths, but the state could not be told so, which the next push sees to: " + err.Error())
		return s, token
	case !done: // another writer was first, and has taken over what was left to do
		return &next, ""
	}
	x.discard(ctx, s.Objects, next.Objects)
	return &next, now
}

// discard removes the packs that the state has no use for any more.
func (x *session) discard(ctx context.Context, had, has []Object) {
	kept := make(map[string]bool, len(has))
	for i := range has {
		kept[has[i].key()] = true
	}
	var keys []string
	for i := range had {
		if key := had[i].key(); !kept[key] && had[i].Push != "" {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTime)
	defer cancel()
	if err := x.store.Delete(ctx, keys...); err != nil {
		x.note(fmt.Sprintf("%d packs that are no longer needed stay until old ones are collected: %v", len(keys), err))
	}
}

// discardTime is how long an operation that is through, or has failed, goes on cleaning up at most.
const discardTime = 30 * time.Second

func (q *settling) run(ctx context.Context, token string) (left []Pending, err error) {
	if err := q.drop(ctx, token); err != nil {
		return q.s.Pending, err
	}
	left = q.s.Pending
	files := make([]*Node, 0, len(left))
	for _, p := range left {
		at, _ := q.s.search(p.Path)
		files = append(files, &q.s.Nodes[at])
	}
	q.meter = newMeter(q.cfg.Progress, "publish", files)
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))
	for range settleRounds {
		q.last, q.foreign = nil, 0
		left = q.round(ctx, left)
		if len(left) == q.foreign || ctx.Err() != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait.NextBackOff()):
		}
	}
	if len(left) > 0 {
		return left, firstError(ctx.Err(), q.last)
	}
	return nil, nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// drop removes the objects of paths that are no longer files. It comes before anything is put, since a server that
// keeps objects as files cannot have both a and a/b; and not when another writer has come, for whom one of the paths
// may be a file again.
func (q *settling) drop(ctx context.Context, token string) error {
	if len(q.s.Dropping) == 0 {
		return nil
	}
	info, err := q.store.Stat(ctx, stateKey)
	if err != nil {
		return err
	}
	if info.Token != token {
		return errOvertaken
	}
	keys := make([]string, len(q.s.Dropping))
	for i, p := range q.s.Dropping {
		keys[i] = plainKey(p)
	}
	return q.store.Delete(ctx, keys...)
}

// round tries every file once, and gives those that are still pending.
func (q *settling) round(ctx context.Context, todo []Pending) (left []Pending) {
	var next atomic.Int64
	failed := make([]bool, len(todo))
	var group sync.WaitGroup
	for range min(len(todo), q.parallel(q.cfg.Uploads, 64)) {
		group.Go(func() {
			var scratch []byte
			for {
				i := int(next.Add(1)) - 1
				if i >= len(todo) {
					return
				}
				at, _ := q.s.search(todo[i].Path)
				n := &q.s.Nodes[at]
				var err error
				if scratch, err = q.put(ctx, n, todo[i].Over, scratch); err != nil {
					failed[i] = true
					q.failed(err)
					continue
				}
				q.meter.add(1, n.Size)
			}
		})
	}
	group.Wait()
	for i := range todo {
		if failed[i] {
			left = append(left, todo[i])
		}
	}
	return left
}

var errForeign = errors.New("another tool has written there meanwhile; choose the folder's side with on-conflict local")

func (q *settling) failed(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last = err
	if errors.Is(err, errForeign) {
		q.foreign++
	}
}

// put lays one file down, over the object that was claimed. The content comes from the folder, where it still has it,
// and else from the packs.
func (q *settling) put(ctx context.Context, n *Node, over string, scratch []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return scratch, err
	}
	key, cond := plainKey(n.Path), Condition{Match: over, Absent: over == ""}
	body, steady, scratch := q.local(ctx, n, scratch)
	token, err := q.store.Put(ctx, key, body, cond)
	if !steady() && err == nil {
		body = q.packs(ctx, n)
		_, err = q.store.Put(ctx, key, body, Condition{Match: token})
	}
	for range 3 {
		if !errors.Is(err, schemas.ErrConflict) && !errors.Is(err, schemas.ErrNotFound) {
			return scratch, err
		}
		info, statErr := q.store.Stat(ctx, key)
		switch {
		case errors.Is(statErr, schemas.ErrNotFound):
			cond = Condition{Absent: true}
		case statErr != nil:
			return scratch, statErr
		default:
			sum, err := sumStored(ctx, q.store, &info)
			if err != nil {
				return scratch, err
			}
			if sum == n.MD5 && info.Size == n.Size {
				return scratch, nil
			}
			if !q.force {
				return scratch, fmt.Errorf("%q: %w", clip(n.Path), errForeign)
			}
			cond = Condition{Match: info.Token}
		}
		_, err = q.store.Put(ctx, key, q.packs(ctx, n), cond)
	}
	return scratch, err
}

// local is a file's content from the folder, or from the packs when the folder has another by now. steady is to be
// asked when it has been sent, and says whether it stayed the same.
func (q *settling) local(ctx context.Context, n *Node, scratch []byte) (body Content, steady func() bool, _ []byte) {
	always := func() bool { return true }
	fallback := func() (Content, func() bool, []byte) { return q.packs(ctx, n), always, scratch }
	sum := [md5.Size]byte(n.MD5)
	if n.Size == 0 {
		return Content{Reader: bytes.NewReader(nil), MD5: &sum}, always, scratch
	}
	at, ok := slices.BinarySearchFunc(q.l.nodes, n.Path, func(l *Node, p string) int { return comparePaths(l.Path, p) })
	if !ok || !q.l.nodes[at].Hashed || !sameContent(q.l.nodes[at], n) {
		return fallback()
	}
	if n.Size <= packLimit {
		if int64(len(scratch)) <= n.Size {
			scratch = make([]byte, min(packLimit+1, 2*n.Size+1))
		}
		data, c, fits, err := readSmallFile(q.root, n.Path, scratch)
		if err != nil || !fits || c.digest != n.Digest {
			return fallback()
		}
		sha := [sha256.Size]byte(c.digest)
		return Content{Reader: bytes.NewReader(data), Size: n.Size, SHA256: &sha, MD5: &sum}, always, scratch
	}
	f, st, _, err := openLocal(q.root, n.Path)
	if err != nil {
		return fallback()
	}
	if st != q.l.stats[at] {
		_ = f.Close() // it was only looked at
		return fallback()
	}
	return Content{Reader: f, Size: n.Size, MD5: &sum}, func() bool {
		after, _, _, err := statFile(f)
		return errors.Join(err, f.Close()) == nil && after == st
	}, scratch
}

// packs is a file's content as it is stored.
func (q *settling) packs(ctx context.Context, n *Node) Content {
	sum := [md5.Size]byte(n.MD5)
	return Content{Reader: &stored{ctx: ctx, store: q.store, s: q.s, n: n}, Size: n.Size, MD5: &sum}
}
