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

	"github.com/sluice-dev/sluice/internal/testkit"
)

// TestBinariesMatchSource fails when the supervisor's source was changed without a run of build.sh.
func TestBinariesMatchSource(t *testing.T) {
	if testing.Short() {
		t.Skip("builds two programs")
	}
	b, err := os.ReadFile("go.version")
	testkit.Must(t, err)
	if want := strings.TrimSpace(string(b)); runtime.Version() != want {
		t.Skipf("the binaries were built with %s, this is %s: run supervisor/build.sh --check, which uses that version", want, runtime.Version())
	}
	if out, err := exec.CommandContext(t.Context(), "../build.sh", "--check").CombinedOutput(); err != nil {
		t.Errorf("build.sh --check: %v\n%s", err, out)
	}
}

// needProgram skips a test on a system without an embedded supervisor.
func needProgram(t *testing.T) {
	t.Helper()
	if program == "" {
		t.Skip(ErrNotEmbedded)
	}
}

func TestExtract(t *testing.T) {
	needProgram(t)
	dir := t.TempDir()
	path, err := Extract(dir)
	testkit.Must(t, err)
	check := func(what string) {
		t.Helper()
		b, err := os.ReadFile(path)
		testkit.Must(t, err)
		if string(b) != program {
			t.Fatalf("%s: the file has %d bytes, want the %d embedded ones", what, len(b), len(program))
		}
		info, err := os.Stat(path)
		testkit.Must(t, err)
		testkit.Equal(t, what+": mode", info.Mode(), os.FileMode(0o755))
	}
	check("first extraction")
	before, err := os.Stat(path)
	testkit.Must(t, err)
	again, err := Extract(dir)
	testkit.Must(t, err)
	testkit.Equal(t, "path of the second extraction", again, path)
	after, err := os.Stat(path)
	testkit.Must(t, err)
	if !os.SameFile(before, after) {
		t.Error("the second extraction replaced the file, want it reused")
	}
	for what, damage := range map[string]func() error{
		"other bytes": func() error { return os.WriteFile(path, []byte(strings.Repeat("x", len(program))), 0o700) },
		"truncated":   func() error { return os.Truncate(path, 100) },
		"open to all": func() error { return os.Chmod(path, 0o777) },
		"a link": func() error {
			other := filepath.Join(t.TempDir(), "other")
			return errors.Join(os.Remove(path), os.WriteFile(other, nil, 0o700), os.Symlink(other, path))
		},
	} {
		testkit.Must(t, damage())
		_, err := Extract(dir)
		testkit.Must(t, err)
		check(what)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	testkit.Must(t, err)
	testkit.Equal(t, "files in the folder", files, []string{path})
	if _, err := Extract(filepath.Join(dir, "none")); err == nil {
		t.Error("Extract into a missing folder: error = nil, want one")
	}
}

func TestExtractConcurrently(t *testing.T) {
	needProgram(t)
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

// TestProgramIsSmall fails when a large package is linked into the program.
func TestProgramIsSmall(t *testing.T) {
	needProgram(t)
	if n, most := len(program), 2100<<10; n > most {
		t.Errorf("the program has %d bytes, want at most %d", n, most)
	}
	info, err := buildinfo.Read(strings.NewReader(program))
	testkit.Must(t, err)
	testkit.Equal(t, "other modules in the program", len(info.Deps), 0)
}
