//go:build unix

package diskspace_test

import (
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/internal/diskspace"
	"github.com/sluice-dev/sluice/internal/testkit"
)

func TestReserve(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ size, set, want int64 }{
		{100 << 30, 0, 1 << 30}, {10 << 30, 0, 1 << 29}, {0, 0, 0}, {10 << 30, 2 << 30, 2 << 30}, {100 << 30, 1, 1},
	} {
		testkit.Equal(t, "reserve", diskspace.Space{Size: c.size}.Reserve(c.set), c.want)
	}
}

func TestOf(t *testing.T) {
	t.Parallel()
	s, err := diskspace.Of(t.TempDir())
	testkit.Must(t, err)
	if s.Free <= 0 || s.Free > s.Size {
		t.Errorf("space = %+v, want more than 0 and at most the size", s)
	}
	if _, err := diskspace.Of(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("no error for a missing folder")
	}
}
