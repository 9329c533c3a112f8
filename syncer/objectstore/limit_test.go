package objectstore_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/storetest"
)

// TestLimitBoundsTheRate sends and receives 3 MB at 1 MB/s each, in several requests at once: it takes 3 s, less the first burst. Sync 14.
func TestLimitBoundsTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objectstore.Limit(&storetest.Memory{}, 1e6, 1e6)
		data := bytes.Repeat([]byte("x"), 1e6)
		three := func(what string, request func(key string) error) {
			began, done := time.Now(), make(chan error)
			for _, key := range []string{"a", "b", "c"} {
				go func() { done <- request(key) }()
			}
			for range 3 {
				testkit.Must(t, <-done)
			}
			if took := time.Since(began); took < 2800*time.Millisecond || took > 3100*time.Millisecond {
				t.Errorf("%s 3 MB at 1 MB/s took %s, want 2.9 s to 3 s", what, took)
			}
		}
		three("sending", func(key string) error {
			_, err := store.Put(t.Context(), key, objectstore.Bytes(data), objectstore.Condition{})
			return err
		})
		for _, length := range []int64{0, 1e6} {
			three("receiving", func(key string) error {
				got, _, err := store.Get(t.Context(), key, objectstore.Range{Length: length}, nil)
				if !bytes.Equal(got, data) {
					t.Error("other bytes were received")
				}
				return err
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		if _, _, err := store.Get(ctx, "a", objectstore.Range{Length: 100e6}, nil); err == nil {
			t.Error("a canceled request succeeded")
		}
		testkit.Equal(t, "end of a canceled request", time.Since(began), time.Second)
	})
}

// TestLimitConforms runs the suite of stores.
func TestLimitConforms(t *testing.T) {
	storetest.Run(t, func(*testing.T) objectstore.Store { return objectstore.Limit(&storetest.Memory{}, 1<<40, 1<<40) })
}
