package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
)

// Sync 14: an emptied folder wipes no store, and a dry run changes nothing.
func TestSyncMaxDelete(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	work, store := t.TempDir(), filepath.Join(t.TempDir(), "store")
	url := "file://" + store
	write := func(name string) { testkit.Must(t, os.WriteFile(filepath.Join(work, name), []byte("x"), 0o600)) }
	for i := range 12 {
		write(fmt.Sprint("f", i))
	}
	c.run("sync", "push", work, url, "--dry-run").check(t).exits(0).printsPart(`"f0"`, "12 paths would change", "nothing was changed")
	c.run("sync", "ls", url).check(t).exits(exitSyncFailed).reports("there is nothing at")
	c.run("sync", "status", work, url).check(t).exits(0).printsPart("12 to push")
	if _, err := os.Stat(store); err == nil {
		t.Error("a command that reads has made the store")
	}
	c.run("sync", "push", work, url).check(t).exits(0)
	for i := range 12 {
		testkit.Must(t, os.Remove(filepath.Join(work, fmt.Sprint("f", i))))
	}
	for _, refused := range [][]string{{}, {"--dry-run"}, {"--max-delete", "11"}, {"--max-delete", "0"}} {
		c.run(append([]string{"sync", "push", work, url}, refused...)...).check(t).exits(exitSyncRefused).
			reports("limit_exceeded", "12 of 12 files in the store", "--max-delete 12")
	}
	c.run("sync", "push", work, url, "--max-delete", "some").wantError(t, schemas.CodeInvalidArgument, "half or any")
	for i := range 12 {
		write(fmt.Sprint("renamed", i))
	}
	c.run("sync", "push", work, url, "--dry-run", "--json").check(t).exits(0).printsPart(`"what": "deleted"`, `"path": "renamed0"`)
	c.run("sync", "push", work, url).check(t).exits(0)
	copied := t.TempDir()
	c.run("sync", "pull", copied, url).check(t).exits(0)
	for i := range 12 {
		testkit.Must(t, os.Remove(filepath.Join(work, fmt.Sprint("renamed", i))))
	}
	c.run("sync", "push", work, url, "--max-delete", "any").check(t).exits(0).printsPart("12 deleted")
	c.run("sync", "pull", copied, url).check(t).exits(exitSyncRefused).reports("12 of 12 files in the folder")
	c.run("sync", "pull", copied, url, "--max-delete", "12").check(t).exits(0).printsPart("12 deleted")

	none := filepath.Join(t.TempDir(), "none")
	write("f")
	c.run("sync", "push", work, url).check(t).exits(0)
	c.run("sync", "pull", none, url, "--dry-run").check(t).exits(0).printsPart(`"f"`, "1 path would change")
	if _, err := os.Stat(none); err == nil {
		t.Error("a dry run has made the folder")
	}
}

// Sync 14: what is stored can be looked at, and one file brought back, without a pull of everything.
func TestSyncBrowse(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	work, url := t.TempDir(), "file://"+t.TempDir()
	write := func(text string) {
		testkit.Must(t, os.MkdirAll(filepath.Join(work, "d"), 0o700))
		testkit.Must(t, os.WriteFile(filepath.Join(work, "d/f"), []byte(text), 0o600))
	}
	write("one")
	c.run("sync", "push", work, url).check(t).exits(0)
	type list struct{ Versions []syncer.Version }
	first := decode[list](t, c.run("sync", "versions", url, "--json").stdout).Versions[0].ID
	write("second")
	testkit.Must(t, os.WriteFile(filepath.Join(work, "new\x1b[2J"), []byte("n"), 0o600))
	c.run("sync", "push", work, url).check(t).exits(0)

	ls := c.run("sync", "ls", url)
	ls.check(t).exits(0).printsPart("drwx------", `"d/f"`, `"new\x1b[2J"`)
	if strings.ContainsRune(ls.stdout, '\x1b') {
		t.Error("an escape sequence was printed")
	}
	c.run("sync", "ls", url, "d", "--at", first, "--json").check(t).exits(0).printsPart(`"size": 3`)
	c.run("sync", "cat", url, "d/f").check(t).exits(0).prints("second")
	c.run("sync", "cat", url, "d/f", "--at", first).check(t).exits(0).prints("one")
	c.run("sync", "cat", url, "none").wantError(t, schemas.CodeNotFound, "sync ls")
	c.run("sync", "diff", url, first).check(t).exits(0).printsPart("changed", `"d/f"`, "added", `"new\x1b[2J"`)
	c.run("sync", "diff", url, first, first).check(t).exits(0).reports("nothing differs")
	c.run("sync", "restore", work, url, "--at", first, "--path", "d/f").check(t).exits(0).printsPart("1 downloaded")
	testkit.Equal(t, "d/f", read(t, work, "d/f"), "one")
	copied := filepath.Join(t.TempDir(), "copy")
	c.run("sync", "pull", copied, url, "--at", first).check(t).exits(0).printsPart("version " + first)
	testkit.Equal(t, "d/f of the copy", read(t, copied, "d/f"), "one")
	c.run("sync", "pull", copied, url).check(t).exits(0)
	testkit.Equal(t, "d/f of the copy", read(t, copied, "d/f"), "second")
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	testkit.Must(t, err)
	return string(data)
}
