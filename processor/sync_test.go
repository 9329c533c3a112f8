package processor_test

import (
	"fmt"
	"sync/atomic"
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

// A push that is asked for while another one is under way may be for files that one has not seen: it is another push, which those share that
// have come meanwhile.
func TestPushAsksForWhatIsThereThen(t *testing.T) {
	t.Parallel()
	begun, release := make(chan int, 10), make(chan struct{})
	var pushes atomic.Int64
	h := &hooks{sync: func(*schemas.SyncRequest) (schemas.SessionReply, error) {
		n := int(pushes.Add(1))
		if begun <- n; n == 1 {
			<-release
		}
		return schemas.SessionReply{Sync: &schemas.SyncReport{Version: fmt.Sprint("v", n)}}, nil
	}}
	c, _ := newRig(t, hooked(h), with(syncing))
	c.exec(command("k1", sh(":")))
	push := func() (string, error) {
		reply, err := c.conn.SyncWorkspace(c.ctx, schemas.DefaultTenant, "t", schemas.SyncRequest{Op: schemas.SyncPush})
		if err != nil {
			return "", err
		}
		return reply.Sync.Version, nil
	}
	var callers errgroup.Group
	callers.Go(func() error {
		if version, err := push(); err != nil || version != "v1" {
			return fmt.Errorf("version %q, error %w, want v1", version, err)
		}
		return nil
	})
	testkit.Equal(t, "push", <-begun, 1)
	for range 4 {
		callers.Go(func() error {
			if version, err := push(); err != nil || version == "v1" {
				return fmt.Errorf("version %q, error %w, want one of a later push", version, err)
			}
			return nil
		})
	}
	callers.Go(func() error {
		<-time.After(100 * time.Millisecond) // who joins the push under way gets its answer
		close(release)
		return nil
	})
	testkit.Must(t, callers.Wait())
	if n := pushes.Load(); n > 5 {
		t.Errorf("%d pushes for 5 requests", n)
	}
}

func TestSyncNeedsALocation(t *testing.T) {
	c, _ := newRig(t, hooked(&hooks{}))
	c.exec(command("k1", sh(":")))
	_, err := c.conn.SyncWorkspace(c.ctx, schemas.DefaultTenant, "t", schemas.SyncRequest{Op: schemas.SyncPush})
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	_, err = c.conn.SyncWorkspace(c.ctx, schemas.DefaultTenant, "none", schemas.SyncRequest{Op: schemas.SyncPush})
	testkit.WantCode(t, err, schemas.CodeNotFound)
}
