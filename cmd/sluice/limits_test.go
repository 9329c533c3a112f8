package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
	"github.com/sluice-dev/sluice/schemas"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// The command that fills a workspace keeps its exit code, the limit is reported, and files can be removed.
func TestFullWorkspaceIsReported(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	full := []string{"--workspace-files", "3", "--thread", "full", "--"}
	got := c.exec(append(full, "sh", "-c", "touch 1 2 3 4; exit 7")...)
	got.check(t).exits(7).reports(string(schemas.CodeLimitExceeded)).reports("--workspace-files")
	got = c.exec(append([]string{"--json"}, append(full, "touch", "5")...)...)
	got.check(t).exits(0)
	r := got.result(t)
	testkit.Equal(t, "success", r.Success, true)
	testkit.WantCode(t, r.Error, schemas.CodeLimitExceeded)
	c.run("events", "--thread", "full").check(t).printsPart(string(schemas.TypeLimitExceeded))
	got = c.exec(append(full, "rm", "1", "2", "3")...)
	if got.check(t).exits(0); strings.Contains(got.stderr, string(schemas.CodeLimitExceeded)) {
		t.Errorf("standard error = %q, want one without %s", got.stderr, schemas.CodeLimitExceeded)
	}
	c.run("exec", "--workspace-files", "-1", "--", "true").wantError(t, schemas.CodeInvalidArgument, "negative")
}

// The first command names the image of its thread's container, and the thread keeps it.
func TestThreadKeepsItsImage(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	image := dockertest.Image(t)
	c.run("exec", "--image", image, "--thread", "t", "--", "sh", "-c", "pwd; id -u").check(t).exits(0).printsMatch("^/workspace\n")
	c.run("exec", "--image", "another:1", "--thread", "t", "--", "true").wantError(t, schemas.CodeConflict, image, "another:1", "another thread")
	c.run("exec", "--provider", "local", "--thread", "t", "--", "true").wantError(t, schemas.CodeConflict, "docker")
	c.run("exec", "--provider", "local", "--image", image, "--thread", "u", "--", "true").wantError(t, schemas.CodeInvalidArgument, "--provider docker")
	c.run("exec", "--image", "a b", "--", "true").wantError(t, schemas.CodeInvalidArgument, "image")
	testkit.Must(t, os.WriteFile(filepath.Join(c.data, "workspaces", "default", "t", "put"), []byte("from the host"), 0o600))
	c.run("exec", "--image", image, "--thread", "t", "--", "sh", "-c", "echo >>put && cat put").check(t).exits(0).prints("from the host\n")
}
