package syncer

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/schemas"
)

// claims finds out what lies under the paths that a push is to write, before it commits: what it may overwrite is the
// object that the state, or a push before, has left there, so that another tool's work is not overwritten unnoticed.
type claims struct {
	*plain
	files, before []*Node // the files to be, and what the state had at their paths
	known         map[string]Pending
	dropped       map[string]bool
}

// claimListed is how many objects one page of a listing has, and so from which share of the paths on a listing costs
// fewer requests than asking for each.
const claimListed = 1000

// stake fills in next's pending files. One that turns out to lie there already is not pending.
func (c *claims) stake(ctx context.Context, next *State) error {
	there, listed, err := c.list(ctx)
	if err != nil {
		return err
	}
	over := make([]string, len(c.files))
	settled := make([]bool, len(c.files))
	var at atomic.Int64
	group, within := errgroup.WithContext(ctx)
	for range min(len(c.files), c.puts) {
		group.Go(func() error {
			for within.Err() == nil {
				i := int(at.Add(1)) - 1
				if i >= len(c.files) {
					return nil
				}
				if listed && !there[plainKey(c.files[i].Path)] {
					continue
				}
				var err error
				if over[i], settled[i], err = c.claim(within, c.files[i], c.before[i]); err != nil {
					return err
				}
			}
			return within.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, n := range c.files {
		if settled[i] {
			n.At = Location{}
			continue
		}
		next.Pending = append(next.Pending, Pending{Path: n.Path, Over: over[i]})
	}
	slices.SortFunc(next.Pending, func(a, b Pending) int { return comparePaths(a.Path, b.Path) })
	return nil
}

// list says which of the files' keys there are, where that takes fewer requests than to ask for each.
func (c *claims) list(ctx context.Context) (there map[string]bool, listed bool, err error) {
	if len(c.files) <= 1+len(c.was.Nodes)/claimListed {
		return nil, false, nil
	}
	there = make(map[string]bool, len(c.files))
	for _, n := range c.files {
		there[plainKey(n.Path)] = false
	}
	for info, err := range c.shelf.store.List(ctx, "") {
		if err != nil {
			return nil, false, err
		}
		if _, ours := there[info.Key]; ours {
			there[info.Key] = true
		}
	}
	return there, true, nil
}

// claim is the token of the object that n is to replace, "" when there is none. settled says that it holds n already.
func (c *claims) claim(ctx context.Context, n, was *Node) (over string, settled bool, err error) {
	info, err := c.shelf.store.Stat(ctx, plainKey(n.Path))
	if errors.Is(err, schemas.ErrNotFound) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	known, pending := c.known[n.Path]
	if c.force || c.dropped[n.Path] || pending && known.Over == info.Token {
		return info.Token, false, nil
	}
	sum, err := sumStored(ctx, c.shelf.store, &info)
	switch {
	case err != nil:
		return "", false, err
	case sum == n.MD5 && info.Size == n.Size:
		return "", true, nil
	case was != nil && was.Kind == File && sum == was.MD5:
		return info.Token, false, nil
	}
	return "", false, c.taken(ctx, n)
}

// addDropping notes the paths whose objects go, but for those that are files again.
func (s *State) addDropping(paths []string) {
	slices.SortFunc(paths, comparePaths)
	for _, path := range slices.Compact(paths) {
		if at, ok := s.search(path); !ok || s.Nodes[at].Kind != File {
			s.Dropping = append(s.Dropping, path)
		}
	}
}
