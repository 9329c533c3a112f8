package worktree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/parallel"
	"github.com/sluice-dev/sluice/syncer/state"
)

// Options select what a walk lists.
type Options struct {
	Ignore       *Ignore
	OutsideLinks bool // list symlinks that lead out of the root
	Limit        int  // the most entries; more are refused with too_large
}

// Skipped is a path that a sync cannot carry, with the reason.
type Skipped struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
	// Unreadable is set where the path may well be one to sync: what could not be read is unknown, and neither new nor deleted.
	Unreadable bool `json:"unreadable,omitempty"`
	Kept       bool `json:"-"` // all but what the reason names is synced
}

func unreadable(path string, err error) Skipped {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next // the path is known
	}
	return Skipped{Path: path, Reason: "cannot be read: " + err.Error(), Unreadable: true}
}

// OutsideLink returns the reason to skip a symlink that leads out of the root.
func OutsideLink(target string) string {
	return fmt.Sprintf("a symlink out of the folder: %q", state.Clip(target))
}

// Listing is what a walk found.
type Listing struct {
	Skipped []Skipped // in walk order
	Stale   []string  // temporary names in the root that an interrupted operation left behind

	top   folder
	count int
}

type entry struct {
	Stat
	path   string
	kind   state.Kind
	target string
	sparse bool
	hidden bool // an ignored folder, listed only for what a later pattern includes again
	below  *folder
}

type folder struct {
	path    string // "." for the root
	entries []entry
	memory  bool // its file system is in memory: see inMemory
}

// walker lists a tree.
type walker struct {
	Options
	root *os.Root

	mu      sync.Mutex
	listing Listing
}

// Walk lists everything under root, each folder in name order, and follows no symlink. It lists one level of folders after another,
// each with a few goroutines.
func Walk(ctx context.Context, root *os.Root, o Options) (*Listing, error) {
	w := &walker{root: root, Options: o}
	w.listing.top.path = "."
	for level := []*folder{&w.listing.top}; len(level) > 0; level = below(level) {
		err := parallel.Run(ctx, min(4, max(2, runtime.GOMAXPROCS(0))), len(level), func(ctx context.Context, indexes iter.Seq[int]) error {
			for i := range indexes {
				if err := w.walk(ctx, level[i]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(w.listing.Skipped, func(a, b Skipped) int { return state.ComparePaths(a.Path, b.Path) })
	return &w.listing, nil
}

// below returns the folders in those of a level.
func below(level []*folder) (next []*folder) {
	for _, f := range level {
		for i := range f.entries {
			if f.entries[i].below != nil {
				next = append(next, f.entries[i].below)
			}
		}
	}
	return next
}

// walk lists a folder and counts what it has.
func (w *walker) walk(ctx context.Context, f *folder) error {
	skipped, err := w.list(ctx, f.path, f)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listing.Skipped = append(w.listing.Skipped, skipped...)
	if w.listing.count += len(f.entries); w.listing.count > w.Limit {
		return w.tooMany()
	}
	return nil
}

func (w *walker) tooMany() error {
	return schemas.Errorf(schemas.CodeTooLarge, "folder: more than %d entries", w.Limit)
}

// namesAtOnce is how many names are read of a folder before their number is checked: its writer may be hostile.
const namesAtOnce = 4096

// names lists a folder in name order, as far as the limit allows.
func (w *walker) names(ctx context.Context, dir *os.File) (names []string, err error) {
	for {
		some, err := dir.Readdirnames(namesAtOnce)
		names = append(names, some...)
		switch {
		case errors.Is(err, io.EOF):
			slices.Sort(names)
			return names, nil
		case err == nil && len(names) > w.Limit+namesAtOnce: // ignored names count here too
			return nil, w.tooMany()
		case err == nil:
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
	}
}

// list reads one folder through its own descriptor, so that every name is of that folder even while paths are renamed.
func (w *walker) list(ctx context.Context, at string, out *folder) (skipped []Skipped, err error) {
	dir, err := w.root.OpenFile(at, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && at != "." {
			return nil, nil // removed since its parent was listed
		}
		return w.unlisted(at, schemas.Errorf(schemas.CodeInvalidArgument, "reading a folder: %w", readError(err)))
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	names, err := w.names(ctx, dir)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, schemas.ErrTooLarge):
		return nil, err
	case err != nil:
		return w.unlisted(at, schemas.Errorf(schemas.CodeInternal, "reading %q: %w", at, readError(err)))
	}
	out.memory = inMemory(dir)
	prefix := ""
	if at != "." {
		prefix = at + "/"
	}
	out.entries = make([]entry, 0, len(names))
	for _, name := range names {
		e := entry{path: prefix + name}
		if state.Reserved(e.path) {
			switch {
			case strings.HasPrefix(name, tempPrefix):
				w.listing.Stale = append(w.listing.Stale, name) // only the one walk of the root gets here
			case !strings.HasPrefix(name, state.ReservedName):
				skipped = append(skipped, Skipped{Path: e.path, Reason: "its name is one of Sluice's own on some systems"})
			}
			continue
		}
		why, ok, err := w.stat(ctx, int(dir.Fd()), name, &e)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && !IsGone(err):
			skipped = append(skipped, unreadable(e.path, err))
		case why != "":
			skipped = append(skipped, Skipped{Path: e.path, Reason: why, Kept: ok})
		}
		if ok {
			out.entries = append(out.entries, e)
		}
	}
	return skipped, nil
}

// unlisted skips a folder that cannot be read. The root must be readable.
func (w *walker) unlisted(at string, err error) ([]Skipped, error) {
	if u, ok := errors.AsType[*UnreadableError](err); ok && at != "." {
		return []Skipped{unreadable(at, u)}, nil
	}
	return nil, err
}

// stat fills e with what name is. It returns the reason to report where something is skipped, and whether to keep e.
func (w *walker) stat(ctx context.Context, dir int, name string, e *entry) (why string, ok bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return "", false, err
	}
	ignored := w.Ignore.Match(ctx, e.path)
	kind := st.Mode & unix.S_IFMT
	if ignored && (kind != unix.S_IFDIR || w.Ignore.prunes()) {
		return "", false, nil
	}
	e.Stat = statOf(&st)
	switch kind {
	case unix.S_IFREG:
		e.kind, e.sparse = state.File, isSparse(&st)
		if st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
			why = "its setuid and setgid bits are not kept"
		}
	case unix.S_IFDIR:
		e.kind, e.below, e.Size, e.hidden = state.Dir, &folder{path: e.path}, 0, ignored
	case unix.S_IFLNK:
		buf := make([]byte, state.MaxPath+1)
		n, err := unix.Readlinkat(dir, name, buf)
		if err != nil {
			return "", false, err
		}
		target := string(buf[:n])
		if !w.OutsideLinks && state.LeadsOutside(e.path, target) {
			return OutsideLink(target), false, nil
		}
		e.kind, e.target, e.Mode, e.Size = state.Symlink, target, 0, 0
	case unix.S_IFSOCK:
		return "a socket", false, nil
	case unix.S_IFIFO:
		return "a fifo", false, nil
	default:
		return "a device", false, nil
	}
	return why, true, nil
}
