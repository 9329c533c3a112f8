package plain

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/parallel"
	"github.com/sluice-dev/sluice/syncer/state"
)

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
	if c.Overwrite || c.dropped[n.Path] || pending && p.Over == info.Token {
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
