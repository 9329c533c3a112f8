package main

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// TestWorkspaceCommands lists workspaces with and without a session, and removes them. Ten minutes 14.
func TestWorkspaceCommands(t *testing.T) {
	c := newCLI(t)
	c.env["SLUICE_KEEP_WORKSPACES"] = "48h"
	c.up()
	c.run("workspace", "list").check(t).exits(0).reports("no worker has a workspace")
	c.exec("--", "sh", "-c", "echo one > file").check(t).exits(0)
	for t.Context().Err() == nil && c.run("workspace", "list").stdout == "" { // the session's entry follows its first command
	}
	c.run("workspace", "list").check(t).exits(0).printsPart("t1", "in use")
	c.run("workspace", "rm", "t1").wantError(t, schemas.CodeConflict, "delete the session")
	c.run("session", "stop", "-t", "t1").check(t).exits(0).reports("keeps its workspace until")
	var kept []schemas.Workspace
	for t.Context().Err() == nil && (len(kept) != 1 || kept[0].InUse || kept[0].Bytes == 0) {
		kept = decode[[]schemas.Workspace](t, c.run("workspace", "list", "--json").stdout)
	}
	testkit.Equal(t, "hours that it is kept", kept[0].Until.Sub(kept[0].Ended).Hours(), 48.0)
	c.run("workspace", "list").check(t).exits(0).printsPart("t1", "kept", "KEPT UNTIL")
	c.run("workspace", "rm", "t1", "--worker", "another").wantError(t, schemas.CodeUnavailable, "another")
	c.run("workspace", "rm", "t1").check(t).exits(0)
	c.run("workspace", "rm", "t1").wantError(t, schemas.CodeNotFound)
	c.exec("--", "ls").check(t).prints("")
	for _, args := range [][]string{{"rm"}, {"rm", "a b"}, {"list", "x"}} {
		c.run(append([]string{"workspace"}, args...)...).wantError(t, schemas.CodeInvalidArgument)
	}
	newCLI(t).run("up", "--keep-workspaces", "-1h").wantError(t, schemas.CodeInvalidArgument, "--keep-workspaces")
}
