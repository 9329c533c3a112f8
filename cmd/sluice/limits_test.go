package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
	"github.com/sluice-dev/sluice/schemas"
)

// TestAFullWorkspaceSaysSo: the command that fills it keeps its exit code, everybody is told, and files can be removed.
func TestAFullWorkspaceSaysSo(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	full := []string{"--workspace-files", "3", "--thread", "full", "--"}
	got := c.exec(append(full, "sh", "-c", "touch 1 2 3 4; exit 7")...)
	if got.code != 7 || !strings.Contains(got.stderr, string(schemas.CodeLimitExceeded)) || !strings.Contains(got.stderr, "--workspace-files") {
		t.Errorf("%+v", got)
	}
	got = c.exec(append([]string{"--json"}, append(full, "touch", "5")...)...)
	var r schemas.Result
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.code != 0 || !r.Success || r.Error == nil || r.Error.Code != schemas.CodeLimitExceeded {
		t.Errorf("%+v, %v", got, err)
	}
	if got := c.run("events", "--thread", "full"); !strings.Contains(got.stdout, string(schemas.TypeLimitExceeded)) {
		t.Errorf("%+v", got)
	}
	if got := c.exec(append(full, "rm", "1", "2", "3")...); got.code != 0 || strings.Contains(got.stderr, string(schemas.CodeLimitExceeded)) {
		t.Errorf("%+v", got)
	}
	c.run("exec", "--workspace-files", "-1", "--", "true").wantError(t, schemas.CodeInvalidArgument, "negative")
}

// TestImage: a command may say of what its thread's container is made, and the thread keeps it.
func TestImage(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	image := dockertest.Image(t)
	if got := c.run("exec", "--image", image, "--thread", "t", "--", "sh", "-c", "pwd; id -u"); got.code != 0 || !strings.HasPrefix(got.stdout, "/workspace\n") {
		t.Errorf("%+v", got)
	}
	c.run("exec", "--image", "another:1", "--thread", "t", "--", "true").wantError(t, schemas.CodeConflict, image, "another:1", "another thread")
	c.run("exec", "--provider", "local", "--thread", "t", "--", "true").wantError(t, schemas.CodeConflict, "docker")
	c.run("exec", "--provider", "local", "--image", image, "--thread", "u", "--", "true").wantError(t, schemas.CodeInvalidArgument, "--provider docker")
	c.run("exec", "--image", "a b", "--", "true").wantError(t, schemas.CodeInvalidArgument, "image")
	if err := os.WriteFile(filepath.Join(c.data, "workspaces", "default", "t", "put"), []byte("from the host"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := c.run("exec", "--image", image, "--thread", "t", "--", "sh", "-c", "echo >>put && cat put"); got.code != 0 || got.stdout != "from the host\n" {
		t.Errorf("%+v", got)
	}
}
