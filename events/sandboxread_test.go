package events

import (
	"context"
	"errors"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestWatchLooksAgainWithoutAnEvent(t *testing.T) {
	_, c := connected(t, false)
	ctx := testkit.Context(t)
	looks := 0
	testkit.Must(t, c.Reader.WatchThread(ctx, schemas.DefaultTenant, "t", func() (bool, error) {
		looks++
		return looks == 3, nil
	}))
	why := schemas.Errorf(schemas.CodeNotFound, "gone")
	err := c.Reader.WatchThread(ctx, schemas.DefaultTenant, "t", func() (bool, error) { return false, why })
	testkit.WantCode(t, err, schemas.CodeNotFound)
	// Also without a connection: each look may find it back.
	c.Conn.Close()
	looks = 0
	short, cancel := context.WithCancel(ctx)
	err = c.Reader.WatchThread(short, schemas.DefaultTenant, "t", func() (bool, error) {
		if looks++; looks == 2 {
			cancel()
		}
		return false, nil
	})
	testkit.Equal(t, "looks", looks, 2)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled watch: error = %v, want %v", err, context.Canceled)
	}
}
