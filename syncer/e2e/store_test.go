package e2e

import (
	"testing"

	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/storetest"
)

func TestStoreConforms(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objectstore.Store { return open(t, t.Name()) })
}
