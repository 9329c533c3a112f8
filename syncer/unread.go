package syncer

import (
	"errors"
	"sync"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// ErrPartial means that an operation has done everything except for paths that it could not read, which it lists as skipped.
var ErrPartial = errors.New("all else is done")

// unread collects the files that an upload could not read.
type unread struct {
	mu   sync.Mutex
	errs map[string]error // by path
}

func (u *unread) add(path string, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.errs == nil {
		u.errs = map[string]error{}
	}
	u.errs[path] = err
}

// moveTo has the tree skip the files.
func (u *unread) moveTo(t *worktree.Tree) {
	t.SkipUnreadable(u.errs)
	u.errs = nil
}

// partial returns the error for what the folder has and could not be read. Neither side changes there: what is not known is neither
// new nor deleted.
func (o *operation) partial(t *worktree.Tree) error {
	listed := make(map[string]bool, len(o.report.Skipped))
	for i := range o.report.Skipped {
		listed[o.report.Skipped[i].Path] = true
	}
	var first *worktree.Skipped
	count := 0
	for i := range t.Skipped {
		s := &t.Skipped[i]
		if !s.Unreadable {
			continue
		}
		if !listed[s.Path] {
			o.report.Skipped = append(o.report.Skipped, *s)
		}
		if count++; first == nil {
			first = s
		}
	}
	if first == nil {
		return nil
	}
	return schemas.Errorf(schemas.CodePermissionDenied, "sync: %s could not be read, the first is %q: make it readable, or ignore it, and sync again: %w",
		countPaths(count), state.Clip(first.Path), ErrPartial).With("path", state.Clip(first.Path))
}
