package session

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-dev/sluice/internal/projectquota"
	"github.com/sluice-dev/sluice/internal/removal"
	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Kept lists the workspaces that workers keep after a session, and the pushes that they owe.
type Kept interface {
	// Workspaces returns the entries of a worker. Errors: unavailable.
	Workspaces(ctx context.Context, worker string) ([]schemas.Workspace, error)
	// SaveWorkspace stores or replaces an entry, AddWorkspace stores one where there is none, and DeleteWorkspace deletes it. Errors:
	// unavailable.
	SaveWorkspace(ctx context.Context, w *schemas.Workspace) error
	AddWorkspace(ctx context.Context, w *schemas.Workspace) error
	DeleteWorkspace(ctx context.Context, w *schemas.Workspace) error
	// Owes reports whether a worker owes a push of the thread's workspace, and DeleteOwed gives that push up. Errors: unavailable.
	Owes(ctx context.Context, tenant, thread, worker string) (bool, error)
	DeleteOwed(ctx context.Context, o *schemas.OwedPush) error
}

// Workspaces are the folders of threads on this machine. A folder that no session uses is kept for a time, and never removed while its
// push is owed. The folders are what there is; the entries in KV follow them, and say since when.
type Workspaces struct {
	root       string
	keep       time.Duration // negative: without an end
	kept       Kept          // nil: without an end, and without entries
	sessions   *Sessions
	publisher  *publisher.Publisher
	background *work.Background
	sweeping   atomic.Bool

	mu    sync.Mutex
	ended map[string]time.Time // by key: the end of a thread's last session, until a sweep sees an entry that is newer
}

// leave notes that a thread's session ends, whose entry comes later. The caller holds the thread's claim lock.
func (ws *Workspaces) leave(key string) {
	if ws.kept == nil {
		return
	}
	ws.mu.Lock()
	ws.ended[key] = time.Now()
	ws.mu.Unlock()
}

// outdated reports whether a session of the thread has ended after an entry was made.
func (ws *Workspaces) outdated(w *schemas.Workspace) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.ended[key(w.Tenant, w.Thread)].After(w.Ended)
}

// settle forgets the ends before a sweep that entries have, or that left no folder.
func (ws *Workspaces) settle(entries map[string]*schemas.Workspace, folders []folder, before time.Time) {
	kept := make(map[string]bool, len(folders))
	for _, f := range folders {
		kept[key(f.tenant, f.thread)] = true
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	maps.DeleteFunc(ws.ended, func(k string, end time.Time) bool {
		w := entries[k]
		return end.Before(before) && (!kept[k] || w != nil && !end.After(w.Ended))
	})
}

// until is when the workspace of a session that ends now is removed; zero when it has none or is kept without an end.
func (ws *Workspaces) until(s *schemas.Session, now time.Time) time.Time {
	if ws.kept == nil || ws.keep < 0 || !ws.exists(s.Tenant, s.Thread) {
		return time.Time{}
	}
	return now.Add(ws.keep).UTC()
}

// exists reports whether a thread has a folder here. A link is the operator's, and leads to a folder that is not kept for the thread.
func (ws *Workspaces) exists(tenant, thread string) bool {
	info, err := os.Lstat(filepath.Join(ws.root, tenant, thread))
	return err == nil && info.IsDir()
}

// delete removes a thread's folder. The open root keeps links in it from leading the removal elsewhere.
func (ws *Workspaces) delete(tenant, thread string) error {
	root, err := os.OpenRoot(ws.root)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	dir := filepath.Join(tenant, thread)
	projectquota.Clear(filepath.Join(ws.root, dir))
	return errors.Join(removal.All(root, dir), removal.All(root, sandbox.SyncDir(dir)), root.Close())
}

// note stores the entry of a workspace whose session has ended. A later sweep finds the folder if this fails.
func (ws *Workspaces) note(ctx context.Context, last *schemas.Session) {
	if ws.kept == nil || !ws.exists(last.Tenant, last.Thread) {
		return
	}
	if err := ws.kept.SaveWorkspace(ctx, ws.entry(ctx, last)); err != nil {
		ws.publisher.Log.Debug().Err(err).Str("thread", last.Thread).Msg("kept workspace not stored")
	}
}

// entry is the entry of a workspace whose session ends now.
func (ws *Workspaces) entry(ctx context.Context, last *schemas.Session) *schemas.Workspace {
	w := &schemas.Workspace{
		Tenant: last.Tenant, Thread: last.Thread, Worker: ws.publisher.Worker, Session: last.ID, Template: last.Template, User: last.User, Ended: time.Now().UTC(),
	}
	if ws.keep >= 0 {
		w.Until = w.Ended.Add(ws.keep)
	}
	w.Files, w.Bytes = ws.measure(ctx, last.Tenant, last.Thread)
	return w
}

// measure counts what a folder holds. It follows no link, and leaves out what it cannot read.
func (ws *Workspaces) measure(ctx context.Context, tenant, thread string) (files, bytes int64) {
	root, err := os.OpenRoot(filepath.Join(ws.root, tenant, thread))
	if err != nil {
		return 0, 0
	}
	defer root.Close()
	_ = fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return ctx.Err()
		}
		files++
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return ctx.Err()
	})
	return files, bytes
}

// Sweep looks at every folder in the background: it notes those that no session uses, and removes those whose time is over.
func (ws *Workspaces) Sweep() {
	if ws.kept == nil || !ws.sweeping.CompareAndSwap(false, true) {
		return
	}
	if !ws.background.Go(func() {
		defer ws.sweeping.Store(false)
		if err := ws.sweepAll(ws.background.Context()); err != nil {
			ws.publisher.Log.Debug().Err(err).Msg("sweep workspaces")
		}
	}) {
		ws.sweeping.Store(false)
	}
}

func (ws *Workspaces) sweepAll(ctx context.Context) error {
	now := time.Now()
	all, err := ws.kept.Workspaces(ctx, ws.publisher.Worker)
	if err != nil {
		return err
	}
	entries := make(map[string]*schemas.Workspace, len(all))
	for i := range all {
		entries[key(all[i].Tenant, all[i].Thread)] = &all[i]
	}
	folders, err := ws.folders()
	if err != nil {
		return err
	}
	ws.settle(entries, folders, now)
	for _, f := range folders {
		if err := errors.Join(ctx.Err(), ws.publisher.CheckLease()); err != nil {
			return err
		}
		k := key(f.tenant, f.thread)
		w := entries[k]
		delete(entries, k)
		switch {
		case w != nil && ws.sessions.Find(f.tenant, f.thread) != nil:
			err = ws.kept.DeleteWorkspace(ctx, w) // it is in use again
		case w != nil && past(w.Until, now):
			err = ws.remove(ctx, w, false)
		case w == nil:
			err = ws.find(ctx, f.tenant, f.thread)
		}
		if err != nil {
			ws.publisher.Log.Debug().Err(err).Str("thread", f.thread).Msg("sweep a workspace")
		}
	}
	for _, gone := range entries {
		if err := ws.kept.DeleteWorkspace(ctx, gone); err != nil {
			return err
		}
	}
	return nil
}

type folder struct{ tenant, thread string }

// folders lists the folders of threads.
func (ws *Workspaces) folders() (out []folder, err error) {
	tenants, err := os.ReadDir(ws.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, tenant := range tenants {
		if !tenant.IsDir() || !schemas.ValidID(tenant.Name()) {
			continue
		}
		threads, err := os.ReadDir(filepath.Join(ws.root, tenant.Name()))
		if err != nil {
			return nil, err
		}
		for _, thread := range threads {
			if thread.IsDir() && schemas.ValidID(thread.Name()) {
				out = append(out, folder{tenant.Name(), thread.Name()})
			}
		}
	}
	return out, err
}

// find notes a folder without an entry, unless a session uses it: its worker was killed, or the session went on elsewhere.
func (ws *Workspaces) find(ctx context.Context, tenant, thread string) error {
	session, used, err := ws.used(ctx, tenant, thread)
	if err != nil || used {
		return err
	}
	session.Tenant, session.Thread = tenant, thread
	return ws.kept.AddWorkspace(ctx, ws.entry(ctx, &session)) // the end of a session may just be noting it
}

// used reports whether a thread has a session on this worker, and returns its session on any, empty for none. Errors: unavailable.
func (ws *Workspaces) used(ctx context.Context, tenant, thread string) (schemas.Session, bool, error) {
	if t := ws.sessions.Find(tenant, thread); t != nil {
		return t.Session, true, nil
	}
	s, _, err := ws.sessions.cfg.Store.Session(ctx, tenant, thread)
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		return schemas.Session{}, false, nil
	case err != nil:
		return schemas.Session{}, false, err
	}
	return *s, s.Owner == ws.publisher.Worker, nil
}

// remove removes a workspace that no session uses, and its entry. It holds the thread's claim lock, so that no session begins to use it.
// Errors: conflict when a session does, or has done so since the entry was made, or its push is owed and unpushed is not set; lost, unavailable.
func (ws *Workspaces) remove(ctx context.Context, w *schemas.Workspace, unpushed bool) error {
	defer ws.sessions.claims.Lock(key(w.Tenant, w.Thread))()
	_, used, err := ws.used(ctx, w.Tenant, w.Thread)
	if err != nil {
		return err
	}
	if used {
		return schemas.Errorf(schemas.CodeConflict, "thread %s has a session in its workspace: delete the session", w.Thread)
	}
	if !w.Ended.IsZero() && ws.outdated(w) {
		return schemas.Errorf(schemas.CodeConflict, "thread %s has had a session in its workspace since", w.Thread)
	}
	owed, err := ws.owed(ctx, w)
	if err != nil {
		return err
	}
	if owed && !unpushed {
		return schemas.Errorf(schemas.CodeConflict, "the workspace of thread %s is not pushed yet: wait until it is, or remove it unpushed", w.Thread)
	}
	if err := ws.publisher.CheckLease(); err != nil {
		return err
	}
	if err := ws.delete(w.Tenant, w.Thread); err != nil {
		return schemas.Errorf(schemas.CodeInternal, "remove the workspace of thread %s: %w", w.Thread, err)
	}
	ws.publisher.Log.Info().Str("thread", w.Thread).Str("session_id", w.Session).Bool("unpushed", owed).Msg("workspace_removed")
	if owed {
		err = ws.kept.DeleteOwed(ctx, &schemas.OwedPush{Tenant: w.Tenant, Thread: w.Thread, Worker: w.Worker})
	}
	return errors.Join(err, ws.kept.DeleteWorkspace(ctx, w))
}

// owed reports whether the push of a workspace is owed. A push that is not stored yet is in memory, and memory lets go of it only after it
// is stored: memory is read first, so that a push is missed nowhere on its way. Errors: unavailable.
func (ws *Workspaces) owed(ctx context.Context, w *schemas.Workspace) (bool, error) {
	if hooks := ws.sessions.cfg.Hooks; hooks != nil && hooks.Owed(w.Tenant, w.Thread) != nil {
		return true, nil
	}
	return ws.kept.Owes(ctx, w.Tenant, w.Thread, w.Worker)
}

// Remove removes a workspace that no session uses. Errors: not_found, conflict, lost, unavailable.
func (ws *Workspaces) Remove(ctx context.Context, tenant string, req schemas.WorkspaceRemoval) error {
	switch {
	case ws.kept == nil:
		return schemas.Errorf(schemas.CodeUnavailable, "worker %s lists no workspaces", ws.publisher.Worker)
	case !ws.exists(tenant, req.Thread):
		return schemas.Errorf(schemas.CodeNotFound, "worker %s has no workspace of thread %s", ws.publisher.Worker, req.Thread)
	}
	return ws.remove(ctx, &schemas.Workspace{Tenant: tenant, Thread: req.Thread, Worker: ws.publisher.Worker}, req.Unpushed)
}
