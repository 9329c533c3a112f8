package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Sync 14: an encrypted workspace is pushed and pulled with its key alone.
func TestSyncKey(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	work, dir := t.TempDir(), t.TempDir()
	key, url := filepath.Join(dir, "work.key"), "file://"+filepath.Join(dir, "store")
	testkit.Must(t, os.WriteFile(filepath.Join(work, "f"), []byte("secret"), 0o600))
	c.run("sync", "keygen", key).check(t).exits(0)
	info, err := os.Stat(key)
	testkit.Must(t, err)
	testkit.Equal(t, "mode", info.Mode().Perm(), os.FileMode(0o600))
	text, err := os.ReadFile(key)
	testkit.Must(t, err)
	c.run("sync", "keygen", key).wantError(t, schemas.CodeInvalidArgument, "exists")
	c.run("sync", "push", work, url, "--key-file", key).check(t).exits(0).printsPart("1 uploaded")
	c.run("sync", "ls", url).check(t).exits(exitSyncFailed).reports("is encrypted", "--key-file", syncKeyEnv)
	c.run("sync", "push", work, url).check(t).exits(exitSyncFailed).reports("is encrypted")
	c.run("sync", "push", work, url, "--key-file", key, "--layout", "plain").check(t).exits(exitSyncUsage)
	c.run("sync", "push", work, url, "--key-file", filepath.Join(dir, "none")).check(t).exits(exitSyncUsage)
	c.env[syncKeyEnv] = strings.TrimSpace(string(text))
	c.run("sync", "cat", url, "f").check(t).exits(0).prints("secret")
	c.env[syncKeyEnv] = "not a key"
	c.run("sync", "cat", url, "f").check(t).exits(exitSyncUsage).reports("sluice sync keygen")
}
