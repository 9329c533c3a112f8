package processor_test

import (
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// A caller asks again every 5 s. The repetition joins the sync that is under way. A second change is refused meanwhile, and who only reads is not.
func TestSlowSyncIsDoneOnce(t *testing.T) {
	t.Parallel()
	begun := make(chan schemas.SyncOp, 10)
	h := &hooks{sync: func(req *schemas.SyncRequest) (schemas.SessionReply, error) {
		begun <- req.Op
		if req.Op == schemas.SyncVersions {
			return schemas.SessionReply{Versions: []schemas.WorkspaceVersion{{ID: "v0"}}}, nil
		}
		<-time.After(7 * time.Second) // longer than a caller waits
		return schemas.SessionReply{Sync: &schemas.SyncReport{Version: "v1"}}, nil
	}}
	c, _ := newRig(t, hooked(h), with(syncing))
	c.exec(command("k1", sh(":")))
	var first errgroup.Group
	first.Go(func() error {
		reply, err := c.conn.SyncWorkspace(c.ctx, schemas.DefaultTenant, "t", schemas.SyncRequest{Op: schemas.SyncPush})
		if err == nil && reply.Sync.Version != "v1" {
			t.Errorf("version %q, want v1", reply.Sync.Version)
		}
		return err
	})
	testkit.Equal(t, "operation", <-begun, schemas.SyncPush)
	_, err := c.conn.SyncWorkspace(c.ctx, schemas.DefaultTenant, "t", schemas.SyncRequest{Op: schemas.SyncRestore, At: "v0"})
	testkit.WantCode(t, err, schemas.CodeConflict)
	reply, err := c.conn.SyncWorkspace(c.ctx, schemas.DefaultTenant, "t", schemas.SyncRequest{Op: schemas.SyncVersions})
	testkit.Must(t, err)
	testkit.Equal(t, "versions", len(reply.Versions), 1)
	testkit.Equal(t, "operation", <-begun, schemas.SyncVersions)
	testkit.Must(t, first.Wait())
	testkit.Equal(t, "repetitions", len(begun), 0)
}

func TestSyncNeedsALocation(t *testing.T) {
	c, _ := newRig(t, hooked(&hooks{}))
	c.exec(command("k1", sh(":")))
	_, err := c.conn.SyncWorkspace(c.ctx, schemas.DefaultTenant, "t", schemas.SyncRequest{Op: schemas.SyncPush})
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	_, err = c.conn.SyncWorkspace(c.ctx, schemas.DefaultTenant, "none", schemas.SyncRequest{Op: schemas.SyncPush})
	testkit.WantCode(t, err, schemas.CodeNotFound)
}
