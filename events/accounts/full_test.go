package accounts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/accounts"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Issue 14, 4: a tenant that fills its queue, its records and its buckets fills what is its own: the other one queues, records and
// goes on.
func TestTenantFillsItsOwnStreams(t *testing.T) {
	t.Parallel()
	n := newTenants(t)
	ctx := testkit.Context(t)
	small := events.Topology{Partitions: 1, CommandBytes: 4 << 20, EventBytes: 4 << 20, LogBytes: 200 << 20, MessageBytes: 4 << 20, DeadBytes: 4 << 20}
	workers := make(map[string]*events.Conn)
	for _, tenant := range []string{"a", "b"} {
		workers[tenant] = n.connect(tenant, accounts.Worker)
		testkit.Must(t, workers[tenant].Ensure(ctx, small))
	}
	s := events.NewSubjects(schemas.DefaultCell)
	flood := func(x *attacker, subject string) (answer string) {
		t.Helper()
		body := make([]byte, 700<<10)
		for i := range 500 {
			m, err := x.Request(strings.ReplaceAll(subject, "#", fmt.Sprint("t", i)), body, testkit.Timeout)
			testkit.Must(t, err)
			if answer = string(m.Data); strings.Contains(answer, `"error"`) {
				return answer
			}
		}
		return answer
	}
	full := flood(n.attacker("a", accounts.Client), s.Command("a", "#", schemas.OpExec))
	if !strings.Contains(full, "maximum bytes exceeded") {
		t.Errorf("a full queue answers %s, want that it is full", full)
	}
	worker := n.attacker("a", accounts.Worker)
	flood(worker, s.Event("a", "#", "p", schemas.TypeProcessAccepted))
	flood(worker, "$KV.sluice-local-state.session.a.#")

	client := n.connect("b", accounts.Client)
	call, err := client.Caller().NewCall("b", &schemas.Command{SpecVersion: schemas.Version, Op: schemas.OpExec, Thread: "t", Key: "k", Exec: &schemas.Exec{Command: "true"}})
	testkit.Must(t, err)
	defer call.Close()
	testkit.Must(t, call.Send(ctx))
	testkit.Equal(t, "the other tenant's command is queued", call.Queued(), true)
	ev := &schemas.Event{SpecVersion: schemas.EventSpecVersion, ID: "e", Source: "w1", Type: schemas.TypeProcessAccepted, Tenant: "b", Thread: "t", Process: "p", Data: []byte(`{}`)}
	_, err = workers["b"].Worker().Records.Append(ctx, ev, 0)
	testkit.Must(t, err)
	_, err = workers["b"].Worker().Sessions.SaveSession(ctx, &schemas.Session{Tenant: "b", Thread: "t", ID: "s"}, 0)
	testkit.Must(t, err)
}
