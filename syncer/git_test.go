package syncer_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
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
	origin := newTree(t)
	git(origin.dir, "init", "-q", "-b", "main")
	for i := range 20 {
		origin.write(fmt.Sprintf("src/f%d.go", i%7), strings.Repeat(fmt.Sprintln("line", i), 100+i))
		origin.write("run.sh", fmt.Sprintln("#!/bin/sh\necho", i))
		origin.chmod("run.sh", 0o755)
		if i == 0 {
			origin.link("src/f0.go", "link")
			origin.link("no/such/file", "dangling")
			origin.write("odd name\n\xff", "x")
			origin.write("zero", "")
		}
		git(origin.dir, "add", "-A")
		git(origin.dir, "commit", "-q", "-m", fmt.Sprint("commit ", i))
		git(origin.dir, "tag", fmt.Sprint("v", i))
		git(origin.dir, "branch", fmt.Sprint("topic/", i))
	}
	git(origin.dir, "pack-refs", "--all")
	git(origin.dir, "gc", "-q")
	git(origin.dir, "commit", "-q", "--allow-empty", "-m", "a loose object beside the pack")
	layouts(t, func(t *testing.T, o option) {
		a, b, store := newTree(t), newTree(t), newStore()
		git(origin.dir, "clone", "-q", "--no-hardlinks", origin.dir, a.path("repo"))
		git(a.path("repo"), "pack-refs", "--all")
		a.mkdir("repo/empty")
		a.push(store, o)
		b.pull(store)
		sameTrees(t, a, b)
		if out := git(b.path("repo"), "fsck", "--full", "--strict"); strings.Contains(out, "error") || strings.Contains(out, "missing") {
			t.Errorf("git fsck printed errors:\n%s", out)
		}
		if out := git(b.path("repo"), "status", "--porcelain", "--ignored"); out != "" {
			t.Errorf("git status = %q, want nothing", out)
		}
		want := git(a.path("repo"), "for-each-ref")
		testkit.Equal(t, "refs", git(b.path("repo"), "for-each-ref"), want)
		if want == "" {
			t.Error("the clone has no refs")
		}
	})
}
