package syncer

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
)

// found is one path that a walk met.
type found struct {
	stat
	path   string
	kind   Kind
	target string
	sparse bool
	hidden bool // an ignored folder, of interest only for what a later pattern takes back
	below  *listing
}

// listing is what one folder holds.
type listing struct{ entries []found }

// Skipped is a path that a sync cannot carry, with the reason.
type Skipped struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// walker lists a tree with a few goroutines, each taking the next folder that was found.
type walker struct {
	root    *os.Root
	ignore  *ignorer
	outside bool // keep symlinks that lead out of the root
	limit   int

	mu      sync.Mutex
	cond    sync.Cond
	todo    []walk
	busy    int
	count   int
	skipped []Skipped
	stale   []string // what an interrupted operation has left in the root
	err     error
}

type walk struct {
	dir string
	out *listing
}

// walkTree lists everything under root, each folder in the order of its names, without following any symlink.
func walkTree(ctx context.Context, root *os.Root, ignore *ignorer, outside bool, limit int) (*walker, *listing, error) {
	w := &walker{root: root, ignore: ignore, outside: outside, limit: limit}
	w.cond.L = &w.mu
	top := &listing{}
	w.todo = []walk{{dir: ".", out: top}}
	var group sync.WaitGroup
	for range min(4, max(2, runtime.GOMAXPROCS(0))) {
		group.Go(func() { w.run(ctx) })
	}
	group.Wait()
	if w.err != nil {
		return nil, nil, w.err
	}
	slices.SortFunc(w.skipped, func(a, b Skipped) int { return comparePaths(a.Path, b.Path) })
	return w, top, nil
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
		w.skipped = append(w.skipped, skipped...)
		w.count += len(next.out.entries)
		if w.count > w.limit && err == nil {
			err = schemas.Errorf(schemas.CodeTooLarge, "folder: more than %d entries", w.limit)
		}
		if err != nil && w.err == nil {
			w.err = err
		}
		for i := len(next.out.entries) - 1; i >= 0; i-- {
			if e := &next.out.entries[i]; e.below != nil {
				w.todo = append(w.todo, walk{e.path, e.below})
			}
		}
		w.cond.Broadcast()
	}
}

// list reads one folder through its own descriptor, so that what it names is what is in that folder, whoever moves
// things about at the same time.
func (w *walker) list(at walk) (skipped []Skipped, err error) {
	dir, err := w.root.OpenFile(at.dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && at.dir != "." {
			return nil, nil // it went away since its parent was listed
		}
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "reading a folder: %w", err)
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "reading %q: %w", at.dir, err)
	}
	slices.Sort(names)
	raw, err := dir.SyscallConn()
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "reading %q: %w", at.dir, err)
	}
	prefix := ""
	if at.dir != "." {
		prefix = at.dir + "/"
	}
	at.out.entries = make([]found, 0, len(names))
	failed := raw.Control(func(fd uintptr) {
		for _, name := range names {
			e := found{path: prefix + name}
			if reserved(e.path) {
				if strings.HasPrefix(name, tempPrefix) {
					w.stale = append(w.stale, name) // only the walk of the root comes here
				}
				continue
			}
			why, ok := w.look(int(fd), name, &e)
			if why != "" {
				skipped = append(skipped, Skipped{e.path, why})
			}
			if ok {
				at.out.entries = append(at.out.entries, e)
			}
		}
	})
	return skipped, failed
}

// look fills e with what name is. It says why it is skipped, where that should be reported, and whether to keep it.
func (w *walker) look(dir int, name string, e *found) (why string, ok bool) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return "", false
		}
		return "cannot be read: " + err.Error(), false
	}
	hit := w.ignore.ignored(e.path)
	kind := st.Mode & unix.S_IFMT
	if hit && (kind != unix.S_IFDIR || w.ignore.prunes()) {
		return "", false
	}
	e.Size, e.Inode, e.Mode = st.Size, st.Ino, uint16(st.Mode&0o777)
	e.Mtime, e.Ctime = statTimes(&st)
	switch kind {
	case unix.S_IFREG:
		e.kind = File
		e.sparse = st.Blocks*512 < st.Size && st.Size >= sparseBlock
		if st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
			why = "its setuid and setgid bits are not kept"
		}
	case unix.S_IFDIR:
		e.kind, e.below, e.Size, e.hidden = Dir, &listing{}, 0, hit
	case unix.S_IFLNK:
		target, err := readlinkAt(dir, name)
		if err != nil {
			return "cannot be read: " + err.Error(), false
		}
		if !w.outside && leadsOut(e.path, target) {
			return "a symlink out of the folder: " + clip(target), false
		}
		e.kind, e.target, e.Mode, e.Size = Symlink, target, 0, 0
	case unix.S_IFSOCK:
		return "a socket", false
	case unix.S_IFIFO:
		return "a fifo", false
	default:
		return "a device", false
	}
	return why, true
}

func readlinkAt(dir int, name string) (string, error) {
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// leadsOut says whether a symlink's target is outside the root, going by the names alone: an absolute one, or one
// with more ".." than there are folders above.
func leadsOut(path, target string) bool {
	if target == "" || target[0] == '/' {
		return true
	}
	depth := 0
	for i := range len(path) {
		if path[i] == '/' {
			depth++
		}
	}
	for start := 0; start <= len(target); {
		end := start
		for end < len(target) && target[end] != '/' {
			end++
		}
		switch target[start:end] {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
		start = end + 1
	}
	return false
}
