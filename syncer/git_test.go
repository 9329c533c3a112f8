package syncer_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// gitter returns a function that runs git without this machine's configuration.
func gitter(t *testing.T) func(dir string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		testkit.Missing(t, "git", "apt-get install git")
	}
	return func(dir string, args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e@example.com"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
}

// TestGitCloneRoundTrips pushes a clone and pulls it elsewhere: git must find no difference. The repository has what is easily
// lost: packed refs, packs and loose objects, exec bits, symlinks, odd names, an empty folder.
func TestGitCloneRoundTrips(t *testing.T) {
	git := gitter(t)
	origin := treetest.New(t)
	git(origin.Dir, "init", "-q", "-b", "main")
	for i := range 20 {
		origin.Write(fmt.Sprintf("src/f%d.go", i%7), strings.Repeat(fmt.Sprintln("line", i), 100+i))
		origin.Write("run.sh", fmt.Sprintln("#!/bin/sh\necho", i))
		origin.Chmod("run.sh", 0o755)
		if i == 0 {
			origin.Symlink("src/f0.go", "link")
			origin.Symlink("no/such/file", "dangling")
			origin.Write("odd name\n\xff", "x")
			origin.Write("zero", "")
		}
		git(origin.Dir, "add", "-A")
		git(origin.Dir, "commit", "-q", "-m", fmt.Sprint("commit ", i))
		git(origin.Dir, "tag", fmt.Sprint("v", i))
		git(origin.Dir, "branch", fmt.Sprint("topic/", i))
	}
	git(origin.Dir, "pack-refs", "--all")
	git(origin.Dir, "gc", "-q")
	git(origin.Dir, "commit", "-q", "--allow-empty", "-m", "a loose object beside the pack")
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
		git(origin.Dir, "clone", "-q", "--no-hardlinks", origin.Dir, a.Path("repo"))
		git(a.Path("repo"), "pack-refs", "--all")
		a.Mkdir("repo/empty")
		a.Carry(store, b, o)
		if out := git(b.Path("repo"), "fsck", "--full", "--strict"); strings.Contains(out, "error") || strings.Contains(out, "missing") {
			t.Errorf("git fsck printed errors:\n%s", out)
		}
		if out := git(b.Path("repo"), "status", "--porcelain", "--ignored"); out != "" {
			t.Errorf("git status = %q, want nothing", out)
		}
		want := git(a.Path("repo"), "for-each-ref")
		testkit.Equal(t, "refs", git(b.Path("repo"), "for-each-ref"), want)
		if want == "" {
			t.Error("the clone has no refs")
		}
	})
}
