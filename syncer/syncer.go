package syncer

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
)

// Config says what to keep in step with what. Root, Store and Remote must be set.
type Config struct {
	// Root is the folder, which must exist.
	Root string
	// Store is where the workspace is kept. Wrap it in [Retry] unless it retries by itself.
	Store Store
	// Remote names the store and the place in it, such as s3://bucket/prefix. A folder that was last synced with
	// another place has nothing in common with this one. It is written to the local state: no secrets in it.
	Remote string
	// Layout is how content is kept when the workspace is stored for the first time; default [Packed]. When it is set
	// and the workspace is there in another layout, that is an error.
	Layout Layout
	// OnConflict settles paths that changed on both sides; default [ConflictFail].
	OnConflict OnConflict
	// Verify reads every local file again, however unchanged it looks.
	Verify bool
	// Ignore has patterns to leave out, beside those of [IgnoreFile].
	Ignore []string
	// OutsideLinks keeps symlinks that lead out of the folder. By default they are skipped and reported.
	OutsideLinks bool
	// SingleWriter says that nobody else writes to this place, which allows a store that cannot do conditional writes.
	SingleWriter bool
	// Limits bound what a state may ask for.
	Limits Limits
	// Uploads and Downloads are how many requests run at once; defaults 8 packed and 64 plain, for both.
	Uploads, Downloads int
	// Retention says which versions are kept; the zero value keeps all.
	Retention Retention
	// StaleAfter is how old the last sync may be before [Status] calls the state stale; default 1 h.
	StaleAfter time.Duration
	// Fence, when set, is asked before the store's state is changed, and before a plain layout's files are: an error of it
	// ends the operation with nothing changed. It is for a writer that may have been replaced by another meanwhile.
	Fence func(ctx context.Context) error
	// Progress, when set, is called as work is done, from several goroutines at once.
	Progress func(Progress)
	// Now is the clock that names versions; default [time.Now].
	Now func() time.Time
}

// Progress is how far a push or a pull is.
type Progress struct {
	Phase             string // "scan", "hash", "upload", "download", "commit"
	Files, FilesTotal int64
	Bytes, BytesTotal int64
}

// Syncer keeps one folder in step with one place in a store. Only one operation at a time runs on a folder, which a
// lock on it sees to between processes as well.
type Syncer struct {
	cfg   Config
	store Store
}

// New checks the configuration. It touches neither the folder nor the store.
func New(cfg Config) (*Syncer, error) {
	switch {
	case cfg.Root == "":
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "sync: no folder given")
	case cfg.Store == nil:
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "sync: no store given")
	case cfg.Remote == "":
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "sync: the store has no name")
	case cfg.Layout != "" && cfg.Layout != Packed && cfg.Layout != Plain:
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "sync: layout %q is neither packed nor plain", cfg.Layout)
	}
	switch cfg.OnConflict {
	case "":
		cfg.OnConflict = ConflictFail
	case ConflictFail, ConflictLocal, ConflictRemote, ConflictBoth:
	default:
		return nil, schemas.Errorf(schemas.CodeInvalidArgument,
			"sync: on conflict %q: use fail, local, remote or both", cfg.OnConflict)
	}
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.StaleAfter <= 0 {
		cfg.StaleAfter = time.Hour
	}
	if cfg.Progress == nil {
		cfg.Progress = func(Progress) {}
	}
	if cfg.Fence == nil {
		cfg.Fence = func(context.Context) error { return nil }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Syncer{cfg: cfg, store: cfg.Store}, nil
}

// Report says what an operation has done.
type Report struct {
	Version    string     `json:"version,omitempty"` // the state's name after it
	Files      int        `json:"files"`             // files in the folder, or in the store after a restore
	Uploaded   int        `json:"uploaded"`          // files sent
	Downloaded int        `json:"downloaded"`        // files fetched
	Deleted    int        `json:"deleted"`           // paths removed: in the store by a push, in the folder by a pull
	BytesSent  int64      `json:"bytes_sent"`        // content bytes
	BytesRead  int64      `json:"bytes_read"`        // content bytes
	Conflicts  []Conflict `json:"conflicts,omitempty"`
	Skipped    []Skipped  `json:"skipped,omitempty"`
	Unsteady   []string   `json:"unsteady,omitempty"` // files that went on changing while they were read
	Notes      []string   `json:"notes,omitempty"`    // what else is worth saying: a state made anew, names that clash
	Changed    bool       `json:"changed"`            // whether anything was done at all
	DurationMS int64      `json:"duration_ms"`
}

// Conflict is a path that changed on both sides since the last sync.
type Conflict struct {
	Path   string `json:"path"`
	Local  string `json:"local"`  // what became of it in the folder: "changed", "deleted", …
	Remote string `json:"remote"` // what became of it in the store
	Kept   string `json:"kept"`   // "local", "remote", "both", or "" for one that was not settled
}

// session is one operation on the folder, which it has locked.
type session struct {
	*Syncer
	root    *os.Root
	dir     *os.File // the root's own descriptor, which the lock is on
	index   *index
	ignore  *ignorer
	probed  bool
	resumed bool // an interrupted pull has left its journal
	indexed bool // the index was there and fits the state file
	began   time.Time
	looked  time.Time // when the last scan began
	name    string    // of this push, in the plain layout
	// committing is set from the moment on at which a state was sent whose fate is not known.
	committing bool
	fetching   bool  // a pull has not got everything yet, and so has not changed the folder
	ahead      *Info // what the store said of its state while the folder was being scanned
	report     *Report
}

// open locks the folder and reads what is known of the last sync.
func (s *Syncer) open() (*session, error) {
	root, err := os.OpenRoot(s.cfg.Root)
	if err != nil {
		code := schemas.CodeInvalidArgument
		if errors.Is(err, fs.ErrNotExist) {
			code = schemas.CodeNotFound
		}
		return nil, schemas.Errorf(code, "sync: %w", err)
	}
	x := &session{Syncer: s, root: root, began: s.cfg.Now(), report: &Report{}}
	if err := x.lock(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	if x.ignore, err = loadIgnore(root, s.cfg.Ignore); err != nil {
		return nil, errors.Join(err, x.close())
	}
	return x, nil
}

// scan walks the folder.
func (x *session) scan(ctx context.Context) (*local, error) {
	x.cfg.Progress(Progress{Phase: "scan"})
	x.looked = time.Now()
	var w *walker
	var top *listing
	group, within := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		w, top, err = walkTree(within, x.root, x.ignore, x.cfg.OutsideLinks, x.cfg.Limits.Entries)
		return err
	})
	if x.index == nil {
		group.Go(x.loadIndex)
		// What the store has is asked for meanwhile. Should that fail, it is asked again when it is needed.
		group.Go(func() error {
			if info, err := x.store.Stat(within, stateKey); err == nil {
				x.ahead = &info
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, name := range w.stale {
		if err := removeTree(x.root, name); err != nil {
			return nil, schemas.Errorf(schemas.CodeInternal, "removing what an interrupted sync left behind: %w", err)
		}
	}
	l := compare(w, top, x.index, x.cfg.Verify)
	if err := x.resume(l); err != nil {
		return nil, err
	}
	x.report.Skipped, x.report.Files = w.skipped, 0
	for _, n := range l.nodes {
		if n.Kind == File {
			x.report.Files++
		}
	}
	return l, nil
}

// leaver says which paths that are not in the folder are not missing from it either, but left out on purpose.
func (x *session) leaver(l *local) func(*Node) bool {
	skipped := make(map[string]bool, len(l.skipped))
	for _, s := range l.skipped {
		skipped[s.Path] = true
	}
	return func(n *Node) bool {
		if x.ignore.ignored(n.Path) {
			return true
		}
		if n.Kind == Symlink && !x.cfg.OutsideLinks && leadsOut(n.Path, n.Target) {
			return true
		}
		if len(skipped) == 0 {
			return false
		}
		for p := n.Path; p != ""; p = parent(p) {
			if skipped[p] {
				return true
			}
		}
		return false
	}
}

// decided plans, hashing the files that a decision hangs on.
func (x *session) decided(ctx context.Context, l *local, remote *State, prefer Decision) ([]Step, error) {
	for {
		steps, contested := plan(x.index.base.Nodes, l.nodes, remote.Nodes, x.cfg.OnConflict, prefer, x.leaver(l))
		if len(contested) == 0 {
			return steps, nil
		}
		if err := l.hash(ctx, x.root, contested, func(int64) {}); err != nil {
			return nil, err
		}
	}
}

// conflicts notes the steps on which the sides disagree, and is an error when one of them is not settled.
func (x *session) conflicts(steps []Step) error {
	x.report.Conflicts = nil
	open := 0
	for i := range steps {
		s := &steps[i]
		if !s.settled && s.Do != Clash {
			continue
		}
		c := Conflict{Path: s.Path(), Local: change(s.Base, s.Local), Remote: change(s.Base, s.Remote)}
		switch s.Do {
		case TakeLocal:
			c.Kept = "local"
		case TakeRemote:
			c.Kept = "remote"
		case KeepBoth:
			c.Kept = "both"
		default:
			open++
		}
		x.report.Conflicts = append(x.report.Conflicts, c)
	}
	if open == 0 {
		return nil
	}
	first := x.report.Conflicts[0]
	for _, c := range x.report.Conflicts {
		if c.Kept == "" {
			first = c
			break
		}
	}
	return schemas.Errorf(schemas.CodeConflict,
		"sync: %d paths changed on both sides, the first is %q (here %s, there %s); nothing was changed: choose a side with on-conflict",
		open, clip(first.Path), first.Local, first.Remote).With("path", clip(first.Path))
}

func change(base, now *Node) string {
	switch {
	case now == nil && base == nil:
		return "absent"
	case now == nil:
		return "deleted"
	case base == nil:
		return "added"
	case same(base, now):
		return "unchanged"
	default:
		return "changed"
	}
}

func (x *session) close() error {
	var err error
	if x.dir != nil {
		err = x.dir.Close()
	}
	return errors.Join(err, x.root.Close())
}

// lock takes the folder for this operation. The lock is on the folder itself, so that it leaves no file behind, and
// goes with the process.
func (x *session) lock() error {
	dir, err := x.root.Open(".")
	if err != nil {
		return schemas.Errorf(schemas.CodeInvalidArgument, "sync: %w", err)
	}
	raw, err := dir.SyscallConn()
	if err == nil {
		if failed := raw.Control(func(fd uintptr) { err = unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB) }); failed != nil {
			err = failed
		}
	}
	if err == nil {
		x.dir = dir
		return nil
	}
	err = errors.Join(err, dir.Close())
	if errors.Is(err, unix.EWOULDBLOCK) {
		return schemas.Errorf(schemas.CodeConflict, "sync: another sync of %s is running", x.cfg.Root)
	}
	return schemas.Errorf(schemas.CodeInternal, "sync: locking %s: %w", x.cfg.Root, err)
}
