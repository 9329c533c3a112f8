package main

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// timeline is a supervised HTTP server in a jail, which is reached over a forwarded port alone.
type timeline struct {
	*cli
	address string // of the server, in the jail
	url     string // of the same here
}

func newTimeline(t *testing.T) *timeline {
	t.Helper()
	t.Parallel()
	c := newCLI(t)
	c.up(jailFlags(t, c)...)
	tl := &timeline{cli: c, address: freeAddress(t)}
	_, port, _ := strings.Cut(tl.address, ":")
	c.run("cp", testkit.Build(t, "internal/testkit/testserver"), "t1:server").check(t).exits(0)
	c.run("service", "start", "--health-port", port, "--health-path", "/health", "--health-interval", "200ms", "--grace", "1s", "t1", "web", "--", "./server", tl.address).check(t).exits(0)
	forward := c.spawn("port-forward", "t1", port+":0")
	at, _, _ := strings.Cut(forward.line(), " ")
	tl.url = "http://" + at
	return tl
}

// post has the server change its mode.
func (tl *timeline) post(mode string) {
	tl.t.Helper()
	resp, err := http.Post(tl.url+"/"+mode, "", nil)
	testkit.Must(tl.t, err)
	testkit.Must(tl.t, resp.Body.Close())
}

// kill sends a signal to the server, from outside of the jail.
func (tl *timeline) kill(sig syscall.Signal) {
	tl.t.Helper()
	pids := withArgument(tl.t, tl.address)
	if len(pids) != 1 {
		tl.t.Fatalf("servers %v run, want one", pids)
	}
	testkit.Must(tl.t, syscall.Kill(pids[0], sig))
}

// change is the service as it was when it entered a state, and the time since the change before.
type change struct {
	schemas.Service
	after time.Duration
}

// changes are those so far.
func (tl *timeline) changes() (all []change) {
	tl.t.Helper()
	for line := range strings.Lines(tl.run("events", "--json", "--thread", "t1").stdout) {
		ev := decode[schemas.Event](tl.t, line)
		if !strings.HasPrefix(string(ev.Type), "service.") {
			continue
		}
		c := change{Service: decode[schemas.Service](tl.t, string(ev.Data))}
		if len(all) > 0 {
			c.after = c.Since.Sub(all[len(all)-1].Since)
		}
		all = append(all, c)
	}
	return all
}

// await waits until the service has entered n states, and returns those from an index on.
func (tl *timeline) await(n, from int) []change {
	tl.t.Helper()
	for late := time.After(testkit.Timeout); ; {
		all := tl.changes()
		if len(all) >= n {
			return all[from:]
		}
		select {
		case <-late:
			tl.t.Fatalf("the service entered %v", all)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// wantRestart checks the states of one restart, its reason, and that it came after 1 s at least.
func (tl *timeline) wantRestart(got []change, reason string) {
	tl.t.Helper()
	var states []schemas.ServiceState
	for _, c := range got {
		states = append(states, c.State)
	}
	testkit.Equal(tl.t, "states", fmt.Sprint(states), "[unhealthy starting running]")
	if got[0].Error == nil || !strings.Contains(got[0].Error.Message, reason) {
		tl.t.Errorf("reason is %v, want %q", got[0].Error, reason)
	}
	if got[1].after < time.Second || got[2].after < 150*time.Millisecond {
		tl.t.Errorf("%s to starting, and %s to running; want at least 1s and 150ms", got[1].after, got[2].after)
	}
	testkit.Equal(tl.t, "error of a running service", got[2].Error, (*schemas.Error)(nil))
	testkit.Equal(tl.t, "restart attempts", got[2].RestartAttempts, 1)
}

// awaitReset waits until the row of failures has ended, so that the next restart comes after 1 s again.
func (tl *timeline) awaitReset() {
	tl.t.Helper()
	for late := time.After(testkit.Timeout); ; {
		if s := decode[serviceInfo](tl.t, tl.run("service", "get", "--json", "t1", "web").stdout); s.Healthy && s.RestartAttempts == 0 {
			return
		}
		select {
		case <-late:
			tl.t.Fatal("the row of failures has not ended")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Processes 4: a real HTTP server in a jail is slowed, killed and frozen in turn, with the documented timeline of states.
func TestTimelineOfAService(t *testing.T) {
	tl := newTimeline(t)
	tl.post("slow")
	for late := time.After(testkit.Timeout); strings.Count(tl.run("service", "logs", "t1", "web").stdout, "answered slowly") < 3; {
		select {
		case <-late:
			t.Fatal("no three checks were answered")
		case <-time.After(100 * time.Millisecond):
		}
	}
	tl.post("well")
	testkit.Equal(t, "changes while it is slow", len(tl.changes()), 2) // starting, running

	tl.awaitReset()
	tl.kill(syscall.SIGKILL)
	tl.wantRestart(tl.await(5, 2), "ended by signal 9")

	tl.awaitReset()
	frozen := time.Now()
	tl.kill(syscall.SIGSTOP)
	got := tl.await(8, 5)
	tl.wantRestart(got, "not answered in time")
	if after := got[0].Since.Sub(frozen); after < 4*time.Second {
		t.Errorf("it was unhealthy after %s, want three checks of 2 s, the first of which may have been under way", after)
	}

	tl.run("service", "stop", "t1", "web").check(t).exits(0)
	got = tl.await(10, 8)
	testkit.Equal(t, "end", fmt.Sprint(got[0].State, " ", got[1].State), "stopping stopped")
	testkit.Equal(t, "servers left", len(withArgument(t, tl.address)), 0)
}
