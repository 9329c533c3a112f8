package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// The commands about files, on a thread that has no session yet.
func TestFileCommands(t *testing.T) {
	c := newCLI(t)
	c.up()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	testkit.Must(t, os.WriteFile(file, []byte("one\n"), 0o600))
	c.run("file", "put", file, "t1:in/a.txt").check(t).exits(0)
	c.run("file", "put", "--append", file, "t1:in/a.txt").check(t).exits(0)
	c.run("file", "cat", "t1:in/a.txt").check(t).exits(0).prints("one\none\n")
	c.run("file", "ls", "t1:in").check(t).exits(0).printsPart("file", "644", "in/a.txt")
	c.run("file", "search", "t1:", "--name", "none", "--json").check(t).exits(0).prints("[]\n")
	c.run("file", "search", "t1:", "--text", "one").check(t).exits(0).prints("in/a.txt:1:one\nin/a.txt:2:one\n")
	c.run("file", "mkdir", "t1:x/y").check(t).exits(0)
	c.run("file", "mv", "t1:in/a.txt", "x/b.txt").check(t).exits(0)
	list := decode[[]schemas.FileEntry](t, c.run("file", "stat", "--json", "t1:x/b.txt").stdout)
	testkit.Equal(t, "size", list[0].Size, int64(8))
	c.run("file", "rm", "t1:x").wantError(t, schemas.CodeConflict)
	c.run("file", "rm", "-r", "t1:x").check(t).exits(0)
	c.run("file", "cat", "t1:x/b.txt").wantError(t, schemas.CodeNotFound)
	c.run("file", "ls", "t1:../other").wantError(t, schemas.CodeInvalidArgument, "leads out")
	c.run("file", "ls", "workspace").wantError(t, schemas.CodeInvalidArgument, "THREAD:PATH")
}

// sluice cp follows the rules of docker cp, in both directions.
func TestCopyCommand(t *testing.T) {
	c := newCLI(t)
	c.up()
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	testkit.Must(t, os.MkdirAll(filepath.Join(src, "sub"), 0o755))
	testkit.Must(t, os.WriteFile(filepath.Join(src, "sub", "tool"), []byte("#!/bin/sh\n"), 0o755))
	testkit.Must(t, os.Symlink("sub/tool", filepath.Join(src, "link")))

	c.run("cp", src, "t1:new").check(t).exits(0)      // it does not exist: the folder under a new name
	c.run("cp", src, "t1:new").check(t).exits(0)      // it exists: the folder is copied into it
	c.run("cp", src+"/.", "t1:new").check(t).exits(0) // only the content
	c.run("cp", filepath.Join(src, "sub", "tool"), "t1:new").check(t).exits(0)
	c.exec("--", "sh", "-c", "cd new; find . | sort; stat -c %a sub/tool").check(t).
		prints(".\n./link\n./src\n./src/link\n./src/sub\n./src/sub/tool\n./sub\n./sub/tool\n./tool\n755\n")
	c.run("cp", src, "t1:new/tool").wantError(t, schemas.CodeConflict)
	c.run("cp", filepath.Join(src, "sub", "tool"), "t1:none/").wantError(t, schemas.CodeNotFound)
	testkit.Must(t, os.Symlink("none", filepath.Join(dir, "dangling")))
	c.run("cp", filepath.Join(dir, "dangling"), "t1:dangling").check(t).exits(0)
	c.run("file", "ls", "t1:").check(t).exits(0).printsPart("dangling -> none")
	c.run("file", "rm", "t1:dangling").check(t).exits(0)
	c.run("cp", src, src).wantError(t, schemas.CodeInvalidArgument, "THREAD:PATH")

	out := filepath.Join(dir, "out")
	c.run("cp", "t1:new/src", out).check(t).exits(0)
	c.run("cp", "t1:new/src", out).check(t).exits(0)
	c.run("cp", "t1:new/tool", out).check(t).exits(0)
	c.run("cp", "t1:", filepath.Join(dir, "all")).check(t).exits(0)
	got, err := filepath.Glob(filepath.Join(dir, "[ao]*", "*"))
	testkit.Must(t, err)
	for i := range got {
		got[i], _ = filepath.Rel(dir, got[i])
	}
	testkit.Equal(t, "copied out", got, []string{"all/new", "out/link", "out/src", "out/sub", "out/tool"})
	target, err := os.Readlink(filepath.Join(out, "link"))
	testkit.Must(t, err)
	testkit.Equal(t, "link", target, "sub/tool")
	info, err := os.Stat(filepath.Join(dir, "all/new/src/sub/tool"))
	testkit.Must(t, err)
	testkit.Equal(t, "mode", info.Mode().Perm(), os.FileMode(0o755))

	var names []string
	for r := tar.NewReader(bytes.NewReader([]byte(c.run("cp", "t1:new/src", "-").stdout))); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		testkit.Must(t, err)
		names = append(names, h.Name)
	}
	slices.Sort(names)
	testkit.Equal(t, "names in the tar stream", names, []string{"src/", "src/link", "src/sub/", "src/sub/tool"})
}

// An error of a copy says whether a file of this machine or one of the workspace is meant, and names it as the user does.
func TestCopyErrorsNameTheMachine(t *testing.T) {
	c := newCLI(t)
	c.up()
	c.exec("--", "sh", "-c", "mkdir in; echo a >in/a; ln -s a in/link").check(t).exits(0)
	dir := t.TempDir()
	for _, from := range []string{"t1:in/a", "t1:in/link"} {
		got := c.run("cp", from, dir+"/none/x")
		got.wantError(t, schemas.CodeNotFound, dir+"/none on this machine: no such file")
		if strings.Contains(got.stderr, "file ls") {
			t.Errorf("the error of a missing local folder points at the workspace: %s", got.stderr)
		}
	}
	c.run("cp", "t1:in/a", dir+"/none/").wantError(t, schemas.CodeNotFound, "no such folder on this machine")
	c.run("cp", "t1:in/none", dir).wantError(t, schemas.CodeNotFound, "sluice file ls t1:")
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	got := c.run("cp", "t1:in/a", dir+"/file/x")
	got.wantError(t, schemas.CodeInvalidArgument, dir+"/file on this machine: not a directory")
	if _, err := os.Stat("/proc/self"); err == nil { // where also root can make no file
		c.run("cp", "t1:in/a", "/proc/").wantError(t, schemas.CodeNotFound, "/proc/a on this machine: no such file")
	}
	if os.Getuid() != 0 {
		ro := filepath.Join(dir, "ro")
		testkit.Must(t, os.Mkdir(ro, 0o500))
		c.run("cp", "t1:in/a", ro+"/").wantError(t, schemas.CodePermissionDenied, ro+"/a on this machine: permission denied")
	}
}
