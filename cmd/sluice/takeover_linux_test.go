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
	"github.com/sluice-dev/sluice/schemas"
)

// rounds is how often a worker is killed, or frozen.
func rounds() int {
	if os.Getenv("SLUICE_LONG") != "" {
		return 30
	}
	return 2
}

// fleet is a NATS server with two workers in processes of their own.
type fleet struct {
	t       *testing.T
	ctx     context.Context
	server  *embedded.Server
	conn    *events.Conn
	client  *client.Client
	homes   map[string]*cli
	workers map[string]*spawned
}

const fleetToken = "fleet"

func newFleet(t *testing.T, names ...string) *fleet { return newFleetWith(t, nil, names...) }

// newFleetWith is a fleet whose workers have this in their environment.
func newFleetWith(t *testing.T, env map[string]string, names ...string) *fleet {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rounds())*patience)
	t.Cleanup(cancel)
	f := &fleet{t: t, ctx: ctx, homes: map[string]*cli{}, workers: map[string]*spawned{}}
	var err error
	f.server, err = embedded.Start(embedded.Config{Dir: filepath.Join(t.TempDir(), "nats"), Listen: "127.0.0.1:0", Token: fleetToken, StoreBytes: 16 << 30})
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
	if err != nil {
		f.t.Fatal(err)
	}
}

// start starts a worker and waits until it is up.
func (f *fleet) start(name string) {
	f.t.Helper()
	w := f.homes[name].spawn("worker", "--nats", f.server.URL(), "--provider", "local", "--lease", "2s", "--partitions", "1", "--stop-grace", "100ms", "--log-format", "json")
	if line := w.line(); !strings.Contains(line, "is up") {
		f.t.Fatal(line)
	}
	f.workers[name] = w
}

// held starts a command that goes on printing, and returns its process and its owner, and the argument to find it by.
func (f *fleet) held(thread string) (process, owner, mark string) {
	f.t.Helper()
	mark = unique()
	x, err := f.client.ExecStream(f.ctx, client.Request{Thread: thread, Command: "sh", Args: []string{"-c", "while :; do echo tick; sleep 0.02; done", mark}})
	f.must(err)
	defer x.Close()
	for e, err := range x.Events(f.ctx) {
		f.must(err)
		if e.Chunk != nil {
			break
		}
	}
	s, err := f.client.SessionInfo(f.ctx, thread)
	f.must(err)
	return x.Process(), s.Owner, mark
}

// next runs a command in a thread whose owner does not answer, until somebody else does it.
func (f *fleet) next(thread, not string) *schemas.Result {
	f.t.Helper()
	r, err := f.client.Exec(f.ctx, client.Request{Thread: thread, Command: "echo", Args: []string{"on"}})
	f.must(err)
	if r.Stdout != "on\n" || r.Worker == not || r.Epoch != 2 {
		f.t.Fatalf("%+v", r)
	}
	return r
}

// awaitLost waits until the record of a process says that it is lost.
func (f *fleet) awaitLost(thread, process string) *schemas.Event {
	f.t.Helper()
	feed, err := f.conn.Caller().FollowEvents(events.Filter{Thread: thread, Process: process}, 1)
	f.must(err)
	defer feed.Close()
	f.must(f.conn.Flush(f.ctx))
	var lost *schemas.Event
	look := func(ev *schemas.Event) error {
		if ev.Type.Terminal() {
			lost = ev
			return errFound
		}
		return nil
	}
	if err := feed.CatchUp(f.ctx, look); err != nil && !errors.Is(err, errFound) {
		f.t.Fatal(err)
	}
	for lost == nil {
		if err := feed.Next(f.ctx, look); err != nil && !errors.Is(err, errFound) {
			f.t.Fatal(err)
		}
	}
	if lost.Type != schemas.TypeProcessLost {
		f.t.Fatalf("%+v: %s", lost, lost.Data)
	}
	return lost
}

var errFound = errors.New("found")

// chunks is how many chunks the log has of a process.
func (f *fleet) chunks(thread, process string) (n int) {
	f.t.Helper()
	err := f.client.Logs(f.ctx, client.LogQuery{Process: process, Thread: thread}, func(schemas.Chunk) error {
		n++
		return nil
	})
	f.must(err)
	return n
}

// freeze stops the process, and waits until every thread of it has stopped: until then it may take a command.
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
	f := newFleet(t, "w1", "w2")
	for round := range rounds() {
		thread := fmt.Sprint("kill-", round)
		process, owner, _ := f.held(thread)
		before, err := f.client.SessionInfo(f.ctx, thread)
		f.must(err)
		f.workers[owner].kill()
		f.next(thread, owner)
		f.awaitLost(thread, process)
		after, err := f.client.SessionInfo(f.ctx, thread)
		f.must(err)
		if after.ID != before.ID || after.Owner == owner || after.Epoch != 2 {
			t.Fatalf("%+v, was %+v", after, before)
		}
		_, err = f.client.StopSession(f.ctx, thread)
		f.must(err)
		f.start(owner)
	}
}

// wake lets a frozen worker go on, and waits until it has noticed, has ended what it ran, and has begun anew.
func (f *fleet) wake(w *spawned, pids []int) {
	f.t.Helper()
	told := len(w.stderr.String())
	w.signal(syscall.SIGCONT)
	waitGone(f.t, pids)
	for !strings.Contains(w.stderr.String()[told:], "restarting the worker") {
		select {
		case <-w.ended:
			f.t.Fatalf("the worker ended: %s", w.stderr)
		case <-f.ctx.Done():
			f.t.Fatalf("it did not notice: %s", w.stderr)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// silent fails where a worker has published anything of a thread from a sequence on.
func (f *fleet) silent(thread, worker string, from uint64) {
	f.t.Helper()
	_, err := f.conn.Caller().ReadEvents(f.ctx, events.Filter{Thread: thread}, from, func(ev *schemas.Event) error {
		if ev.Source == worker {
			f.t.Errorf("the stale worker published %s: %s", ev.Type, ev.Data)
		}
		return nil
	})
	f.must(err)
}

func TestAFrozenWorkerThatWakesIsFenced(t *testing.T) {
	f := newFleet(t, "w1", "w2")
	for round := range rounds() {
		thread := fmt.Sprint("freeze-", round)
		process, owner, mark := f.held(thread)
		w := f.workers[owner]
		w.freeze()
		f.next(thread, owner)
		lost := f.awaitLost(thread, process)
		if lost.Source == owner {
			t.Fatalf("%+v", lost)
		}
		stored, last := f.chunks(thread, process), lost.Seq
		pids := withArgument(t, mark)
		if len(pids) == 0 {
			t.Fatal("the process is gone already")
		}
		f.wake(w, pids)
		if n := f.chunks(thread, process); n != stored {
			t.Fatalf("%d chunks were stored after the loss was recorded", n-stored)
		}
		f.silent(thread, owner, last)
		r, err := f.client.Exec(f.ctx, client.Request{Thread: thread, Command: "echo", Args: []string{"again"}})
		f.must(err)
		if r.Worker == owner || r.Epoch != 2 {
			t.Fatalf("%+v", r)
		}
		_, err = f.client.StopSession(f.ctx, thread)
		f.must(err)
	}
}
