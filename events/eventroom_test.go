package events

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// ofProcess is a record of a process with the largest output that an end may have, if it is one.
func ofProcess(t *testing.T, i int, typ schemas.EventType) *schemas.Event {
	t.Helper()
	ev := record("t", fmt.Sprintf("p%d", i), typ, fmt.Sprintf("%s-%d", typ, i))
	var data any = schemas.Accepted{Command: "true", Fingerprint: "f"}
	if typ.Terminal() {
		text := strings.Repeat("x", schemas.MaxRecordOutput)
		data = &schemas.Result{Stdout: text, Stderr: text, Command: "true", Fingerprint: "f"}
	}
	testkit.Must(t, ev.SetData(data))
	return ev
}

// Promises 10: EVT drops nothing before its age. When it is nearly full, no process is accepted, and each one that was can record its
// end, also when events that are no records fill EVT meanwhile.
func TestNearlyFullEventsKeepRoomForEveryEnd(t *testing.T) {
	n := newNode(t, false)
	c, other := n.connect(), n.connect()
	ctx := testkit.Context(t)
	testkit.Must(t, c.Ensure(ctx, Topology{EventBytes: 4 << 20}))
	testkit.Must(t, other.Ensure(ctx, Topology{EventBytes: 4 << 20}))
	seqs := []uint64{}
	for {
		seq, err := c.Append(ctx, ofProcess(t, len(seqs), schemas.TypeProcessAccepted), 0)
		if err != nil {
			testkit.WantCode(t, err, schemas.CodeLimitExceeded)
			break
		}
		if seqs = append(seqs, seq); len(seqs) > 20_000 {
			t.Fatal("EVT accepts processes for ever")
		}
	}
	if len(seqs) < 100 {
		t.Fatalf("%d processes were accepted, want more than 100", len(seqs))
	}
	// A process that was accepted before is no new one: its record answers.
	_, err := c.Append(ctx, ofProcess(t, 0, schemas.TypeProcessAccepted), 0)
	testkit.WantCode(t, err, schemas.CodeConflict)
	// A rejection for the record takes room too.
	err = nil
	for i := len(seqs); err == nil; i++ {
		_, err = c.Append(ctx, ofProcess(t, i, schemas.TypeProcessRejected), 0)
	}
	testkit.WantCode(t, err, schemas.CodeLimitExceeded)
	err = nil
	for i := 0; err == nil; i++ {
		ev := record("t", "", schemas.TypeHookFinished, fmt.Sprint(i))
		testkit.Must(t, ev.SetData(schemas.HookRun{Hook: strings.Repeat("h", 10<<10)}))
		err = c.Publish(ctx, ev)
	}
	testkit.WantCode(t, err, schemas.CodeLimitExceeded)
	for i, after := range seqs {
		wait, err := c.AppendAsync(ofProcess(t, i, schemas.TypeProcessStarted), after)
		testkit.Must(t, err)
		after, err = wait(ctx)
		testkit.Must(t, err)
		_, err = c.Append(ctx, ofProcess(t, i, schemas.TypeProcessExited), after)
		testkit.Must(t, err)
	}
	first, err := c.Accepted(ctx, schemas.DefaultTenant, "t", "p0")
	testkit.Must(t, err)
	testkit.Equal(t, "sequence of the first record", first.Seq, seqs[0])

	// Another worker's view is that of its last read; the next one shows that EVT is full.
	watching, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { other.watchRoom(watching, "w2") })
	defer all.Wait()
	defer stop()
	err = nil
	for i := 1 << 20; err == nil; i++ {
		ev := ofProcess(t, i, schemas.TypeProcessAccepted)
		if _, err = other.Append(ctx, ev, 0); err == nil {
			_, err = other.Append(ctx, ofProcess(t, i, schemas.TypeProcessExited), mustLast(t, other, ev).Seq)
		}
	}
	testkit.WantCode(t, err, schemas.CodeLimitExceeded)
}

func mustLast(t *testing.T, c *peer, ev *schemas.Event) *schemas.Event {
	t.Helper()
	last, err := c.Records.Last(testkit.Context(t), ev.Tenant, ev.Thread, ev.Process)
	testkit.Must(t, err)
	return last
}

// A cell of an earlier version, whose EVT drops its oldest events, keeps them from now on.
func TestEventsOfAnEarlierCellAreKept(t *testing.T) {
	n := newNode(t, false)
	c := n.connect()
	ctx := testkit.Context(t)
	var old jetstream.StreamConfig
	for _, cfg := range c.streamConfigs(Topology{}.WithDefaults()) {
		if cfg.Name == c.names.evt {
			old = cfg
		}
	}
	old.Discard = jetstream.DiscardOld
	_, err := c.js.CreateStream(ctx, old)
	testkit.Must(t, err)
	testkit.Must(t, c.Ensure(ctx, Topology{}))
	s, err := c.js.Stream(ctx, c.names.evt)
	testkit.Must(t, err)
	testkit.Equal(t, "discard policy", s.CachedInfo().Config.Discard, jetstream.DiscardNew)
}

// as is an event of another tenant.
func as(tenant string, ev *schemas.Event) *schemas.Event {
	ev.Tenant, ev.ID = tenant, tenant+ev.ID
	return ev
}

// Issue 14, 4: a tenant that fills EVT has its own commands and events refused first, by every worker; what the other ones have, they keep.
func TestTenantFillsItsShareOfEvents(t *testing.T) {
	t.Parallel()
	n := newNode(t, false)
	w1, w2 := n.connect(), n.connect()
	ctx := testkit.Context(t)
	for _, c := range []*peer{w1, w2} {
		testkit.Must(t, c.Ensure(ctx, Topology{EventBytes: 4 << 20}))
	}
	processes := 0
	run := func(c *peer, tenant string) error {
		processes++
		seq, err := c.Append(ctx, as(tenant, ofProcess(t, processes, schemas.TypeProcessAccepted)), 0)
		if err == nil {
			_, err = c.Append(ctx, as(tenant, ofProcess(t, processes, schemas.TypeProcessExited)), seq)
		}
		return err
	}
	// Both workers serve the tenant, and report to each other.
	var err error
	for err == nil {
		for _, c := range []*peer{w1, w2} {
			for range 10 {
				if err == nil {
					err = run(c, "a")
				}
			}
		}
		testkit.Must(t, w1.room.exchange(ctx, w1.Conn, "w1", w1.room.read(ctx, w1.Conn), false))
		testkit.Must(t, w2.room.exchange(ctx, w2.Conn, "w2", w2.room.read(ctx, w2.Conn), false))
		testkit.Must(t, w1.room.exchange(ctx, w1.Conn, "w1", w1.room.read(ctx, w1.Conn), false))
	}
	testkit.WantCode(t, err, schemas.CodeLimitExceeded)
	if !strings.Contains(err.Error(), "tenant a") {
		t.Errorf("error = %v, want one that names the tenant's share", err)
	}
	status, err := w1.Reader.Status(ctx, "a")
	testkit.Must(t, err)
	got, limit := float64(status.Records.TenantBytes), float64(acceptBytes(4<<20))*shareFactor/(shareFactor+1)
	if got < 0.9*limit || got > 1.02*limit {
		t.Errorf("EVT holds %.0f bytes of the tenant, want nearly its share of %.0f", got, limit)
	}
	// A worker that starts now knows that too, and other tenants go on.
	w3 := n.connect()
	testkit.Must(t, w3.Ensure(ctx, Topology{}))
	testkit.Must(t, w3.room.exchange(ctx, w3.Conn, "w3", w3.room.read(ctx, w3.Conn), true))
	for _, c := range []*peer{w1, w2, w3} {
		testkit.WantCode(t, run(c, "a"), schemas.CodeLimitExceeded)
		for range 10 {
			testkit.Must(t, run(c, "b"))
		}
	}
	// Events that are no records take a little more, and hold up none of other tenants.
	dropped := make(map[string]int)
	buffer := w1.NewEventBuffer(func(ev *schemas.Event, _ error) { dropped[ev.Tenant]++ })
	for i := range 100 {
		for tenant, size := range map[string]int{"a": 10 << 10, "b": 10} {
			ev := as(tenant, record("t", "", schemas.TypeHookFinished, fmt.Sprint(i)))
			testkit.Must(t, ev.SetData(schemas.HookRun{Hook: strings.Repeat("h", size)}))
			buffer.Record(ctx, ev)
		}
	}
	buffer.store(ctx, waits)
	testkit.Equal(t, "events that wait", len(w1.room.shares.waiting), 0)
	testkit.Equal(t, "tenants whose events were dropped", len(dropped), 1)
	if dropped["a"] == 0 || dropped["a"] == 100 {
		t.Errorf("%d of 100 events of the tenant were dropped, want some", dropped["a"])
	}
}
