package e2e

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/syncer"
)

func TestPushThenPullElsewhere(t *testing.T) {
	for _, layout := range []syncer.Layout{syncer.Packed, syncer.Plain} {
		t.Run(string(layout), func(t *testing.T) {
			src, dst := t.TempDir(), t.TempDir()
			store := open(t, t.Name())
			first := func(c *syncer.Config) { c.Layout = layout }
			push, pull := newSyncer(t, src, store, first).Push, newSyncer(t, dst, store).Pull
			both := func() {
				t.Helper()
				for range 2 {
					if r, err := push(t.Context()); err != nil {
						t.Fatalf("%+v, %v", r, err)
					}
					if r, err := pull(t.Context()); err != nil {
						t.Fatalf("%+v, %v", r, err)
					}
				}
				if files(t, src) != files(t, dst) {
					t.Fatal("they differ")
				}
			}
			for _, name := range []string{
				"a", "d/e/f", "sp ace", "new\nline", "bad\xff", "back\\slash", "plus+&%41?#", "ünï/çødé", "trailing.", ".hidden", "zero",
			} {
				write(t, src, name, strings.Repeat(name, 100))
			}
			write(t, src, "zero", "")
			big := make([]byte, 20<<20)
			_, _ = rand.NewChaCha8([32]byte{1}).Read(big) // it never fails
			write(t, src, "big", string(big))
			both()
			write(t, src, "big", string(big[:18<<20]))
			for _, name := range []string{"a", "d"} {
				if err := os.RemoveAll(filepath.Join(src, name)); err != nil {
					t.Fatal(err)
				}
			}
			write(t, src, "a/is/a/folder", "now")
			write(t, src, "d", "is a file now")
			both()
		})
	}
}

func TestAWorkspaceThatOtherToolsHavePut(t *testing.T) {
	dst := t.TempDir()
	write(t, server.Dir, "others/x/y", "put by hand")
	r, err := newSyncer(t, dst, open(t, "others"), func(c *syncer.Config) { c.Layout = syncer.Plain }).Pull(t.Context())
	if err != nil || r.Downloaded != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if got, err := os.ReadFile(filepath.Join(dst, "x/y")); err != nil || string(got) != "put by hand" {
		t.Errorf("%q, %v", got, err)
	}
}
