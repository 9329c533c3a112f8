package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// rounds is how often a worker is killed, or frozen.
func rounds() int { return long(30, 2) }

// fleet is a NATS server, with workers in their own processes.
type fleet struct {
	t       *testing.T
	ctx     context.Context
	lease   string
	dir     string // of the server
	server  *embedded.Server
	conn    *events.Conn
	client  *client.Client
	homes   map[string]*cli
	workers map[string]*spawned
}

const fleetToken = "fleet"

// newFleet makes a fleet whose workers have these environment variables, and leases that a loaded machine does not let expire.
func newFleet(t *testing.T, env map[string]string, names ...string) *fleet {
	t.Helper()
	return newLeasedFleet(t, time.Minute, env, names...)
}

// newExpiringFleet is newFleet with leases that expire soon, for another worker to take over.
func newExpiringFleet(t *testing.T, env map[string]string, names ...string) *fleet {
	t.Helper()
	return newLeasedFleet(t, 5*time.Second, env, names...) // the others must keep theirs on a busy machine
}

// newLeasedFleet is newFleet with leases that last this long.
func newLeasedFleet(t *testing.T, lease time.Duration, env map[string]string, names ...string) *fleet {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rounds())*testkit.Timeout)
	t.Cleanup(cancel)
	f := &fleet{t: t, ctx: ctx, lease: lease.String(), dir: filepath.Join(t.TempDir(), "nats"), homes: map[string]*cli{}, workers: map[string]*spawned{}}
	var err error
	f.server, err = embedded.Start(embedded.Config{Dir: f.dir, Listen: freeAddress(t), Token: fleetToken, StoreBytes: 16 << 30})
	f.must(err)
	t.Cleanup(f.server.Close)
	for _, name := range names {
		c := newCLI(t)
		maps.Copy(c.env, env)
		c.env["WORKER_ID"], c.env["SLUICE_NATS_TOKEN"] = name, fleetToken
		f.homes[name] = c
		f.start(name)
	}
	f.conn, err = events.Connect(events.Options{URL: f.server.URL(), Token: fleetToken})
	f.must(err)
	t.Cleanup(f.conn.Close)
	f.client, err = client.New(f.conn)
	f.must(err)
	return f
}

func (f *fleet) must(err error) {
	f.t.Helper()
	testkit.Must(f.t, err)
}

func (f *fleet) start(name string) {
	f.t.Helper()
	f.workers[name] = f.spawn(f.homes[name])
	f.workers[name].awaitLine("is up")
}

// spawn begins to start a worker.
func (f *fleet) spawn(home *cli) *spawned {
	f.t.Helper()
	return home.spawn("worker", "--nats", f.server.URL(), "--provider", "local", "--lease", f.lease, "--partitions", "1", "--grace", "100ms", "--log-format", "json")
}

// runTicker starts a command that prints until it is killed. It returns its process, its owner, and an argument that identifies it.
func (f *fleet) runTicker(thread string) (process, owner, arg string) {
	f.t.Helper()
	arg = unique()
	x, err := f.client.ExecStream(f.ctx, client.Request{Thread: thread, Command: "sh", Args: []string{"-c", "while :; do echo tick; sleep 0.1; done", arg}})
	f.must(err)
	process, owner = f.printing(x, thread)
	return process, owner, arg
}

// printing waits for the first output of a process, and returns the process and its owner.
func (f *fleet) printing(x *client.Execution, thread string) (process, owner string) {
	f.t.Helper()
	defer x.Close()
	for e, err := range x.Events(f.ctx) {
		f.must(err)
		if e.Chunk != nil {
			break
		}
	}
	return x.Process(), f.session(thread).Owner
}

func (f *fleet) session(thread string) *schemas.Session {
	f.t.Helper()
	s, err := f.client.SessionInfo(f.ctx, thread)
	f.must(err)
	return s
}

func (f *fleet) stopSession(thread string) {
	f.t.Helper()
	_, err := f.client.StopSession(f.ctx, thread)
	f.must(err)
}

func (f *fleet) echo(thread string) *schemas.Result {
	f.t.Helper()
	r, err := f.client.Exec(f.ctx, client.Request{Thread: thread, Command: "echo", Args: []string{"on"}})
	f.must(err)
	testkit.Equal(f.t, "standard output", r.Stdout, "on\n")
	return r
}

// wantOwner checks that another worker than before ran a process, after one change of owner.
func (f *fleet) wantOwner(r *schemas.Result, before string) {
	f.t.Helper()
	if r.Worker == before {
		f.t.Fatalf("worker %s ran process %s, want another one", r.Worker, r.Process)
	}
	f.wantEpoch(r.Epoch, 2, r.Worker)
}

// wantEpoch checks how many owners a thread of this worker has had. A worker that the machine stalls for longer than its lease, which it
// logs, takes its threads up again, with one more each time.
func (f *fleet) wantEpoch(got, want uint64, worker string) {
	f.t.Helper()
	stalls := uint64(strings.Count(f.workers[worker].stderr.String(), "lost its lease"))
	if got < want || got > want+stalls {
		f.t.Fatalf("epoch = %d after %d lost leases of worker %s, want %d without any", got, stalls, worker, want)
	}
}

// takeOver runs a command in a thread whose owner does not answer, and checks that another worker ran it.
func (f *fleet) takeOver(thread, before string) {
	f.t.Helper()
	f.wantOwner(f.echo(thread), before)
}

// awaitLost waits for the last record of a process, which must report it as lost.
func (f *fleet) awaitLost(thread, process string) *schemas.Event {
	f.t.Helper()
	lost := f.await(thread, process, schemas.EventType.Terminal)
	if lost.Type != schemas.TypeProcessLost {
		f.t.Fatalf("last record of process %s = %s: %s, want %s", process, lost.Type, lost.Data, schemas.TypeProcessLost)
	}
	return lost
}

// awaitEvent waits for an event of a thread, and of one process unless it is empty.
func (f *fleet) awaitEvent(thread, process string, want schemas.EventType) {
	f.t.Helper()
	f.await(thread, process, func(typ schemas.EventType) bool { return typ == want })
}

var errFound = errors.New("found")

// await waits for an event of a wanted type.
func (f *fleet) await(thread, process string, wanted func(schemas.EventType) bool) (found *schemas.Event) {
	f.t.Helper()
	feed, err := f.conn.Caller().FollowEvents(events.Filter{Thread: thread, Process: process}, 1)
	f.must(err)
	defer feed.Close()
	f.must(f.conn.Flush(f.ctx))
	look := func(ev *schemas.Event) error {
		if wanted(ev.Type) {
			found = ev
			return errFound
		}
		return nil
	}
	err = feed.CatchUp(f.ctx, look)
	for found == nil && err == nil {
		err = feed.Next(f.ctx, look)
	}
	if !errors.Is(err, errFound) {
		f.t.Fatalf("the event of thread %s did not come: %v", thread, err)
	}
	return found
}

func (f *fleet) chunks(thread, process string) (n int) {
	f.t.Helper()
	err := f.client.Logs(f.ctx, client.LogQuery{Process: process, Thread: thread}, func(schemas.Chunk) error {
		n++
		return nil
	})
	f.must(err)
	return n
}

// freeze stops the process, and waits until all its threads have stopped: until then it can take a command.
func (s *spawned) freeze() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	for frozen := false; !frozen; {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.cmd.Process.Pid))
		if err != nil || len(tasks) == 0 {
			s.t.Fatalf("no threads of process %d: %v", s.cmd.Process.Pid, err)
		}
		frozen = true
		for _, task := range tasks {
			stat, err := os.ReadFile(task)
			_, state, _ := strings.Cut(string(stat), ") ")
			frozen = frozen && err == nil && strings.HasPrefix(state, "T")
		}
	}
}

func TestAKilledWorkersThreadsGoOnElsewhere(t *testing.T) {
	t.Parallel()
	f := newExpiringFleet(t, nil, "w1", "w2")
	for round := range rounds() {
		thread := fmt.Sprint("kill-", round)
		process, owner, _ := f.runTicker(thread)
		before := f.session(thread)
		f.workers[owner].kill()
		f.takeOver(thread, owner)
		f.awaitLost(thread, process)
		after := f.session(thread)
		testkit.Equal(t, "session id", after.ID, before.ID)
		f.wantEpoch(after.Epoch, 2, after.Owner)
		if after.Owner == owner {
			t.Fatalf("owner = %s, which was killed", after.Owner)
		}
		f.stopSession(thread)
		f.start(owner)
	}
}

// wake lets a frozen worker continue, and waits until it has ended its processes and started again.
func (f *fleet) wake(w *spawned, pids []int) {
	f.t.Helper()
	logged := len(w.stderr.String())
	w.signal(syscall.SIGCONT)
	waitGone(f.t, pids)
	for !strings.Contains(w.stderr.String()[logged:], "restarting the worker") {
		select {
		case <-w.ended:
			f.t.Fatalf("the worker ended: %s", w.stderr)
		case <-f.ctx.Done():
			f.t.Fatalf("the worker did not start again: %s", w.stderr)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// wantSilent checks that a worker has published no event of a thread from a sequence on.
func (f *fleet) wantSilent(thread, worker string, from uint64) {
	f.t.Helper()
	_, err := f.conn.Caller().ReadEvents(f.ctx, events.Filter{Thread: thread}, from, func(ev *schemas.Event) error {
		if ev.Source == worker {
			f.t.Errorf("the stale worker published %s: %s", ev.Type, ev.Data)
		}
		return nil
	})
	f.must(err)
}

// freeze stops the worker of a thread once the events of its cold start are stored: what was sent before may arrive at any time after it.
func (f *fleet) freeze(thread, owner string) *spawned {
	f.t.Helper()
	f.awaitEvent(thread, "", schemas.TypeSandboxRunning) // the last of them
	f.workers[owner].freeze()
	return f.workers[owner]
}

func TestAFrozenWorkerThatWakesIsFenced(t *testing.T) {
	t.Parallel()
	f := newExpiringFleet(t, nil, "w1", "w2")
	for round := range rounds() {
		thread := fmt.Sprint("freeze-", round)
		process, owner, arg := f.runTicker(thread)
		w := f.freeze(thread, owner)
		f.takeOver(thread, owner)
		lost := f.awaitLost(thread, process)
		if lost.Source == owner {
			t.Fatalf("%s, which was frozen, recorded the loss", owner)
		}
		stored, last := f.chunks(thread, process), lost.Seq
		pids := withArgument(t, arg)
		if len(pids) == 0 {
			t.Fatal("the process of the frozen worker has ended already")
		}
		f.wake(w, pids)
		if n := f.chunks(thread, process); n != stored {
			t.Fatalf("%d chunks were stored after the loss was recorded", n-stored)
		}
		f.wantSilent(thread, owner, last)
		f.takeOver(thread, owner)
		f.stopSession(thread)
	}
}

const waitsForLease = "waiting for the lease to expire"

// Promises 16: the second of two workers with one id is refused, and the first one keeps its lease.
func TestSecondWorkerWithOneIDIsRefused(t *testing.T) {
	f := newLeasedFleet(t, 10*time.Second, nil, "w1") // which a loaded machine does not let expire
	process, _, _ := f.runTicker("t1")
	second := newCLI(t)
	second.env["WORKER_ID"], second.env["SLUICE_NATS_TOKEN"] = "w1", fleetToken
	got := second.run("worker", "--nats", f.server.URL(), "--provider", "local", "--lease", f.lease, "--partitions", "1", "--log-format", "json")
	got.wantError(t, schemas.CodeConflict, "worker id w1 is in use", "WORKER_ID")
	f.wantEpoch(f.echo("t1").Epoch, 1, "w1")
	last, err := f.conn.Caller().Last(f.ctx, schemas.DefaultTenant, "t1", process)
	f.must(err)
	testkit.Equal(t, "last record of the running process", last.Type, schemas.TypeProcessStarted)
	if log := f.workers["w1"].stderr.String(); strings.Contains(log, "lease lost") {
		t.Errorf("log of the first worker = %s, want no lost lease", log)
	}
}

// forget removes what a worker knows of its incarnations: another one with its id would not know them either.
func (f *fleet) forget(name string) {
	f.t.Helper()
	f.must(os.Remove(filepath.Join(f.homes[name].data, "incarnations")))
}

// Promises 16: a killed worker takes its own lease over at once; another one with its id does once the lease has expired.
func TestKilledWorkerRestartsAtOnce(t *testing.T) {
	t.Parallel()
	f := newExpiringFleet(t, nil, "w1")
	for range rounds() {
		f.workers["w1"].kill()
		f.start("w1")
		if log := f.workers["w1"].stderr.String(); strings.Contains(log, waitsForLease) {
			t.Fatalf("log = %s, want no wait for the worker's own lease", log)
		}
	}
	f.workers["w1"].kill()
	f.forget("w1")
	f.start("w1")
}

// Promises 16: another worker with the id of a killed one says that it waits for the lease.
func TestWorkerWaitsForALeaseOfItsID(t *testing.T) {
	t.Parallel()
	f := newLeasedFleet(t, time.Hour, nil, "w1") // it does not expire while the next one starts
	f.workers["w1"].kill()
	f.forget("w1")
	next := f.spawn(f.homes["w1"])
	next.awaitStderr(waitsForLease)
	next.kill()
}
