package events

import (
	"fmt"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// small is a LOG whose budgets a test can fill: 1 MiB for a process and 4 MiB for a tenant.
func small() Topology {
	return Topology{LogBytes: 64 << 20, LogProcessBytes: 1 << 20, LogTenantBytes: 4 << 20}
}

// storedBytes is what LOG holds on a subject.
func storedBytes(t *testing.T, c *peer, subject string) (n int64) {
	t.Helper()
	ctx, ahead := testkit.Context(t), make(chan storedMsg)
	var err error
	go func() {
		defer close(ahead)
		err = (&logReader{conn: c.Conn, subject: subject}).fetch(ctx, 1, 0, ahead)
	}()
	for m := range ahead {
		n += int64(len(m.data))
	}
	testkit.Must(t, err)
	return n
}

// Promises 11: a process that prints without end drops its own oldest output alone. Its worker learns what was dropped,
// in few reports, and the range says where the rest begins.
func TestProcessDropsItsOwnOldestOutput(t *testing.T) {
	c := newNode(t, false).connect()
	testkit.Must(t, c.Ensure(testkit.Context(t), small()))
	quiet := newOutput(t, c, ref("t", "quiet"))
	testkit.Must(t, quiet.print(schemas.Stdout, noise(1, 100<<10)))
	quiet.close()

	loud := ref("t", "loud")
	type dropped struct{ from, to int64 }
	reports := map[schemas.Stream][]dropped{}
	w := c.Resume(loud, nil, nil, func(s schemas.Stream, from, to int64) { reports[s] = append(reports[s], dropped{from, to}) })
	var all []byte
	for i := range 400 {
		p := noise(uint64(i), 50_000)
		testkit.Must(t, w.Write(schemas.Stdout, int64(len(all)), p))
		all = append(all, p...)
	}
	testkit.Must(t, w.Write(schemas.Stderr, 0, []byte("the end")))
	rng, err := w.Close()
	testkit.Must(t, err)

	h := newCollector(t)
	_, err = c.ReadLog(testkit.Context(t), loud, "", rng.FirstSeq, rng.LastSeq, h.add)
	testkit.Must(t, err)
	rest := int64(len(h.data[schemas.Stdout]))
	if rest > 1<<20 || rest < 1<<19 {
		t.Errorf("LOG holds %d bytes of the process, want at most 1 MiB and more than half of it", rest)
	}
	testkit.Equal(t, "offset of the first byte", rng.StdoutFrom, int64(len(all))-rest)
	testkit.Equal(t, "first offset in LOG", h.from[schemas.Stdout], rng.StdoutFrom)
	h.want(schemas.Stdout, all[rng.StdoutFrom:])
	h.want(schemas.Stderr, []byte("the end"))
	if n := len(reports[schemas.Stdout]); n < 2 || n > 10 {
		t.Errorf("%d reports of dropped output, want some and at most 10: %+v", n, reports)
	}
	at := int64(0)
	for _, r := range reports[schemas.Stdout] {
		testkit.Equal(t, "begin of a report", r.from, at)
		at = r.to
	}
	testkit.Equal(t, "end of the last report", at, rng.StdoutFrom)
	readBack(t, c, ref("t", "quiet")).want(schemas.Stdout, quiet.data[schemas.Stdout])
}

// Promises 11: a tenant beyond its budget drops its own oldest output, whichever workers stored it, and no other tenant's. What a
// worker stored counts after its restart too.
func TestTenantDropsItsOwnOldestOutput(t *testing.T) {
	n := newNode(t, false)
	ctx := testkit.Context(t)
	workers := map[string]*peer{"w1": n.connect(), "w2": n.connect()}
	write := func(worker, tenant string, i int) {
		t.Helper()
		r := ref("t", fmt.Sprintf("p%d", i))
		r.Tenant = tenant
		o := newOutput(t, workers[worker], r)
		testkit.Must(t, o.print(schemas.Stdout, noise(uint64(i), 500_000)))
		o.close()
	}
	holds := func(tenant string) int64 {
		return storedBytes(t, workers["w1"], workers["w1"].subjects.TenantLogs(tenant))
	}
	for name, c := range workers {
		testkit.Must(t, c.Ensure(ctx, small()))
		(&tenantLogs{c.Conn}).check(ctx, name, true)
	}
	write("w1", "quiet", 0)
	for i := range 8 {
		write([]string{"w1", "w2"}[i%2], "loud", i)
	}
	for name, c := range workers {
		(&tenantLogs{c.Conn}).check(ctx, name, false)
	}
	testkit.Equal(t, "output within the budget", holds("loud"), int64(8*500_000))

	// A restarted worker.
	workers["w2"] = n.connect()
	testkit.Must(t, workers["w2"].Ensure(ctx, small()))
	(&tenantLogs{workers["w2"].Conn}).check(ctx, "w2", true)
	for i := range 4 {
		write("w2", "loud", 8+i)
		(&tenantLogs{workers["w2"].Conn}).check(ctx, "w2", false)
	}
	if got := holds("loud"); got > 4<<20 || got < 3<<20 {
		t.Errorf("LOG holds %d bytes of the tenant, want at most 4 MiB and more than 3", got)
	}
	newest := ref("t", "p11")
	newest.Tenant = "loud"
	readBack(t, workers["w1"], newest).want(schemas.Stdout, noise(11, 500_000))
	testkit.Equal(t, "output of the other tenant", holds("quiet"), int64(500_000))

	(&tenantLogs{workers["w1"].Conn}).check(ctx, "w1", true) // takes over what w2 dropped
	status, err := workers["w1"].Caller.Status(ctx, "loud")
	testkit.Must(t, err)
	if l := status.Log; l.MaxProcessBytes != 1<<20 || l.MaxTenantBytes != 4<<20 || l.TenantBytes < holds("loud") || l.TenantBytes > 4<<20 {
		t.Errorf("status of LOG = %+v, want the budgets and between %d bytes and the budget", l, holds("loud"))
	}
}

// Promises 11: what LOG has dropped by its age counts for no tenant, also when the worker that stored it is gone.
func TestExpiredOutputCountsForNoTenant(t *testing.T) {
	all := map[string]logUsage{
		"gone":  {Tenants: map[string][]segment{"a": {{5, 100}}}, Floors: map[string]uint64{"a": 3}},
		"alive": {Tenants: map[string][]segment{"a": {{9, 10}, {12, 20}, {30, 40}}, "b": {{31, 7}}}, Floors: map[string]uint64{"a": 12}},
	}
	segments, bytes := held(all, "a", 1)
	testkit.Equal(t, "segments after the floor", segments, []segment{{30, 40}})
	testkit.Equal(t, "bytes", bytes, int64(40))
	_, bytes = held(all, "b", 32)
	testkit.Equal(t, "bytes of an expired tenant", bytes, int64(0))
	for name, want := range map[string]bool{"gone": true, "alive": false} {
		u := all[name]
		testkit.Equal(t, name+" has expired", u.expired(10), want)
	}
	testkit.Equal(t, "upTo", overBudget(map[string]logUsage{"w": {Tenants: map[string][]segment{"a": {{5, 100}, {9, 100}, {12, 100}}}}}, "a", 6, 150), uint64(9))
}

// Promises 11: what a live follower has received is not lost to it when LOG drops it meanwhile, also when the follower reads LOG, because a
// copy was late, or one is missing.
func TestFollowerKeepsWhatTheLogDrops(t *testing.T) {
	for name, late := range map[string]func(t *testing.T, f *Follower){
		"a check finds more than has arrived": func(_ *testing.T, f *Follower) { f.behind = true },
		"a copy is lost": func(t *testing.T, f *Follower) {
			testkit.Must(t, errorOf(f.sub.NextMsgWithContext(testkit.Context(t)))) // "begin", which LOG keeps: it is of another stream
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newNode(t, false).connect()
			testkit.Must(t, c.Ensure(testkit.Context(t), small()))
			r := ref("t", "loud")
			f := c.follow(t, r, 0)
			testkit.Must(t, f.Flush(testkit.Context(t)))
			o := newOutput(t, c, r)
			testkit.Must(t, o.print(schemas.Stderr, []byte("begin")))
			for i := range 100 {
				testkit.Must(t, o.print(schemas.Stdout, noise(uint64(i), 50_000)))
			}
			result := o.close()
			if result.Log.StdoutFrom == 0 {
				t.Fatal("LOG has dropped nothing")
			}
			late(t, f)
			h := newCollector(t)
			testkit.Must(t, f.Finish(testkit.Context(t), result, h.add))
			h.want(schemas.Stdout, o.data[schemas.Stdout])
			h.want(schemas.Stderr, o.data[schemas.Stderr])
		})
	}
}
