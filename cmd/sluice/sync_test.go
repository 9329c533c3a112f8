package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Sync 4, 5, 7: check reports damage with a code of its own and repairs it, and nothing that a store has drives the terminal.
func TestSyncCheck(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	work, store, copied := t.TempDir(), t.TempDir(), t.TempDir()
	url := "file://" + store
	testkit.Must(t, os.WriteFile(filepath.Join(work, "a\x1b[2Jfile"), []byte("content"), 0o600))
	testkit.Must(t, os.Symlink("/etc/\x1b[31mpasswd", filepath.Join(work, "link")))
	push := c.run("sync", "push", work, url)
	push.check(t).exits(0).printsPart("skipped ", `\x1b[31mpasswd`)
	c.run("sync", "check", work, url).check(t).exits(0).printsPart("0 problems")
	objects, err := filepath.Glob(filepath.Join(store, ".sandbox-state.d/objects/*/*"))
	testkit.Must(t, err)
	testkit.Equal(t, "number of objects", len(objects), 1)
	testkit.Must(t, os.WriteFile(objects[0], []byte("damaged"), 0o600))
	check := c.run("sync", "check", work, url)
	check.check(t).printsPart(`"a\x1b[2Jfile": damaged`)
	check.wantError(t, schemas.CodeDamaged, "--repair")
	c.run("sync", "pull", copied, url).wantError(t, schemas.CodeDamaged, "check --repair")
	c.run("sync", "check", work, url, "--repair").check(t).exits(0).printsPart("damaged, repaired", "1 repaired")
	c.run("sync", "pull", copied, url).check(t).exits(0)
	testkit.Must(t, os.WriteFile(filepath.Join(store, ".sandbox-state"), nil, 0o600))
	c.run("sync", "pull", copied, url).wantError(t, schemas.CodeDamaged, "damaged")
	if strings.ContainsRune(push.stdout+check.stdout+check.stderr, '\x1b') {
		t.Error("an escape sequence was printed")
	}
}
