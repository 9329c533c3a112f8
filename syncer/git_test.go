package syncer_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestAGitCloneComesBackWhole pushes a clone of this repository and pulls it elsewhere: git must find nothing to say.
func TestAGitCloneComesBackWhole(t *testing.T) {
	git := func(dir string, args ...string) string {
		cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("git is missing")
		}
		t.Skip("needs git: apt-get install git")
	}
	if exec.Command("git", "rev-parse", "--git-dir").Run() != nil {
		t.Skip("this is no git repository")
	}
	top := strings.TrimSpace(git(".", "rev-parse", "--show-toplevel"))
	layouts(t, func(t *testing.T, o option) {
		a, b, store := newTree(t), newTree(t), newStore()
		git(top, "clone", "-q", "--no-hardlinks", top, a.path("repo"))
		a.push(store, o)
		b.pull(store)
		sameTrees(t, a, b)
		if out := git(b.path("repo"), "fsck", "--full", "--strict"); strings.Contains(out, "error") {
			t.Error(out)
		}
		if out := git(b.path("repo"), "status", "--porcelain"); out != "" {
			t.Error(out)
		}
	})
}
