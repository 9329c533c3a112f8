package e2e

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer"
)

func TestPushThenPullIsIdentity(t *testing.T) {
	for _, layout := range []syncer.Layout{syncer.Packed, syncer.Plain} {
		t.Run(string(layout), func(t *testing.T) {
			src, dst := t.TempDir(), t.TempDir()
			store := open(t, t.Name())
			first := func(c *syncer.Config) { c.Layout = layout }
			push, pull := newSyncer(t, src, store, first).Push, newSyncer(t, dst, store).Pull
			both := func() {
				t.Helper()
				for range 2 {
					mustSync(t, push)
					mustSync(t, pull)
				}
				if files(t, src) != files(t, dst) {
					t.Fatalf("the pulled tree is\n%s\nwant\n%s", files(t, dst), files(t, src))
				}
			}
			for _, name := range []string{
				"a", "d/e/f", "sp ace", "new\nline", "bad\xff", "back\\slash", "plus+&%41?#", "ünï/çødé", "trailing.", ".hidden", "zero",
			} {
				write(t, src, name, strings.Repeat(name, 100))
			}
			write(t, src, "zero", "")
			big := make([]byte, 20<<20)
			_, _ = rand.NewChaCha8([32]byte{1}).Read(big) // never fails
			write(t, src, "big", string(big))
			both()
			write(t, src, "big", string(big[:18<<20]))
			for _, name := range []string{"a", "d"} {
				testkit.Must(t, os.RemoveAll(filepath.Join(src, name)))
			}
			write(t, src, "a/is/a/folder", "now")
			write(t, src, "d", "is a file now")
			both()
		})
	}
}

func TestPullAdoptsObjectsOfOtherTools(t *testing.T) {
	dst := t.TempDir()
	write(t, server.Dir, "others/x/y", "put by hand")
	r, err := newSyncer(t, dst, open(t, "others"), func(c *syncer.Config) { c.Layout = syncer.Plain }).Pull(t.Context())
	testkit.Must(t, err)
	testkit.Equal(t, "downloaded", r.Downloaded, 1)
	got, err := os.ReadFile(filepath.Join(dst, "x/y"))
	testkit.Must(t, err)
	testkit.Equal(t, "x/y", string(got), "put by hand")
}
