package mcp_test

import (
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/gateway/mcp"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// synced is a sync as a caller decodes it.
type synced struct {
	Version        string
	Files, Deleted int
}

func TestWorkspaceIsStoredAndRestored(t *testing.T) {
	c := cell(t)
	a := serve(t, mcp.Config{Client: c, Thread: "t", Template: "stored"})
	var versions struct {
		Versions []struct {
			ID      string
			Current bool
		}
	}
	a.call("list_versions", args{}, &versions)
	testkit.Equal(t, "versions at first", len(versions.Versions), 0)
	a.run("echo one >file; mkdir d; echo kept >d/kept")
	var first, same, restored synced
	a.call("sync_workspace", args{}, &first)
	testkit.Equal(t, "files stored", first.Files, 2)
	a.call("sync_workspace", args{}, &same)
	testkit.Equal(t, "version of an unchanged workspace", same.Version, "")
	a.run("echo two >file; rm d/kept; echo new >new")
	a.call("restore_workspace", args{"at": first.Version}, &restored)
	testkit.Equal(t, "files after all were restored", a.run("cat file d/kept; ls").Stdout.Text, "one\nkept\nd\nfile\n")
	a.call("list_versions", args{}, &versions)
	testkit.Equal(t, "versions", len(versions.Versions), 3)
	testkit.Equal(t, "newest version", versions.Versions[0].ID, restored.Version)
	before := versions.Versions[1].ID // what was there before the restore
	a.run("echo three >>file")
	a.call("restore_workspace", args{"at": before, "path": "new"}, &restored)
	testkit.Equal(t, "files after one was restored", a.run("cat file d/kept new").Stdout.Text, "one\nthree\nkept\nnew\n")
	// The next session begins with the version that is current.
	_, err := c.DeleteSession(a.ctx, "t")
	testkit.Must(t, err)
	testkit.Equal(t, "file in a new session", a.run("cat file new").Stdout.Text, "one\nthree\nnew\n")

	a.fails(schemas.CodeNotFound, "restore_workspace", args{"at": "2001-01-01T00:00:00Z"})
	a.fails(schemas.CodeInvalidArgument, "restore_workspace", args{"at": ""})
	a.fails(schemas.CodeInvalidArgument, "restore_workspace", args{"at": first.Version, "path": "../x"})
	other := serve(t, mcp.Config{Client: c, Thread: "u"})
	testkit.Contains(t, "error", other.fails(schemas.CodeInvalidArgument, "sync_workspace", args{}), "sync.location")
}

func TestSessionThatHasEndedIsNotSynced(t *testing.T) {
	c := cell(t)
	ctx := testkit.Context(t)
	s, _, err := c.CreateSession(ctx, client.SessionRequest{Thread: "t", Template: "stored"})
	testkit.Must(t, err)
	_, err = s.Stop(ctx)
	testkit.Must(t, err)
	_, err = s.Push(ctx)
	testkit.WantCode(t, err, schemas.CodeSessionExpired)
	_, _, err = c.CreateSession(ctx, client.SessionRequest{Thread: "t", Template: "stored"})
	testkit.Must(t, err)
	_, err = s.Versions(ctx)
	testkit.WantCode(t, err, schemas.CodeSessionExpired)
}
