package e2e

import (
	"testing"

	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/storetest"
)

func TestStoreConforms(t *testing.T) {
	storetest.Run(t, func(t *testing.T) syncer.Store { return open(t, t.Name()) })
}
