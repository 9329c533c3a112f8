package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// The workspace of a session that goes on is stored, listed and restored on request.
func TestSessionVersions(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.env[completionTimeoutEnv] = testkit.Timeout.String()
	store := t.TempDir()
	c.env["SLUICE_TEMPLATES"], _ = c.templates("name: stored\nprovider: local\nsync: {location: 'file://" + store + "/{thread}'}\n")
	c.up()
	run := func(script string) outcome {
		return c.run("exec", "--template", "stored", "--thread", "t", "--", "sh", "-c", script)
	}
	run("echo one >file; mkdir d; echo kept >d/kept").check(t).exits(0)
	c.run("session", "versions", "t").check(t).exits(0).prints("").reports("sluice session push t")
	c.run("session", "diff", "t").check(t).exits(0).printsMatch(`(?m)^added +file +4 B +file$`)
	c.run("session", "push", "t").check(t).exits(0).printsMatch(`^version \S+: 2 files stored, 9 B, 0 deleted, file://` + store + `/t, `)
	c.run("session", "push", "t").check(t).exits(0).printsPart("no new version: 0 files")
	run("echo two >file; rm d/kept; echo new >new").check(t).exits(0)
	second := decode[schemas.SyncReport](t, c.run("session", "push", "t", "--json").stdout)
	versions := decode[[]schemas.WorkspaceVersion](t, c.run("session", "versions", "t", "--json").stdout)
	testkit.Equal(t, "versions", len(versions), 2)
	testkit.Equal(t, "newest version", versions[0].ID, second.Version)
	c.run("session", "versions", "t").check(t).exits(0).printsMatch(`(?m)^VERSION +TIME +STATE$`).printsMatch(`(?m)^` + second.Version + ` +\S+ +current$`)
	testkit.Equal(t, "completions", strings.Join(c.completions("session", "restore", "t", "--at", ""), " "), versions[0].ID+" "+versions[1].ID)

	c.run("session", "diff", "t").check(t).exits(0).prints("").reports("nothing differs")
	run("echo three >file; rm new; printf 'a\\000' >binary").check(t).exits(0)
	c.run("session", "diff", "t").check(t).exits(0).printsMatch(`(?s)^CHANGE +TYPE +SIZE +PATH\nadded +file +2 B +binary\nchanged +file +6 B +file\ndeleted +file +- +new\n$`)
	c.run("session", "diff", "t", "--path", "file").check(t).exits(0).prints("--- a/file\n+++ b/file\n@@ -1 +1 @@\n-two\n+three\n")
	c.run("session", "diff", "t", "--path", "file", "--at", versions[1].ID).check(t).exits(0).printsPart("-one\n+three\n")
	c.run("session", "diff", "t", "--path", "new").check(t).exits(0).printsPart("-new\n")
	c.run("session", "diff", "t", "--path", "binary").check(t).exits(0).prints("binary differs, and is binary\n")
	c.run("session", "diff", "t", "--path", "none").wantError(t, schemas.CodeNotFound, "none")
	c.run("session", "diff", "t", "--path", "../x").wantError(t, schemas.CodeInvalidArgument, "path")
	c.run("session", "diff", "t", "--path", "d").wantError(t, schemas.CodeInvalidArgument, "folder")
	c.run("session", "diff", "t", "--at", versions[1].ID).wantError(t, schemas.CodeInvalidArgument, "--path")
	c.run("session", "restore", "t", "--at", versions[1].ID).check(t).exits(0).printsPart("version ", "restored")
	run("cat file d/kept; ls").check(t).prints("one\nkept\nd\nfile\n")
	c.run("session", "restore", "t", "--at", second.Version, "--path", "new", "--json").check(t).exits(0)
	run("cat file new").check(t).prints("one\nnew\n")
	if _, err := os.Stat(filepath.Join(store, "t")); errors.Is(err, os.ErrNotExist) {
		t.Error("nothing is stored in " + store)
	}

	c.run("session", "restore", "t").wantError(t, schemas.CodeInvalidArgument, "--at", "sluice session versions t")
	c.run("session", "restore", "t", "--at", "2001-01-01T00:00:00Z").wantError(t, schemas.CodeNotFound, "sluice session versions t")
	for _, args := range [][]string{{"push", "none"}, {"versions", "none"}, {"diff", "none"}, {"restore", "none", "--at", "x"}, {"get", "none"}, {"stop", "none"}, {"renew", "none"}} {
		c.run(append([]string{"session"}, args...)...).wantError(t, schemas.CodeNotFound, "none", "sluice session list")
	}
	c.exec("--", "true").check(t).exits(0)
	c.run("session", "push", "t1").wantError(t, schemas.CodeInvalidArgument, "sync.location")
}
