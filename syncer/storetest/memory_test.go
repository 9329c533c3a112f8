package storetest_test

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/storetest"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

func TestMemoryConforms(t *testing.T) {
	storetest.Run(t, func(*testing.T) objectstore.Store { return &storetest.Memory{} })
}

func TestRetryConforms(t *testing.T) {
	storetest.Run(t, func(*testing.T) objectstore.Store {
		return objectstore.Retry(&storetest.Memory{}, objectstore.RetryPolicy{})
	})
}
