package worktree

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
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
}

// Listing is what a walk found.
type Listing struct {
	Skipped []Skipped // in walk order
	Stale   []string  // temporary names in the root that an interrupted operation left behind

	top   folder
	count int
}

// entry is one path that a walk found.
type entry struct {
	Stat
	path   string
	kind   state.Kind
	target string
	sparse bool
	hidden bool // an ignored folder, listed only for what a later pattern includes again
	below  *folder
}

// folder is the content of one folder.
type folder struct{ entries []entry }

// walker lists a tree with a few goroutines, each taking the next folder found.
type walker struct {
	Options
	root *os.Root

	mu      sync.Mutex
	cond    sync.Cond
	todo    []task
	busy    int
	listing Listing
	err     error
}

type task struct {
	dir string
	out *folder
}

// Walk lists everything under root, each folder in name order, and follows no symlink.
func Walk(ctx context.Context, root *os.Root, o Options) (*Listing, error) {
	w := &walker{root: root, Options: o}
	w.cond.L = &w.mu
	w.todo = []task{{dir: ".", out: &w.listing.top}}
	var group sync.WaitGroup
	for range min(4, max(2, runtime.GOMAXPROCS(0))) {
		group.Go(func() { w.run(ctx) })
	}
	group.Wait()
	if w.err != nil {
		return nil, w.err
	}
	slices.SortFunc(w.listing.Skipped, func(a, b Skipped) int { return state.ComparePaths(a.Path, b.Path) })
	return &w.listing, nil
}

func (w *walker) run(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.todo) == 0 && w.busy > 0 && w.err == nil {
			w.cond.Wait()
		}
		if w.err == nil && ctx.Err() != nil {
			w.err = ctx.Err()
		}
		if w.err != nil || len(w.todo) == 0 {
			w.cond.Broadcast()
			return
		}
		next := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		w.busy++
		w.mu.Unlock()
		skipped, err := w.list(next)
		w.mu.Lock()
		w.busy--
		w.listing.Skipped = append(w.listing.Skipped, skipped...)
		w.listing.count += len(next.out.entries)
		if w.listing.count > w.Limit && err == nil {
			err = schemas.Errorf(schemas.CodeTooLarge, "folder: more than %d entries", w.Limit)
		}
		if err != nil && w.err == nil {
			w.err = err
		}
		for i := len(next.out.entries) - 1; i >= 0; i-- {
			if e := &next.out.entries[i]; e.below != nil {
				w.todo = append(w.todo, task{e.path, e.below})
			}
		}
		w.cond.Broadcast()
	}
}

// list reads one folder through its own descriptor, so that every name is of that folder even while paths are renamed.
func (w *walker) list(at task) (skipped []Skipped, err error) {
	dir, err := w.root.OpenFile(at.dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && at.dir != "." {
			return nil, nil // removed since its parent was listed
		}
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "reading a folder: %w", err)
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "reading %q: %w", at.dir, err)
	}
	slices.Sort(names)
	prefix := ""
	if at.dir != "." {
		prefix = at.dir + "/"
	}
	at.out.entries = make([]entry, 0, len(names))
	for _, name := range names {
		e := entry{path: prefix + name}
		if state.Reserved(e.path) {
			if strings.HasPrefix(name, tempPrefix) {
				w.listing.Stale = append(w.listing.Stale, name) // only the one walk of the root gets here
			}
			continue
		}
		why, ok := w.stat(int(dir.Fd()), name, &e)
		if why != "" {
			skipped = append(skipped, Skipped{e.path, why})
		}
		if ok {
			at.out.entries = append(at.out.entries, e)
		}
	}
	return skipped, nil
}

// stat fills e with what name is. It returns the reason to report where something is skipped, and whether to keep e.
func (w *walker) stat(dir int, name string, e *entry) (why string, ok bool) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return "", false
		}
		return "cannot be read: " + err.Error(), false
	}
	ignored := w.Ignore.Match(e.path)
	kind := st.Mode & unix.S_IFMT
	if ignored && (kind != unix.S_IFDIR || w.Ignore.prunes()) {
		return "", false
	}
	e.Stat = statOf(&st)
	switch kind {
	case unix.S_IFREG:
		e.kind, e.sparse = state.File, isSparse(&st)
		if st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
			why = "its setuid and setgid bits are not kept"
		}
	case unix.S_IFDIR:
		e.kind, e.below, e.Size, e.hidden = state.Dir, &folder{}, 0, ignored
	case unix.S_IFLNK:
		buf := make([]byte, state.MaxPath+1)
		n, err := unix.Readlinkat(dir, name, buf)
		if err != nil {
			return "cannot be read: " + err.Error(), false
		}
		target := string(buf[:n])
		if !w.OutsideLinks && LeadsOutside(e.path, target) {
			return "a symlink out of the folder: " + state.Clip(target), false
		}
		e.kind, e.target, e.Mode, e.Size = state.Symlink, target, 0, 0
	case unix.S_IFSOCK:
		return "a socket", false
	case unix.S_IFIFO:
		return "a fifo", false
	default:
		return "a device", false
	}
	return why, true
}

// LeadsOutside reports whether a symlink's target is outside the root by the names alone: it is absolute, or has more
// ".." than there are folders above.
func LeadsOutside(path, target string) bool {
	if target == "" || target[0] == '/' {
		return true
	}
	depth := strings.Count(path, "/")
	for name := range strings.SplitSeq(target, "/") {
		switch name {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
	}
	return false
}
