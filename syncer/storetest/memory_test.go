package storetest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) syncer.Store { return &storetest.Memory{} })
}

func TestRetriedMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) syncer.Store { return syncer.Retry(&storetest.Memory{}, syncer.RetryPolicy{}) })
}
