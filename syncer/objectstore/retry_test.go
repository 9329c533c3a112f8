package objectstore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/storetest"
)

// outage is a store that does not answer for a time.
type outage struct {
	objectstore.Decorator
	until time.Time
	tries int
}

func newOutage() *outage {
	o := &outage{}
	o.Decorator = objectstore.Decorator{Store: &storetest.Memory{}, Do: func(_ context.Context, request func() error) error {
		o.tries++
		if time.Now().Before(o.until) {
			return schemas.Errorf(schemas.CodeUnavailable, "connection refused")
		}
		return request()
	}}
	return o
}

// TestOutageOfMinutesIsWaitedOut has a store that has answered, and then does not for minutes. Sync 9.
func TestOutageOfMinutesIsWaitedOut(t *testing.T) {
	for _, test := range []struct {
		name     string
		answered bool
		lasts    time.Duration
		code     schemas.Code
		most     int // tries
	}{
		{"minutes", true, 4 * time.Minute, schemas.CodeNotFound, 60},
		{"too long", true, time.Hour, schemas.CodeUnavailable, 80},
		{"seconds of an unknown store", false, 6 * time.Second, schemas.CodeNotFound, 15},
		{"an unknown store", false, time.Minute, schemas.CodeUnavailable, 15},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOutage()
				s := objectstore.Retry(o, objectstore.RetryPolicy{})
				if test.answered {
					_, err := s.Stat(t.Context(), "k")
					testkit.WantCode(t, err, schemas.CodeNotFound)
				}
				o.tries, o.until = 0, time.Now().Add(test.lasts)
				_, err := s.Stat(t.Context(), "k")
				testkit.WantCode(t, err, test.code)
				if o.tries > test.most {
					t.Errorf("%d tries, want at most %d", o.tries, test.most)
				}
			})
		})
	}
}
