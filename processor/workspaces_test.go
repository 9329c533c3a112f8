package processor_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// keeping sweeps workspaces all the time, and keeps them for d.
func keeping(d time.Duration) func(*processor.Config) {
	return func(c *processor.Config) { c.KeepWorkspaces, c.OrphansEvery = d, 10*time.Millisecond }
}

func one(all []schemas.Workspace) bool   { return len(all) == 1 }
func ended(all []schemas.Workspace) bool { return len(all) == 1 && all[0].Session != "" } // a sweep may find the folder first
func none(all []schemas.Workspace) bool  { return len(all) == 0 }

func wantFolder(t *testing.T, dir string, want bool) {
	t.Helper()
	if _, err := os.Stat(dir); (err == nil) != want {
		t.Fatalf("folder %s exists = %t, want %t (error: %v)", dir, err == nil, want, err)
	}
}

// TestWorkspaceIsKeptForATime ends a session: its workspace is listed, used again by the next one, and removed at last. Ten minutes 14.
func TestWorkspaceIsKeptForATime(t *testing.T) {
	c, w := newRig(t, keeping(time.Hour), with())
	c.exec(command("k1", sh("echo one >file; mkdir d")))
	was := c.session()
	c.must(os.Symlink("/etc", filepath.Join(was.Workspace, "out")))
	// Hardening 6: what a process leaves does not keep its workspace from being removed.
	c.exec(command("k0", sh("mkdir -p 555/a/000; : >555/a/f; chmod 0 555/a/000; chmod 555 555/a 555")))
	c.must(os.Mkdir(sandbox.SyncDir(was.Workspace), 0o700))
	before := time.Now()
	last, err := c.stop(schemas.StopRequest{})
	c.must(err)
	if d := last.WorkspaceUntil.Sub(before); d < time.Hour || d > 2*time.Hour {
		t.Errorf("workspace is kept for %s, want an hour", d)
	}
	kept := c.awaitKept("one with its session", ended)[0]
	wantFields(t, kept, schemas.Workspace{Thread: "t", Worker: "w1", Session: was.ID, Template: "default", Files: 7, Bytes: 4})
	testkit.Equal(t, "time that it is kept", kept.Until.Sub(kept.Ended), time.Hour)

	c.exec(command("k2", sh("cat file")))
	c.awaitKept("none while it is in use", none)
	c.must(errorOf(c.stop(schemas.StopRequest{})))
	c.awaitKept("one with its session", ended)
	w.stop()
	c.must(w.err)
	wantFolder(t, was.Workspace, true)

	c.worker("w1", keeping(time.Millisecond))
	kept.Until = time.Now().Add(-time.Second)
	c.must(c.conn.Worker.Workspaces.SaveWorkspace(c.ctx, &kept))
	c.awaitKept("none after its time", none)
	wantFolder(t, was.Workspace, false)
	wantFolder(t, sandbox.SyncDir(was.Workspace), false)
	wantFields(t, c.exec(command("k3", sh("ls"))), schemas.Result{Stdout: "", Success: true})
}

// TestWorkspaceStaysWhileItsPushIsOwed lets the time of a workspace pass. Ten minutes 14.
func TestWorkspaceStaysWhileItsPushIsOwed(t *testing.T) {
	h := &hooks{owed: &schemas.OwedPush{Worker: "w1", Error: schemas.Errorf(schemas.CodeUnavailable, "the store is down")}}
	c, w := newRig(t, hooked(h), with(syncing), keeping(time.Millisecond))
	c.exec(command("k1", sh("echo one >file")))
	dir := c.session().Workspace
	c.must(errorOf(c.stop(schemas.StopRequest{})))
	c.awaitKept("one", one)
	for range 5 {
		w.Sessions().Workspaces().Sweep()
	}
	testkit.WantCode(t, c.conn.RemoveWorkspace(c.ctx, schemas.DefaultTenant, "w1", schemas.WorkspaceRemoval{Thread: "t"}), schemas.CodeConflict)
	wantFolder(t, dir, true)
	// A push is stored while a removal looks for it, and leaves the memory: what is stored counts as what was there.
	owed := schemas.OwedPush{Tenant: "default", Thread: "t", Worker: "w1"}
	moved := make(chan error, 1)
	h.mu.Lock()
	h.asked = func() {
		moved <- c.conn.Worker.Owed.SaveOwed(c.ctx, &owed)
		h.owed, h.asked = nil, nil
	}
	h.mu.Unlock()
	c.must(<-moved)
	testkit.WantCode(t, c.conn.RemoveWorkspace(c.ctx, schemas.DefaultTenant, "w1", schemas.WorkspaceRemoval{Thread: "t"}), schemas.CodeConflict)
	wantFolder(t, dir, true)
	c.must(c.conn.Worker.Owed.DeleteOwed(c.ctx, &owed))
	c.awaitKept("none", none)
	wantFolder(t, dir, false)
}

// slowList holds each list of workspaces back once it is read.
type slowList struct {
	processor.Kept
	read chan struct{}
	pass chan struct{}
}

// Workspaces returns the list when pass is closed.
func (s slowList) Workspaces(ctx context.Context, worker string) ([]schemas.Workspace, error) {
	all, err := s.Kept.Workspaces(ctx, worker)
	s.read <- struct{}{}
	<-s.pass
	return all, err
}

// TestWorkspaceUsedDuringASweepStays has a session come and go while a sweep works on the entry of the one before. Ten minutes 14.
func TestWorkspaceUsedDuringASweepStays(t *testing.T) {
	list := slowList{read: make(chan struct{}, 1), pass: make(chan struct{})}
	c, w := newRig(t, func(cfg *processor.Config) {
		list.Kept = cfg.Kept
		cfg.KeepWorkspaces, cfg.OrphansEvery, cfg.Kept = time.Hour, time.Hour, list
	})
	c.exec(command("k1", sh("echo one >file")))
	dir := c.session().Workspace
	c.must(errorOf(c.stop(schemas.StopRequest{})))
	kept := c.awaitKept("one with its session", ended)[0]
	kept.Until = time.Now().Add(-time.Second)
	c.must(c.conn.Worker.Workspaces.SaveWorkspace(c.ctx, &kept))
	w.Sessions().Workspaces().Sweep()
	<-list.read
	c.exec(command("k2", sh("echo two >file")))
	c.must(errorOf(c.stop(schemas.StopRequest{})))
	close(list.pass)
	w.stop()
	c.must(w.err)
	wantFolder(t, dir, true)
}

// TestFoldersWithoutAnEntryAreFound has a worker start on folders that an earlier one left. Ten minutes 14.
func TestFoldersWithoutAnEntryAreFound(t *testing.T) {
	c := newCell(t)
	left := filepath.Join(c.dir, "workspaces", "default", "left")
	c.must(os.MkdirAll(left, 0o700))
	c.must(os.MkdirAll(filepath.Join(c.dir, "workspaces", "default", ".hidden"), 0o700))
	c.must(os.WriteFile(filepath.Join(c.dir, "workspaces", "default", "file"), nil, 0o600))
	c.worker("w1", keeping(time.Hour))
	wantFields(t, c.awaitKept("one", one)[0], schemas.Workspace{Thread: "left", Worker: "w1"})
	wantFolder(t, left, true)
}

// TestWorkspaceIsRemovedOnRequest removes workspaces with a session, without one, and that are not there. Ten minutes 14.
func TestWorkspaceIsRemovedOnRequest(t *testing.T) {
	c, w := newRig(t)
	remove := func(worker string, unpushed bool) error {
		return c.conn.RemoveWorkspace(c.ctx, schemas.DefaultTenant, worker, schemas.WorkspaceRemoval{Thread: "t", Unpushed: unpushed})
	}
	testkit.WantCode(t, remove("w1", false), schemas.CodeNotFound)
	c.exec(command("k1", sh("echo one >file")))
	dir := c.session().Workspace
	testkit.WantCode(t, remove("w1", true), schemas.CodeConflict)
	c.must(errorOf(c.stop(schemas.StopRequest{})))
	c.awaitKept("one", one)
	testkit.WantCode(t, remove("w2", false), schemas.CodeUnavailable)
	testkit.WantCode(t, remove("a b", false), schemas.CodeInvalidArgument)
	c.must(remove("w1", false))
	wantFolder(t, dir, false)
	c.awaitKept("none", none)

	c.exec(command("k2", sh("echo two >file")))
	c.must(errorOf(c.stop(schemas.StopRequest{})))
	owed := schemas.OwedPush{Tenant: "default", Thread: "t", Worker: "w1"}
	c.must(c.conn.Worker.Owed.SaveOwed(c.ctx, &owed))
	testkit.WantCode(t, remove("w1", false), schemas.CodeConflict)
	c.must(remove("w1", true))
	wantFolder(t, dir, false)
	left, err := c.conn.Owed.OwedPushes(c.ctx, "w1")
	c.must(err)
	equal(t, "owed pushes", len(left), 0)
	w.stop()
	c.must(w.err)
}
