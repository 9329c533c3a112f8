package syncer_test

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// TestIncludeLeavesTheRestAlone pushes and pulls with include patterns: what they do not match stays on both sides as it is, and is not
// deleted. Folders above what they match are made. Sync 14.
func TestIncludeLeavesTheRestAlone(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		include := func(patterns ...string) treetest.Option {
			return func(c *syncer.Config) { c.Include = patterns }
		}
		a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
		for _, name := range []string{"src/a.go", "src/deep/b.go", "src/notes.txt", "docs/x/y.md", "top.txt"} {
			a.Write(name, "1")
		}
		a.Push(store, o, include("src/**/*.go", "docs"))
		b.Pull(store)
		for name, want := range map[string]bool{"src/a.go": true, "src/deep/b.go": true, "src/notes.txt": false, "docs/x/y.md": true, "top.txt": false} {
			b.WantExists(name, want)
		}
		a.Push(store)
		a.Remove("docs")
		a.Remove("src")
		a.Write("top.txt", "22")
		testkit.Equal(t, "paths deleted", a.Push(store, include("src")).Deleted, 5)
		c := treetest.New(t)
		c.Pull(store, include("docs/x/*.md", "top.*"))
		for name, want := range map[string]bool{"docs/x/y.md": true, "top.txt": true, "src": false} {
			c.WantExists(name, want)
		}
		c.Want("docs/x/y.md", "1")
		_, err := c.Syncer(store, include("[")).Push(t.Context())
		testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	})
}
