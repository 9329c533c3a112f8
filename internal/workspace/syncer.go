package workspace

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
)

// Config configures a Syncer.
type Config struct {
	// Fence reports whether this worker still owns a session. It is called right before the store is changed. Errors: lost.
	// Default: the worker always owns it.
	Fence func(ctx context.Context, c schemas.Conversation) error
	// Template returns a template by name, to find the workspaces of other threads. Default: only the template of the session itself.
	Template func(name string) (*schemas.Template, error)
	// Concurrency is how many pulls and pushes run at the same time; the others wait. Default 4: each sends up to 8 requests at a
	// time and reads the folder with every CPU.
	Concurrency int
}

// Syncer pulls and pushes workspaces. Its methods may be called at the same time.
type Syncer struct {
	cfg       Config
	slots     chan struct{}
	locations Locations

	mu      sync.Mutex
	folders map[string]*folderLock
}

var _ hooks.Workspace = (*Syncer)(nil)

// folderLock admits one operation at a time to a folder.
type folderLock struct {
	free  chan struct{}
	users int // holders and waiters
}

// New returns a Syncer.
func New(cfg Config) *Syncer {
	if cfg.Concurrency <= 0 {
		cfg.Concurrency = 4
	}
	if cfg.Fence == nil {
		cfg.Fence = func(context.Context, schemas.Conversation) error { return nil }
	}
	return &Syncer{cfg: cfg, slots: make(chan struct{}, cfg.Concurrency), folders: make(map[string]*folderLock)}
}

// Pull brings the newest stored version into the workspace, owned by the sandbox's user. Where the thread has none, it is that of the
// thread with which the session's workspace begins. Errors: not_found when that one has none either.
func (s *Syncer) Pull(ctx context.Context, call *hooks.Call) (*schemas.SyncReport, error) {
	t, from := call.Template, call.Conversation.From
	own := place{t, call.Conversation.Thread, ""}
	if from == "" {
		return s.pull(ctx, call, own)
	}
	if t.Sync != nil && (t.Sync.Init == nil || *t.Sync.Init) {
		switch stored, err := s.stored(ctx, call, own); {
		case err != nil:
			return nil, err
		case stored:
			return s.pull(ctx, call, own)
		}
	}
	source := place{t, from, plan.ConflictLocal} // what changed here since stays
	if t.Workspace.ReadOnly() {
		source.onConflict = plan.ConflictRemote
	}
	if name := t.Workspace.Template; name != "" {
		if s.cfg.Template == nil {
			return nil, schemas.Errorf(schemas.CodeUnavailable, "this worker finds no workspaces of template %s", name)
		}
		var err error
		if source.template, err = s.cfg.Template(name); err != nil {
			return nil, err
		}
	}
	report, err := s.pull(ctx, call, source)
	if err == nil && report.Version == "" && report.Files == 0 {
		err = schemas.Errorf(schemas.CodeNotFound, "thread %s has no stored workspace at %s: its push must have succeeded before a workspace begins with it", from, report.Location)
	}
	return report, err
}

// place is where a thread's workspace is stored.
type place struct {
	template   *schemas.Template
	thread     string
	onConflict plan.OnConflict // the template's where it is empty
}

func (s *Syncer) pull(ctx context.Context, call *hooks.Call, from place) (*schemas.SyncReport, error) {
	return s.run(ctx, call, from, func(op *syncer.Syncer) (*syncer.Report, error) {
		r, err := op.Pull(ctx)
		if r.Changed {
			err = errors.Join(err, giveToOwner(ctx, call.Dir))
		}
		return r, err
	}, func(r *syncer.Report) (files int, bytes int64) { return r.Downloaded, r.BytesRead })
}

// Push stores the workspace as its next version, named by the time. Processes may go on writing: a file that changes while it is
// read is read again, and later changes are left for the next push.
func (s *Syncer) Push(ctx context.Context, call *hooks.Call) (*schemas.SyncReport, error) {
	// First, too: a worker that lost the session has nothing to push, and so no conflict either.
	if err := s.cfg.Fence(ctx, call.Conversation); err != nil {
		return nil, err
	}
	own := place{call.Template, call.Conversation.Thread, ""}
	return s.run(ctx, call, own, func(op *syncer.Syncer) (*syncer.Report, error) { return op.Push(ctx) },
		func(r *syncer.Report) (files int, bytes int64) { return r.Uploaded, r.BytesSent })
}

func (s *Syncer) run(ctx context.Context, call *hooks.Call, at place, op func(*syncer.Syncer) (*syncer.Report, error), moved func(*syncer.Report) (int, int64)) (report *schemas.SyncReport, err error) {
	begun := time.Now()
	err = s.with(ctx, call, at, func(location *Location, operation *syncer.Syncer) error {
		r, err := op(operation)
		files, bytes := moved(r)
		report = &schemas.SyncReport{
			Location: location.Name, Version: r.Version, Files: int64(files), Bytes: bytes, Deleted: int64(r.Deleted),
			DurationMS: float64(time.Since(begun)) / float64(time.Millisecond), Conflicts: conflictPaths(r.Conflicts),
		}
		return err
	})
	return report, err
}

// with calls f with the syncer of a folder and the store at a place, once no other sync of the folder is under way.
func (s *Syncer) with(ctx context.Context, call *hooks.Call, at place, f func(*Location, *syncer.Syncer) error) (err error) {
	release, err := s.acquire(ctx, call.Dir)
	if err != nil {
		return err
	}
	defer release()
	conversation, sync := call.Conversation, at.template.Sync
	location, err := s.open(ctx, conversation.Tenant, at)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := location.Close(); closeErr != nil { // errors.Join would wrap a single error too
			err = errors.Join(err, closeErr)
		}
	}()
	operation, err := syncer.New(syncer.Config{
		Root: call.Dir, OwnDir: sandbox.SyncDir(call.Dir), Store: objectstore.Retry(location.Store, objectstore.RetryPolicy{}), Remote: location.Name, StoreDir: location.Dir,
		Layout: state.Layout(sync.Layout), OnConflict: cmp.Or(at.onConflict, plan.OnConflict(sync.OnConflict)),
		Fence: func(ctx context.Context) error { return s.cfg.Fence(ctx, conversation) },
	})
	if err != nil {
		return err
	}
	return f(location, operation)
}

// open opens the store of a thread's workspace. Errors: invalid_argument for a template that stores none, those of the store.
func (s *Syncer) open(ctx context.Context, tenant string, at place) (*Location, error) {
	sync := at.template.Sync
	if sync == nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "template %s stores no workspaces: set its sync.location", at.template.Name)
	}
	url, err := sync.ThreadLocation(tenant, at.template.Name, at.thread)
	if err != nil {
		return nil, err
	}
	return s.locations.Open(ctx, url, Options{Endpoint: sync.Endpoint})
}

// stored reports whether a thread's workspace has been pushed.
func (s *Syncer) stored(ctx context.Context, call *hooks.Call, at place) (bool, error) {
	location, err := s.open(ctx, call.Conversation.Tenant, at)
	if err != nil {
		return false, err
	}
	_, err = objectstore.Retry(location.Store, objectstore.RetryPolicy{}).Stat(ctx, state.ReservedName)
	if found := err == nil; found || errors.Is(err, schemas.ErrNotFound) {
		return found, location.Close()
	}
	return false, errors.Join(err, location.Close())
}

// Bounds on the conflicts in a report: it travels in an event.
const (
	maxConflicts = 100
	maxPathBytes = 512
)

func conflictPaths(conflicts []syncer.Conflict) (out []string) {
	for i := range conflicts[:min(len(conflicts), maxConflicts)] {
		p := conflicts[i].Path
		out = append(out, strings.ToValidUTF8(p[:min(len(p), maxPathBytes)], "\uFFFD"))
	}
	return out
}

// acquire waits for the folder, then for a slot. The error is ctx's.
func (s *Syncer) acquire(ctx context.Context, dir string) (release func(), err error) {
	s.mu.Lock()
	f := s.folders[dir]
	if f == nil {
		f = &folderLock{free: make(chan struct{}, 1)}
		s.folders[dir] = f
	}
	f.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if f.users--; f.users == 0 {
			delete(s.folders, dir)
		}
	}
	select {
	case f.free <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
	select {
	case s.slots <- struct{}{}:
		return func() {
			<-s.slots
			<-f.free
			leave()
		}, nil
	case <-ctx.Done():
		<-f.free
		leave()
		return nil, ctx.Err()
	}
}

// giveToOwner gives what a pull wrote to the owner of the folder. A worker that runs as root wrote it as root, and the processes
// in a sandbox never run as root: they could not change it.
func giveToOwner(ctx context.Context, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "workspace: %w", err)
	}
	defer root.Close()
	uid, gid, err := ownerOf(root, ".")
	if err != nil || uid == os.Geteuid() {
		return err // a worker that is not root cannot give files away, and need not
	}
	err = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err := errors.Join(ignoreMissing(err), ctx.Err()); err != nil {
			return err
		}
		if has, _, err := ownerOf(root, path); err != nil || has == uid {
			return ignoreMissing(err)
		}
		return ignoreMissing(root.Lchown(path, uid, gid))
	})
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "workspace: give the pulled files to the sandbox's user: %w", err)
	}
	return nil
}

func ownerOf(root *os.Root, path string) (uid, gid int, err error) {
	info, err := root.Lstat(path)
	if err != nil {
		return 0, 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, errors.New("this system does not report the owner of a file")
	}
	return int(st.Uid), int(st.Gid), nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
