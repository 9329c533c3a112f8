package syncer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/removal"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// operation is one push, pull, status or restore of the folder, which it has locked.
type operation struct {
	*Syncer
	root       *os.Root
	own        *os.Root // has what is kept beside the state file: see [Config].OwnDir
	dir        *os.File // the root's descriptor, which holds the lock
	ignore     *worktree.Ignore
	index      *worktree.Index
	indexValid bool              // the index was read and matches the state file
	remoteInfo *objectstore.Info // the state object's, read during the scan
	at         string            // the version to pull, "" for the newest
	restoring  bool              // the user has named what to delete
	replaces   bool              // a damaged state is replaced by this operation
	file       *stateFile
	intents    *intents
	journal    *journal // of this pull or of an interrupted one, nil for none
	began      time.Time
	scanned    time.Time           // when the last scan began
	pushName   string              // see [state.Object].Push
	stored     *packed.ObjectIndex // of the last attempt to push
	pulls      bool
	resumed    *resumption
	uploads    *uploads
	committing bool // a state was sent, and whether it was stored is not known
	fetching   bool // a pull has not fetched everything yet, and so has not changed the folder
	unread     unread
	later      func(n *state.Node) bool // see [plain.Checksums]
	report     *Report
}

// run runs an operation. The report has what its context asks of the server.
func (s *Syncer) run(ctx context.Context, do func(ctx context.Context, o *operation) error) (*Report, error) {
	o, err := s.open()
	if err != nil {
		return &Report{}, err
	}
	var traffic objectstore.Traffic
	ctx = objectstore.WithUploads(objectstore.WithTraffic(ctx, &traffic), o.uploads)
	err = do(ctx, o)
	o.uploads.close()
	err = errors.Join(err, o.close())
	o.report.DurationMS = s.cfg.Now().Sub(o.began).Milliseconds()
	o.report.Traffic = Traffic{traffic.Requests.Load(), traffic.Sent.Load(), traffic.Received.Load()}
	return o.report, err
}

func (s *Syncer) open() (*operation, error) {
	root, err := os.OpenRoot(s.cfg.Root + "/.") // to open a FIFO would wait for its writer: with this, only a folder is opened
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, schemas.Errorf(schemas.CodeNotFound, "sync: there is no folder %s: check its name, or create it: %w", s.cfg.Root, fs.ErrNotExist)
		}
		if path, ok := errors.AsType[*fs.PathError](err); ok {
			err = path.Err
		}
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "sync: folder %s: %w", s.cfg.Root, err)
	}
	if err := s.checkApart(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	o := &operation{Syncer: s, root: root, began: s.cfg.Now(), pushName: state.RandomName(), report: &Report{}}
	if o.own, err = s.openOwn(root); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	o.file = &stateFile{root: root, own: o.own, cfg: &s.cfg}
	o.intents = &intents{file: o.file}
	o.resumed = &resumption{operation: o}
	o.uploads = &uploads{operation: o}
	if o.dir, err = root.Open("."); err != nil {
		return nil, errors.Join(schemas.Errorf(schemas.CodeInvalidArgument, "sync: %w", err), closeOwn(o.own, o.root), root.Close())
	}
	switch err = worktree.TryLock(o.dir); {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = schemas.Errorf(schemas.CodeConflict, "sync: another sync of %s is running: wait for it to end", s.cfg.Root)
	case err != nil:
		err = schemas.Errorf(schemas.CodeInternal, "sync: locking %s: %w", s.cfg.Root, err)
	default:
		if err = o.tie(); err == nil {
			o.ignore, err = worktree.LoadIgnore(root, s.cfg.Ignore, s.cfg.Include)
		}
	}
	if err != nil {
		return nil, errors.Join(err, o.close())
	}
	return o, nil
}

func (o *operation) close() error {
	return errors.Join(worktree.Unlock(o.dir), o.dir.Close(), closeOwn(o.own, o.root), o.root.Close())
}

// note adds a warning to the report, once.
func (o *operation) note(text string) {
	if !slices.Contains(o.report.Notes, text) {
		o.report.Notes = append(o.report.Notes, text)
	}
}

// scan walks the folder. Meanwhile it reads the index and asks for the store's state.
func (o *operation) scan(ctx context.Context) (*worktree.Tree, error) {
	o.cfg.Progress(Progress{Phase: "scan"})
	o.scanned = time.Now()
	var found *worktree.Listing
	group, within := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		found, err = worktree.Walk(within, o.root,
			worktree.Options{Ignore: o.ignore, OutsideLinks: o.cfg.OutsideLinks, Limit: o.cfg.Limits.Entries})
		return err
	})
	if o.index == nil {
		group.Go(o.loadIndex)
		group.Go(func() error {
			// Without an index the state has to be read anyway, and should this fail, it is read when it is needed.
			if _, err := o.own.Lstat(indexName); err == nil {
				if info, err := o.cfg.Store.Stat(within, state.ReservedName); err == nil {
					o.remoteInfo = &info
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if o.journal != nil {
		if err := o.journal.keepDone(o.root, o.own); err != nil {
			return nil, err
		}
	}
	for _, name := range found.Stale {
		if o.pulls && o.resumed.leftovers.Keep(o.root, name) == nil {
			continue
		}
		if err := removal.All(o.root, name); err != nil {
			return nil, schemas.Errorf(schemas.CodeInternal, "sync: removing %s of an interrupted sync: %w", name, err)
		}
	}
	t := found.Compare(o.index.Seen, o.cfg.Verify)
	if err := (recovery{o}).recover(t); err != nil {
		return nil, err
	}
	o.report.Skipped, o.report.Files = t.Skipped, 0
	for _, n := range t.Nodes {
		if n.Kind == state.File {
			o.report.Files++
		}
	}
	return t, nil
}

// leave returns the test for paths that are not in the tree because they were left out, and so do not count as deleted.
func (o *operation) leave(ctx context.Context, t *worktree.Tree) func(*state.Node) bool {
	skipped := make(map[string]bool, len(t.Skipped))
	for _, s := range t.Skipped {
		skipped[s.Path] = !s.Kept
	}
	return func(n *state.Node) bool {
		if o.ignore.Match(ctx, n.Path) {
			return true
		}
		if o.leadsOutside(n) {
			return true
		}
		for p := n.Path; p != ""; p = state.Parent(p) {
			if skipped[p] {
				return true
			}
		}
		return false
	}
}

// plan makes the plan, and hashes the files on which a decision depends.
func (o *operation) plan(ctx context.Context, t *worktree.Tree, remote *state.State, prefer plan.Decision) ([]plan.Step, error) {
	for {
		steps, contested := plan.Make(o.index.Base.Nodes, t.Nodes, remote.Nodes, o.cfg.OnConflict, prefer, o.leave(ctx, t))
		if err := ctx.Err(); err != nil {
			return nil, err // what leave decides then is void
		}
		if len(contested) == 0 {
			o.reportLinks(ctx, t, steps)
			return steps, nil
		}
		if err := t.Hash(ctx, o.root, contested); err != nil {
			return nil, err
		}
	}
}

func (o *operation) leadsOutside(n *state.Node) bool {
	return n.Kind == state.Symlink && !o.cfg.OutsideLinks && state.LeadsOutside(n.Path, n.Target)
}

// reportLinks reports the store's symlinks that lead out of the folder, beside those in the folder.
func (o *operation) reportLinks(ctx context.Context, t *worktree.Tree, steps []plan.Step) {
	o.report.Skipped = slices.Clip(t.Skipped)
	for i := range steps {
		r := steps[i].Remote
		if steps[i].Do != plan.Leave || r == nil || !o.leadsOutside(r) || o.ignore.Match(ctx, r.Path) ||
			slices.ContainsFunc(t.Skipped, func(s worktree.Skipped) bool { return s.Path == r.Path }) {
			continue
		}
		o.report.Skipped = append(o.report.Skipped, worktree.Skipped{Path: r.Path, Reason: worktree.OutsideLink(r.Target)})
	}
}

// reportConflicts reports the steps on which the sides disagree. It returns a conflict error when one is not settled.
func (o *operation) reportConflicts(steps []plan.Step) error {
	o.report.Conflicts = nil
	var first *Conflict
	open := 0
	for i := range steps {
		s := &steps[i]
		if !s.Settled && s.Do != plan.Conflict {
			continue
		}
		c := Conflict{Path: s.Path(), Local: change(s.Base, s.Local), Remote: change(s.Base, s.Remote)}
		switch s.Do {
		case plan.TakeLocal:
			c.Kept = "local"
		case plan.TakeRemote:
			c.Kept = "remote"
		case plan.KeepBoth:
			c.Kept = "both"
		default:
			if open++; first == nil {
				first = &c
			}
		}
		o.report.Conflicts = append(o.report.Conflicts, c)
	}
	if open == 0 {
		return nil
	}
	return schemas.Errorf(schemas.CodeConflict,
		"sync: %s changed on both sides, the first is %q (local %s, remote %s); nothing was changed: "+
			"choose a side with --on-conflict local, remote or both, or on_conflict in a template",
		countPaths(open), state.Clip(first.Path), first.Local, first.Remote).With("path", state.Clip(first.Path))
}

func countPaths(n int) string {
	if n == 1 {
		return "1 path"
	}
	return fmt.Sprint(n, " paths")
}

func change(base, now *state.Node) string {
	switch {
	case now == nil && base == nil:
		return "absent"
	case now == nil:
		return "deleted"
	case base == nil:
		return "added"
	case state.Same(base, now):
		return "unchanged"
	default:
		return "changed"
	}
}
