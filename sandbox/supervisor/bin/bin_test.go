package bin

import (
	"debug/buildinfo"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// TestIsWhatTheSourceBuilds fails when somebody changed the supervisor and did not run build.sh.
func TestIsWhatTheSourceBuilds(t *testing.T) {
	if testing.Short() {
		t.Skip("builds two programs")
	}
	want, err := os.ReadFile("go.version")
	if err != nil {
		t.Fatal(err)
	}
	if runtime.Version() != strings.TrimSpace(string(want)) {
		t.Skipf("the binaries were built with %s, this is %s: run supervisor/build.sh --check, which asks for that version",
			strings.TrimSpace(string(want)), runtime.Version())
	}
	if out, err := exec.CommandContext(t.Context(), "../build.sh", "--check").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestExtract(t *testing.T) {
	dir := t.TempDir()
	path, err := Extract(dir)
	if errors.Is(err, ErrNone) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil || string(b) != program {
			t.Fatalf("%d bytes of %d, %v", len(b), len(program), err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o755 {
			t.Fatal(info, err)
		}
	}
	check()
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Extract(dir); err != nil || again != path {
		t.Fatal(again, err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("written again though it was there: %v", err)
	}
	damage := map[string]func() error{
		"another's bytes": func() error { return os.WriteFile(path, []byte(strings.Repeat("x", len(program))), 0o700) },
		"cut off":         func() error { return os.Truncate(path, 100) },
		"open to all":     func() error { return os.Chmod(path, 0o777) },
		"a link": func() error {
			other := filepath.Join(t.TempDir(), "other")
			return errors.Join(os.Remove(path), os.WriteFile(other, nil, 0o700), os.Symlink(other, path))
		},
	}
	for what, do := range damage {
		if err := do(); err != nil {
			t.Fatal(what, err)
		}
		if _, err := Extract(dir); err != nil {
			t.Fatal(what, err)
		}
		check()
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 1 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
	if _, err := Extract(filepath.Join(dir, "none")); err == nil {
		t.Error("extracted into a folder that is not there")
	}
}

func TestExtractAtATime(t *testing.T) {
	if program == "" {
		t.Skip(ErrNone)
	}
	dir := t.TempDir()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := Extract(dir); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// TestIsSmall keeps what makes the program large out of it.
func TestIsSmall(t *testing.T) {
	if program == "" {
		t.Skip(ErrNone)
	}
	if n := len(program); n > 1800<<10 {
		t.Errorf("%d bytes", n)
	}
	info, err := buildinfo.Read(strings.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Deps) != 0 {
		t.Errorf("it is built from other modules: %v", info.Deps)
	}
}
