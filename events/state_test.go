package events

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestSessionChangesByCompareAndSwap(t *testing.T) {
	_, c := connected(t, false)
	ctx := testkit.Context(t)
	s := &schemas.Session{ID: "s", Tenant: "default", Thread: "t", Owner: "w1", Epoch: 1}
	wantNoSession := func() {
		t.Helper()
		_, _, err := c.Session(ctx, "default", "t")
		testkit.WantCode(t, err, schemas.CodeNotFound)
	}
	wantNoSession()
	first, err := c.SaveSession(ctx, s, 0)
	testkit.Must(t, err)
	testkit.WantCode(t, errorOf(c.SaveSession(ctx, s, 0)), schemas.CodeConflict)
	second, err := c.SaveSession(ctx, s, first)
	testkit.Must(t, err)
	testkit.WantCode(t, errorOf(c.SaveSession(ctx, s, first)), schemas.CodeConflict)
	testkit.WantCode(t, c.DeleteSession(ctx, s, first), schemas.CodeConflict)
	s.Epoch = 7
	testkit.Must(t, c.DeleteSession(ctx, s, second))
	wantNoSession()
	// Promises 13: the next session begins with what the thread had, and not without.
	testkit.WantCode(t, errorOf(c.SaveSession(ctx, s, 0)), schemas.CodeConflict)
	last, revision, err := c.SessionStore.Session(ctx, s.Tenant, s.Thread)
	testkit.WantCode(t, err, schemas.CodeNotFound)
	testkit.Equal(t, "epoch of the thread", last.Epoch, uint64(7))
	testkit.Must(t, errorOf(c.SaveSession(ctx, s, revision)))
	// The marker lives longer than any record or output of the thread.
	third, _, err := c.SessionStore.Session(ctx, s.Tenant, s.Thread)
	testkit.Must(t, err)
	testkit.Must(t, c.DeleteSession(ctx, third, revision+1))
	m, err := c.directLast(ctx, kvStream(c.names.state), kvSubject(c.names.state, sessionKey(s.Tenant, s.Thread)))
	testkit.Must(t, err)
	ttl, err := time.ParseDuration(m.header.Get("Nats-TTL"))
	if err != nil || ttl <= max(c.topology.EventAge, c.topology.LogAge) {
		t.Errorf("time to live of the marker = %v (%v), want more than that of records and output", ttl, err)
	}
}

func TestRosterListsRegisteredWorkers(t *testing.T) {
	_, c := connected(t, false)
	ctx := testkit.Context(t)
	workers, err := c.Workers(ctx)
	testkit.Must(t, err)
	testkit.Equal(t, "workers of a new cell", len(workers), 0)
	for _, id := range []string{"a", "b"} {
		testkit.Must(t, c.Register(ctx, schemas.WorkerInfo{ID: id, Incarnation: "1"}))
	}
	testkit.Must(t, c.Register(ctx, schemas.WorkerInfo{ID: "a", Incarnation: "2"}))
	testkit.Must(t, c.Unregister(ctx, schemas.WorkerInfo{ID: "b", Incarnation: "1"}))
	testkit.Must(t, c.Unregister(ctx, schemas.WorkerInfo{ID: "never"}))
	// Promises 19: the entry of a later incarnation stays.
	testkit.Must(t, c.Unregister(ctx, schemas.WorkerInfo{ID: "a", Incarnation: "1"}))
	workers, err = c.Workers(ctx)
	testkit.Must(t, err)
	testkit.Equal(t, "number of workers", len(workers), 1)
	testkit.Equal(t, "incarnation", workers[0].Incarnation, "2")
	testkit.WantCode(t, c.Register(ctx, schemas.WorkerInfo{ID: "no id"}), schemas.CodeInvalidArgument)
}

func TestTemplatesAreSavedWhenTheyChange(t *testing.T) {
	transports(t, func(t *testing.T, listen bool) {
		_, c := connected(t, listen)
		ctx := testkit.Context(t)
		list, err := c.Templates(ctx)
		testkit.Must(t, err)
		testkit.Equal(t, "templates of a new cell", len(list), 0)
		one := &schemas.Template{Name: "one", Env: map[string]string{"A": "b"}, Policy: &schemas.TemplatePolicy{Deny: []string{"rm"}}}
		two := &schemas.Template{Name: "two", Network: schemas.NetworkHost}
		testkit.Must(t, c.SaveTemplates(ctx, []*schemas.Template{two, one}))
		list, err = c.Templates(ctx)
		testkit.Must(t, err)
		testkit.Equal(t, "templates", list, []*schemas.Template{one, two})
		got, err := c.Template(ctx, "two")
		testkit.Must(t, err)
		testkit.Equal(t, "template two", got, two)
		testkit.WantCode(t, errorOf(c.Template(ctx, "three")), schemas.CodeNotFound)
		testkit.WantCode(t, errorOf(c.Template(ctx, "a.>")), schemas.CodeInvalidArgument)

		kv, err := c.stateBucket(ctx)
		testkit.Must(t, err)
		revision := func(name string) uint64 {
			entry, err := kv.Get(ctx, templatePrefix+name)
			testkit.Must(t, err)
			return entry.Revision()
		}
		first, second := revision("one"), revision("two")
		two.Description = "changed"
		testkit.Must(t, c.SaveTemplates(ctx, []*schemas.Template{one, two}))
		testkit.Equal(t, "revision of the unchanged template", revision("one"), first)
		if revision("two") == second {
			t.Errorf("revision of the changed template = %d, want a new one", second)
		}

		testkit.Must(t, c.Register(ctx, schemas.WorkerInfo{ID: "w1", Templates: []string{"two"}}))
		testkit.Must(t, c.DeleteTemplates(ctx, []string{"one", "two", "three"}))
		list, err = c.Templates(ctx)
		testkit.Must(t, err)
		testkit.Equal(t, "templates that a worker has", list, []*schemas.Template{two})
	})
}

// Promises 14: the error of a session entry that does not decode says so, and names the entry.
func TestUnreadableSessionIsNamed(t *testing.T) {
	_, c := connected(t, false)
	ctx := testkit.Context(t)
	kv, err := c.stateBucket(ctx)
	testkit.Must(t, err)
	_, err = kv.Put(ctx, sessionKey("default", "t"), []byte(`{"epoch":"one"}`))
	testkit.Must(t, err)
	_, _, err = c.Session(ctx, "default", "t")
	testkit.WantCode(t, err, schemas.CodeInternal)
	testkit.Equal(t, "entry", schemas.AsError(err).Details[schemas.DetailUnreadable], "session.default.t")
	_, _, err = c.Session(ctx, "default", "no id")
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
}
