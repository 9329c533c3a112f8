package client_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func TestSessionsAreFilteredByTheQuery(t *testing.T) {
	d := newCaller(t, "w1", "w2")
	for i := range 6 {
		_, created, err := d.CreateSession(d.ctx, client.SessionRequest{
			Thread: fmt.Sprint("t", i), User: fmt.Sprint("u", i%2), Tags: map[string]string{"third": fmt.Sprint(i % 3), "all": ""}, Start: i == 0,
		})
		d.must(err)
		d.equal(fmt.Sprintf("created t%d", i), created, true)
	}
	for _, k := range []struct {
		query client.SessionQuery
		want  int
	}{
		{client.SessionQuery{}, 6}, {client.SessionQuery{User: "u1"}, 3}, {client.SessionQuery{Tags: map[string]string{"third": "1"}}, 2},
		{client.SessionQuery{User: "u1", Tags: map[string]string{"third": "1", "all": ""}}, 1}, {client.SessionQuery{Tags: map[string]string{"none": ""}}, 0},
		{client.SessionQuery{Limit: 4}, 4}, {client.SessionQuery{Template: "other"}, 0},
	} {
		got, err := d.Sessions(d.ctx, k.query)
		d.must(err)
		d.equal(fmt.Sprintf("number of sessions for %+v", k.query), len(got), k.want)
	}
	for {
		got, err := d.Sessions(d.ctx, client.SessionQuery{State: schemas.SandboxRunning})
		d.must(err)
		if len(got) == 1 && got[0].Thread == "t0" {
			break
		}
	}
	// Another tenant has none of them.
	conn, err := d.cell.conn()
	d.must(err)
	other, err := client.New(conn, client.WithTenant("other"))
	d.must(err)
	got, err := other.Sessions(d.ctx, client.SessionQuery{})
	d.must(err)
	d.equal("number of sessions of another tenant", len(got), 0)
}

func TestSessionHandleIsForOneSession(t *testing.T) {
	d := newCaller(t, "w1", "w2")
	first, _, err := d.CreateSession(d.ctx, client.SessionRequest{Thread: "t", Start: true})
	d.must(err)
	again, created, err := d.CreateSession(d.ctx, client.SessionRequest{Thread: "t", Start: true})
	d.must(err)
	d.equal("created again", created, false)
	d.equal("id", again.ID(), first.ID())
	d.equal("thread", again.Thread(), "t")
	renewed, err := first.Renew(d.ctx, time.Hour)
	d.must(err)
	d.equal("idle timeout in ms", renewed.IdleTimeoutMS, int64(3_600_000))
	last, err := first.Stop(d.ctx, client.StopGrace(time.Millisecond))
	d.must(err)
	// A second stop has the same result, through any handle.
	for range 2 {
		s, err := again.Stop(d.ctx)
		d.must(err)
		d.equal("id of the stopped session", s.ID, last.ID)
	}
	second, created, err := d.CreateSession(d.ctx, client.SessionRequest{Thread: "t"})
	d.must(err)
	d.equal("created after the stop", created, true)
	if second.ID() == first.ID() {
		t.Fatalf("the new session has the id of the old one: %s", first.ID())
	}
	d.wantCode("info of an ended session", errorOf(first.Info(d.ctx)), schemas.CodeSessionExpired)
	d.wantCode("renewal of an ended session", errorOf(first.Renew(d.ctx, 0)), schemas.CodeSessionExpired)
	d.wantCode("exec in an ended session", errorOf(first.Exec(d.ctx, client.Request{Command: "true"})), schemas.CodeSessionExpired)
	d.must(errorOf(first.Stop(d.ctx))) // it has ended
	info, err := second.Info(d.ctx)    // the second session still runs
	d.must(err)
	d.equal("id of the second session", info.ID, second.ID())
	d.must(errorOf(second.Delete(d.ctx)))
	d.wantCode("stop without a session", errorOf(d.StopSession(d.ctx, "t")), schemas.CodeNotFound)
	stopped, err := d.StopSession(d.ctx, "t", client.StopMissingOK())
	d.must(err)
	if stopped != nil {
		t.Fatalf("stop of a missing session = %+v, want nil", stopped)
	}
	_, _, err = d.CreateSession(d.ctx, client.SessionRequest{Thread: "no id"})
	d.wantCode("an invalid thread", err, schemas.CodeInvalidArgument)
}

func TestCreateSessionNeedsAWorker(t *testing.T) {
	d := newCaller(t)
	_, _, err := d.CreateSession(d.ctx, client.SessionRequest{Thread: "t"})
	d.wantCode("create without a worker", err, schemas.CodeUnavailable)
	d.wantCode("a thread without a session", errorOf(d.Session(d.ctx, "t")), schemas.CodeNotFound)
}

// TestDeleteOfAStoppedSessionRemovesItsFolder: another call stopped the session, and left the folder of its workspace.
func TestDeleteOfAStoppedSessionRemovesItsFolder(t *testing.T) {
	d := newCaller(t, "w1", "w2")
	s, _, err := d.CreateSession(d.ctx, client.SessionRequest{Thread: "t"})
	d.must(err)
	_, err = s.Exec(d.ctx, client.Request{Command: "touch", Args: []string{"file"}})
	d.must(err)
	last, err := d.StopSession(d.ctx, "t")
	d.must(err)
	_, err = os.Stat(filepath.Join(last.Workspace, "file"))
	d.must(err)
	for range 2 {
		deleted, err := s.Delete(d.ctx)
		d.must(err)
		d.equal("id of the deleted session", deleted.ID, last.ID)
		if _, err := os.Lstat(last.Workspace); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("stat the folder of a deleted session: error = %v, want %v", err, fs.ErrNotExist)
		}
	}
}
