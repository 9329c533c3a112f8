package removal

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

const ordinaryUser = 65534

// asEachUser runs a test with a folder of the calling user, and for root with one of an ordinary user, on a thread with that user's
// rights to files.
func asEachUser(t *testing.T, test func(t *testing.T, root *os.Root)) {
	t.Helper()
	open := func(t *testing.T) *os.Root {
		dir := t.TempDir()
		if t.Name() != "" && os.Geteuid() == 0 && strings.HasSuffix(t.Name(), "/ordinary") {
			testkit.Must(t, os.Chown(dir, ordinaryUser, ordinaryUser))
		}
		root, err := os.OpenRoot(dir)
		testkit.Must(t, err)
		t.Cleanup(func() { root.Close() })
		return root
	}
	t.Run("caller", func(t *testing.T) { test(t, open(t)) })
	if os.Geteuid() != 0 {
		return
	}
	t.Run("ordinary", func(t *testing.T) {
		root := open(t)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		testkit.Must(t, unix.Setfsuid(ordinaryUser)) // the kernel takes the capabilities that override modes with it
		defer func() { testkit.Must(t, unix.Setfsuid(0)) }()
		if f, err := os.Open("/etc/shadow"); err == nil {
			f.Close()
			t.Fatal("the thread still has root's rights")
		}
		test(t, root)
	})
}

func wantEmpty(t *testing.T, root *os.Root) {
	t.Helper()
	f, err := root.Open(".")
	testkit.Must(t, err)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	testkit.Must(t, err)
	if len(names) > 0 {
		t.Errorf("left: %q", names)
	}
}

// Hardening 6: folders nested deeper than a process may have files open, and than a path is long.
func TestDeepTreeIsRemoved(t *testing.T) {
	asEachUser(t, func(t *testing.T, root *os.Root) {
		const depth = 400
		name := strings.Repeat("d", 20) // the path is longer than a path may be
		testkit.Must(t, root.Mkdir("top", 0o755))
		dir, err := root.Open("top")
		testkit.Must(t, err)
		at := int(dir.Fd())
		for i := range depth {
			testkit.Must(t, unix.Mkdirat(at, name, 0o755))
			next, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			testkit.Must(t, err)
			if i > 0 {
				testkit.Must(t, unix.Close(at))
			}
			at = next
		}
		testkit.Must(t, unix.Close(at))
		testkit.Must(t, dir.Close())
		var was unix.Rlimit
		testkit.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
		few := unix.Rlimit{Cur: 256, Max: was.Max}
		testkit.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
		defer func() { testkit.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)) }()
		if err := root.RemoveAll("top"); err == nil {
			t.Fatal("the tree is no attack: os.Root removes it")
		}
		testkit.Must(t, All(root, "top"))
		wantEmpty(t, root)
	})
}

// Hardening 6: every Go module cache has folders of mode 0555, and a process may leave 000.
func TestTreeWithoutPermissionsIsRemoved(t *testing.T) {
	asEachUser(t, func(t *testing.T, root *os.Root) {
		outside := "outside"
		testkit.Must(t, root.Mkdir(outside, 0o500))
		for _, mode := range []os.FileMode{0o555, 0, 0o100, 0o400, 0o200} {
			top := fmt.Sprintf("top%o", mode)
			testkit.Must(t, root.MkdirAll(filepath.Join(top, "a/b/c"), 0o755))
			for i, dir := range []string{"a/b/c", "a/b", "a", "."} {
				path := filepath.Join(top, dir)
				testkit.Must(t, root.WriteFile(filepath.Join(path, fmt.Sprint("file", i)), []byte("x"), 0o444))
				testkit.Must(t, root.Symlink("../../../../"+outside, filepath.Join(path, "link")))
				testkit.Must(t, root.Chmod(path, mode))
			}
			testkit.Must(t, All(root, top))
			testkit.Must(t, All(root, top)) // it is gone
		}
		info, err := root.Lstat(outside)
		testkit.Must(t, err)
		testkit.Equal(t, "mode of what links lead to", info.Mode().Perm(), os.FileMode(0o500))
		testkit.Must(t, root.Symlink(outside, "link"))
		testkit.Must(t, All(root, "link"))
		testkit.Must(t, All(root, outside))
		wantEmpty(t, root)
	})
}

// A folder with more names than are read at once.
func TestWideTreeIsRemoved(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	testkit.Must(t, err)
	defer root.Close()
	for i := range namesAtOnce + 10 {
		testkit.Must(t, root.MkdirAll(fmt.Sprintf("top/a/%d/b", i), 0o755))
	}
	testkit.Must(t, All(root, "top"))
	wantEmpty(t, root)
}
