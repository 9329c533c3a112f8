package processor_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

// slowStore is a store of sessions whose deletes have no answer while it is slow. What it is asked to delete is deleted all the same, or not.
type slowStore struct {
	processor.Sessions

	slow    atomic.Bool
	deletes bool
}

func (s *slowStore) DeleteSession(ctx context.Context, session *schemas.Session, revision uint64) error {
	if !s.slow.Load() {
		return s.Sessions.DeleteSession(ctx, session, revision)
	}
	if s.deletes {
		if err := s.Sessions.DeleteSession(ctx, session, revision); err != nil && !errors.Is(err, schemas.ErrConflict) {
			return err
		}
	}
	return schemas.Errorf(schemas.CodeDeadlineExceeded, "no answer")
}

// A session that has ended stayed listed until it expired, and its end had no event, when NATS did not answer the delete of its entry in time.
func TestEndedSessionGoesAlthoughItsDeleteIsLate(t *testing.T) {
	for name, deletes := range map[string]bool{"deleted": true, "not deleted": false} {
		t.Run(name, func(t *testing.T) {
			store := &slowStore{deletes: deletes}
			c, _ := newRig(t, func(cfg *processor.Config) {
				store.Sessions = cfg.Sessions
				cfg.Sessions = store
			})
			wantFields(t, c.exec(command("k", sh(":"))), schemas.Result{Success: true})
			first := c.session().ID
			store.slow.Store(true)
			_, err := c.conn.StopSession(c.ctx, schemas.DefaultTenant, "t", schemas.StopRequest{})
			testkit.WantCode(t, err, schemas.CodeDeadlineExceeded)
			store.slow.Store(false)
			c.awaitEvent(schemas.TypeSessionTerminated)
			_, _, err = c.conn.Session(c.ctx, schemas.DefaultTenant, "t")
			testkit.WantCode(t, err, schemas.CodeNotFound)
			wantFields(t, c.exec(command("k2", sh(":"))), schemas.Result{Success: true})
			equal(t, "the next command has another session", c.session().ID != first, true)
		})
	}
}
