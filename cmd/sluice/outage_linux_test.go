package main

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/internal/testkit"
)

// awaitLog waits until a worker has logged a text.
func (f *fleet) awaitLog(w *spawned, text string) {
	f.t.Helper()
	for !strings.Contains(w.stderr.String(), text) {
		select {
		case <-w.ended:
			f.t.Fatalf("the worker ended with exit code %d before it logged %q: %s", w.code, text, w.stderr)
		case <-f.ctx.Done():
			f.t.Fatalf("log = %s, want %q", w.stderr, text)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Promises 15: workers outlive their server, idle or not, and end by SIGTERM while it is away.
func TestWorkerWaitsForItsServer(t *testing.T) {
	t.Parallel()
	f := newExpiringFleet(t, nil, "w1", "w2")
	_, owner, arg := f.runTicker("t1")
	url := f.server.URL()
	dir := f.dir
	f.server.Close()
	for _, w := range f.workers {
		f.awaitLog(w, "lease lost")
	}
	pids := withArgument(t, arg)
	if len(pids) == 0 {
		t.Fatal("the process ended with the lease")
	}
	s, err := embedded.Start(embedded.Config{Dir: dir, Listen: strings.TrimPrefix(url, "nats://"), Token: fleetToken, StoreBytes: 16 << 30})
	f.must(err)
	t.Cleanup(s.Close)
	for _, w := range f.workers {
		f.awaitLog(w, "worker rejoined")
	}
	r, err := f.client.Exec(f.ctx, client.Request{Thread: "t1", Command: "echo", Args: []string{"on"}})
	f.must(err)
	testkit.Equal(t, "worker", r.Worker, owner)
	after := withArgument(t, arg) // a fork of the shell has its arguments for a moment
	if !slices.ContainsFunc(pids, func(pid int) bool { return slices.Contains(after, pid) }) {
		t.Errorf("process ids after the outage = %v, want one of %v", after, pids)
	}
	s.Close()
	for _, w := range f.workers {
		w.signal(syscall.SIGTERM)
	}
	for _, w := range f.workers {
		w.wantExit(0)
	}
	waitGone(t, pids)
}
