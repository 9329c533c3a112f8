package e2e

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

func TestPushThenPullIsIdentity(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		src, dst, store := treetest.New(t), treetest.New(t), open(t, t.Name())
		both := func() {
			t.Helper()
			for range 2 {
				src.Carry(store, dst, o)
			}
		}
		for _, name := range []string{
			"a", "d/e/f", "sp ace", "new\nline", "bad\xff", "back\\slash", "plus+&%41?#", "ünï/çødé", "trailing.", ".hidden", "zero",
		} {
			src.Write(name, strings.Repeat(name, 100))
		}
		src.Write("zero", "")
		big := make([]byte, 20<<20)
		_, _ = rand.NewChaCha8([32]byte{1}).Read(big) // never fails
		src.Write("big", string(big))
		both()
		src.Write("big", string(big[:18<<20]))
		src.Remove("a")
		src.Remove("d")
		src.Write("a/is/a/folder", "now")
		src.Write("d", "is a file now")
		both()
	})
}

func TestPullAdoptsObjectsOfOtherTools(t *testing.T) {
	(&treetest.Tree{T: t, Dir: server.Dir}).Write("others/x/y", "put by hand")
	dst := treetest.New(t)
	r := dst.Pull(open(t, "others"), func(c *syncer.Config) { c.Layout = state.Plain })
	testkit.Equal(t, "downloaded", r.Downloaded, 1)
	dst.Want("x/y", "put by hand")
}
