package processor_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

// Hardening 3: while less than the reserve is free on the disk of the workspaces, direct commands are refused and queued ones wait; what
// runs goes on, and the queued ones run once there is room.
func TestALowDiskStartsNothing(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	folder := t.TempDir()
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "mode=0755,size=32m"); err != nil {
		testkit.Missing(t, "the right to mount ("+err.Error()+")", "sudo -E go test -run LowDisk ./processor")
	}
	t.Cleanup(func() {
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	r := c.worker("w1", func(cfg *processor.Config) {
		cfg.Workspaces, cfg.Limits.MinFreeBytes = filepath.Join(folder, "workspaces"), 16<<20
	})
	running := c.send(command("running", sh("exec sleep 300")))
	c.awaitType(running.Process(), schemas.TypeProcessStarted)

	filler := filepath.Join(folder, "filler")
	testkit.Must(t, os.WriteFile(filler, make([]byte, 20<<20), 0o600))
	disk := r.Disk()
	equal(t, "the disk is low", disk.Low(), true)
	refused := c.end(c.send(command("refused", sh(":"))))
	if refused.Error == nil || refused.Error.Code != schemas.CodePoolExhausted {
		t.Errorf("result with a low disk = %+v, want pool_exhausted", refused)
	}
	first, second := c.queue(inThread(1, ":")), c.queue(inThread(2, ":"))
	equal(t, "room of the worker", r.Room(), 0)

	testkit.Must(t, os.Remove(filler))
	wantFields(t, c.end(first), schemas.Result{Success: true})
	wantFields(t, c.end(second), schemas.Result{Success: true})
	c.must(c.conn.Kill(c.ctx, running.Ref(), schemas.KillRequest{}))
	wantFields(t, c.end(running), schemas.Result{Reason: schemas.ReasonKilled})
}
