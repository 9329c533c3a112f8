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
	"github.com/sluice-dev/sluice/syncer/storetest"
)

// oddNames are names that tools and servers stumble over. None is the beginning of another's path by chance alone.
func oddNames() []string {
	return []string{
		"a", "a-", "a.b", "A", "b", " ", "-rf", "new\nline", "tab\t", "back\\slash", "bad\xff\xfe", "caf\u00e9", "cafe\u0301",
		"%2e%2e", "plus+&?#", "...", "..a", ".sandbox-stat", ".sandbox-statement", ".git", "CON", "*", "'\"", "\x7f", "日本",
		strings.Repeat("n", 255),
	}
}

// grow makes a tree under dir, over what is there already: files of many sizes, modes, symlinks, empty folders.
func grow(t *rapid.T, dir string, depth int) {
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(oddNames()), 0, 5, rapid.ID[string]).Draw(t, "names") {
		path := filepath.Join(dir, name)
		must(t, os.RemoveAll(path))
		switch kind := rapid.IntRange(0, 9).Draw(t, "kind"); {
		case kind == 0: // gone, or never there
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
	if err != nil {
		t.Fatal(err)
	}
}

// TestPushThenPullElsewhereIsTheIdentity goes through two generations of a tree: made, then changed. After each, both
// sides are the same in all that a sync carries, and neither has anything left to do.
func TestPushThenPullElsewhereIsTheIdentity(t *testing.T) {
	checks := flag.Lookup("rapid.checks").Value
	before := checks.String()
	defer func() { _ = checks.Set(before) }() // it takes what it has given
	if err := checks.Set(fmt.Sprint(rounds(20, 300))); err != nil {
		t.Fatal(err)
	}
	layouts(t, func(t *testing.T, o option) {
		rapid.Check(t, func(r *rapid.T) {
			top, err := os.MkdirTemp("", "identity-")
			must(r, err)
			defer func() { _ = os.RemoveAll(top) }() // a folder of the system's for such things
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
				_, err = open(here).Push(t.Context())
				must(r, err)
				_, err = open(there).Pull(t.Context())
				must(r, err)
				if x, y := list(t, here, true), list(t, there, true); !slices.Equal(x, y) {
					r.Fatalf("the trees differ\n%s\n\n%s", strings.Join(x, "\n"), strings.Join(y, "\n"))
				}
				for _, dir := range []string{here, there} {
					st, err := open(dir).Status(t.Context())
					must(r, err)
					if len(st.Push)+len(st.Pull)+len(st.Conflicts) > 0 {
						r.Fatalf("%s: there is more to do: %+v", dir, st)
					}
					for _, op := range []func() (*syncer.Report, error){
						func() (*syncer.Report, error) { return open(dir).Push(t.Context()) },
						func() (*syncer.Report, error) { return open(dir).Pull(t.Context()) },
					} {
						if report, err := op(); err != nil || report.Changed {
							r.Fatalf("%s: %+v, %v", dir, report, err)
						}
					}
				}
			}
		})
	})
}

// FuzzLocalState has the state file in the folder be anything: a push and a pull may refuse it, and never write outside.
func FuzzLocalState(f *testing.F) {
	for _, s := range hostile() {
		f.Add([]byte(s), []byte(nil))
	}
	f.Add([]byte("{"), []byte("sluice-index-1\n\x00torn"))
	f.Add([]byte("{"), []byte(`["Li4vZXNjYXBlZA=="]`))
	f.Fuzz(func(t *testing.T, state, other []byte) {
		up := newTree(t)
		up.mkdir("root")
		root, store := &tree{t, up.path("root")}, newStore()
		a := newTree(t)
		a.write("d/f", "from a")
		a.push(store)
		root.write(syncer.ReservedName, string(state))
		root.write(syncer.ReservedName+".index", string(other))
		root.write(syncer.ReservedName+".journal", string(other))
		root.write("mine", "x")
		_, _ = root.limited(store).Pull(t.Context())
		_, _ = root.limited(store).Push(t.Context())
		if got := up.listing(); len(got) == 0 || root.read("mine") != "x" {
			t.Fatalf("%q", got)
		}
		entries, err := os.ReadDir(up.dir)
		if err != nil || len(entries) != 1 {
			t.Fatalf("outside the root: %v, %v", entries, err)
		}
	})
}
