package syncer_test

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/state/statetest"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// oddNames returns names that tools and servers mishandle.
func oddNames() []string {
	return []string{
		"a", "a-", "a.b", "A", "b", " ", "-rf", "new\nline", "tab\t", "back\\slash", "bad\xff\xfe", "caf\u00e9", "cafe\u0301",
		"%2e%2e", "plus+&?#", "...", "..a", ".sandbox-stat", ".sandbox-statement", ".git", "CON", "*", "'\"", "\x7f", "日本",
		strings.Repeat("n", 255),
	}
}

// grow makes a random tree under dir, over what is there: files of many sizes and modes, symlinks, empty folders.
func grow(t *rapid.T, dir string, depth int) {
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(oddNames()), 0, 5, rapid.ID[string]).Draw(t, "names") {
		path := filepath.Join(dir, name)
		must(t, os.RemoveAll(path))
		switch kind := rapid.IntRange(0, 9).Draw(t, "kind"); {
		case kind == 0: // no such path
		case kind == 1:
			must(t, os.Symlink(rapid.SampledFrom([]string{"a", "b/a", "nowhere", "bad\xff", "./a//b"}).Draw(t, "target"), path))
		case kind <= 4 && depth < 3:
			must(t, os.Mkdir(path, 0o755))
			grow(t, path, depth+1)
			must(t, os.Chmod(path, fs.FileMode(rapid.SampledFrom([]int{0o700, 0o755, 0o777, 0o750}).Draw(t, "mode"))))
		default:
			size := rapid.SampledFrom([]int{0, 1, 2, 3, 100, 101, 102, 103, 4096, 4097, 70_000}).Draw(t, "size")
			if rapid.IntRange(0, 60).Draw(t, "large") == 0 {
				size = rapid.SampledFrom([]int{1 << 20, 1<<20 + 1, 8<<20 + 1}).Draw(t, "size")
			}
			data := bytes.Repeat([]byte{rapid.Byte().Draw(t, "fill")}, size)
			must(t, os.WriteFile(path, data, 0o600))
			must(t, os.Chmod(path, fs.FileMode(rapid.SampledFrom([]int{0o600, 0o644, 0o755, 0o666, 0o711}).Draw(t, "mode"))))
		}
	}
}

func must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// readRegular returns a file and what it has. A path that is no regular file is an error.
func readRegular(path string) (fs.FileInfo, []byte, error) {
	info, err := os.Lstat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrInvalid
	}
	if err != nil {
		return nil, nil, err
	}
	data, err := os.ReadFile(path)
	return info, data, err
}

// keepTimes gives each file of dir that is as it was in earlier its time there: a new time alone is no change, and no push sends it.
func keepTimes(t *rapid.T, dir, earlier string) {
	must(t, filepath.WalkDir(earlier, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(earlier, path)
		if err != nil || strings.HasPrefix(name, state.ReservedName) {
			return err
		}
		was, data, err := readRegular(path)
		if err != nil {
			return err
		}
		now := filepath.Join(dir, name)
		if is, same, err := readRegular(now); err == nil && is.Mode() == was.Mode() && bytes.Equal(data, same) {
			return os.Chtimes(now, was.ModTime(), was.ModTime())
		}
		return nil
	}))
}

// TestPushThenPullIsIdentity syncs two generations of a tree: a new one, then a changed one. After each, both sides are equal
// in everything that a sync carries, and neither has anything left to do.
func TestPushThenPullIsIdentity(t *testing.T) {
	checks := flag.Lookup("rapid.checks").Value
	before := checks.String()
	defer func() { _ = checks.Set(before) }() // a value that it has returned
	if err := checks.Set(fmt.Sprint(treetest.Rounds(20, 300))); err != nil {
		t.Fatal(err)
	}
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		rapid.Check(t, func(r *rapid.T) {
			top, err := os.MkdirTemp("", "identity-")
			must(r, err)
			defer func() { _ = os.RemoveAll(top) }() // rapid.T has no TempDir
			here, there := filepath.Join(top, "here"), filepath.Join(top, "there")
			store := &storetest.Memory{}
			open := func(dir string) *syncer.Syncer {
				cfg := syncer.Config{Root: dir, Store: store, Remote: "test://store"}
				o(&cfg)
				s, err := syncer.New(cfg)
				must(r, err)
				return s
			}
			for _, dir := range []string{here, there} {
				must(r, os.Mkdir(dir, 0o755))
			}
			for range 2 {
				grow(r, here, 0)
				keepTimes(r, here, there)
				_, err = open(here).Push(t.Context())
				must(r, err)
				_, err = open(there).Pull(t.Context())
				must(r, err)
				if x, y := (&treetest.Tree{T: t, Dir: here}).ListWithTimes(), (&treetest.Tree{T: t, Dir: there}).ListWithTimes(); !slices.Equal(x, y) {
					r.Fatalf("the pulled tree differs (-want +got):\n%s", treetest.Differences(x, y))
				}
				for _, dir := range []string{here, there} {
					st, err := open(dir).Status(t.Context())
					must(r, err)
					if len(st.Push)+len(st.Pull)+len(st.Conflicts) > 0 {
						r.Fatalf("%s: status = %+v, want nothing to do", dir, st)
					}
					for _, op := range treetest.PushAndPull() {
						report, err := op(open(dir), t.Context())
						must(r, err)
						if report.Changed {
							r.Fatalf("%s: report = %+v, want nothing changed", dir, report)
						}
					}
				}
			}
		})
	})
}

// FuzzLocalState syncs a folder with any state file, index and journal: a push and a pull may refuse them, and never write outside the root.
func FuzzLocalState(f *testing.F) {
	for _, s := range statetest.Hostile() {
		f.Add([]byte(s), []byte(nil), []byte(nil))
	}
	own := treetest.New(f)
	own.Write("d/f", "x")
	own.Push(&storetest.Memory{})
	kept := func(suffix string) []byte {
		data, err := os.ReadFile(own.Path(state.ReservedName + suffix))
		own.Must(err)
		return data
	}
	f.Add(kept(""), kept(".index"), []byte(`{"version":"v","from":"","swapped":["ZA=="],"moves":[{"at":"ZC9m","staged":".sluice/x","inode":7},{"at":"Li4vZXNjYXBlZA=="}],"modes":["ZC9m"]}`))
	f.Add([]byte("{"), []byte("sluice-index-1\n\x00torn"), []byte(`["Li4vZXNjYXBlZA=="]`))
	f.Fuzz(func(t *testing.T, local, index, journal []byte) {
		up, a, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
		root := up.Root()
		a.Write("d/f", "from a")
		a.Push(store)
		root.Write(state.ReservedName, string(local))
		root.Write(state.ReservedName+".index", string(index))
		if len(journal) > 0 { // as after a pull that was not interrupted
			root.Write(state.ReservedName+".journal", string(journal))
		}
		root.Write("mine", "x")
		_, _ = limited(root, store).Pull(t.Context())
		_, _ = limited(root, store).Push(t.Context())
		root.Want("mine", "x")
		up.WantOnlyRoot()
	})
}
