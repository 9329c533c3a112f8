package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// A request that workers decline is sent again for a minute, and one that they refuse is not.
func TestDeclinedRequestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := schemas.Errorf(schemas.CodePoolExhausted, "full").With(schemas.DetailDeclined, schemas.DeclinedFull)
		tries, begun := 0, time.Now()
		err := whileDeclined(context.Background(), func() error {
			tries++
			return full
		})
		testkit.WantCode(t, err, schemas.CodePoolExhausted)
		if took := time.Since(begun); tries < 30 || took > declinePatience+time.Second {
			t.Errorf("%d tries in %s", tries, took)
		}
		tries = 0
		testkit.Must(t, whileDeclined(context.Background(), func() error {
			if tries++; tries < 4 {
				return full
			}
			return nil
		}))
		testkit.Equal(t, "tries until there was room", tries, 4)
		tries = 0
		err = whileDeclined(context.Background(), func() error {
			tries++
			return schemas.ErrNotFound
		})
		testkit.WantCode(t, err, schemas.CodeNotFound)
		testkit.Equal(t, "tries of what is refused", tries, 1)
	})
}
