package processor_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

// server is a service of thread t that misbehaves on request. Its provider is local, so that the test reaches it directly.
type server struct {
	*cell
	program string
	address string
	spec    schemas.ServiceSpec
}

func newServer(c *cell, args ...string) *server {
	c.t.Helper()
	port := testkit.FreePort(c.t)
	s := &server{cell: c, program: testkit.Build(c.t, "internal/testkit/testserver"), address: fmt.Sprint("127.0.0.1:", port)}
	s.spec = schemas.ServiceSpec{
		Command: s.program, Args: append(args, s.address),
		Health: &schemas.HealthCheck{Port: int64(port), Path: "/health", IntervalMS: 100},
	}
	_, err := c.place(schemas.PlaceRequest{})
	c.must(err)
	return s
}

func (c *cell) control(req schemas.ServiceRequest) (*schemas.Service, error) {
	return c.conn.ControlService(c.ctx, schemas.DefaultTenant, "t", req)
}

func (s *server) start(name string) (*schemas.Service, error) {
	return s.control(schemas.ServiceRequest{Name: name, Start: &s.spec})
}

// tell has the server change its mode, and returns its answer.
func (s *server) tell(mode string) string {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.ctx, http.MethodPost, "http://"+s.address+"/"+mode, http.NoBody)
	s.must(err)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return "" // one that dies does not answer, and one that freezes is killed
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	s.must(err)
	return strings.TrimSpace(string(body))
}

const (
	starting  = schemas.ServiceStarting
	running   = schemas.ServiceRunning
	unhealthy = schemas.ServiceUnhealthy
	stopping  = schemas.ServiceStopping
	stopped   = schemas.ServiceStopped
)

// Processes 4: a real server is slowed, killed and frozen in turn, with the documented timeline of states. Nothing of it is left.
func TestServiceMisbehaves(t *testing.T) {
	t.Parallel()
	c, _ := newRig(t)
	s := newServer(c)
	got, err := s.start("web")
	c.must(err)
	equal(t, "state", got.State, running)
	equal(t, "processes", len(got.Processes), 1)
	if got.HealthyMS <= 0 {
		t.Errorf("time to healthy is %v ms", got.HealthyMS)
	}
	again, err := s.start("web")
	c.must(err)
	equal(t, "process of a second start", again.Process(), got.Process())
	other := *s
	other.spec.Args = []string{"other"}
	_, err = other.start("web")
	testkit.WantCode(t, err, schemas.CodeConflict)

	s.tell("slow")
	s.tell("well") // the answer comes after those that were slow
	timeline := []schemas.ServiceState{starting, running}
	c.awaitStates(timeline...)
	for _, mode := range []string{"die", "freeze"} {
		s.tell(mode)
		timeline = append(timeline, unhealthy, starting, running)
		c.awaitStates(timeline...)
	}
	equal(t, "processes", len(c.service("web").Processes), 3)
	equal(t, "error of a healthy service", c.service("web").Error, nil)

	child, err := strconv.Atoi(s.tell("leak"))
	c.must(err)
	got, err = c.control(schemas.ServiceRequest{Name: "web", Stop: true})
	c.must(err)
	equal(t, "state", got.State, stopped)
	equal(t, "the child that ignores SIGTERM is alive", testkit.Alive(child), false)
	c.awaitStates(append(timeline, stopping, stopped)...)
	got, err = c.control(schemas.ServiceRequest{Name: "web", Stop: true})
	c.must(err)
	equal(t, "state after a second stop", got.State, stopped)
	_, err = c.control(schemas.ServiceRequest{Name: "other", Stop: true})
	testkit.WantCode(t, err, schemas.CodeNotFound)
	for _, ev := range c.allEvents() {
		if ev.Type == schemas.TypeServiceRunning && ev.Labels["service"] != "web" {
			t.Errorf("labels of %s are %v", ev.Type, ev.Labels)
		}
	}
}

// Processes 4: an answer that never comes, redirects, or has headers for ever is a failure within its timeout; one whose body never ends
// is an answer.
func TestHealthAnswersAreBounded(t *testing.T) {
	t.Parallel()
	c, _ := newRig(t)
	tests := []struct {
		mode string
		code schemas.Code
		text string
	}{
		{"endless", "", ""},
		{"never", schemas.CodeUnavailable, "status 503"},
		{"redirect", schemas.CodeUnavailable, "status 302"},
		{"silent", schemas.CodeDeadlineExceeded, "not answered in time"},
		{"headers", schemas.CodeUnavailable, "GET /health"},
	}
	services, errs := make([]*schemas.Service, len(tests)), make([]error, len(tests))
	var all sync.WaitGroup // each start that fails takes the waits between three
	for i, tt := range tests {
		s := newServer(c, "--mode", tt.mode)
		s.spec.StartTimeoutMS = 3000
		s.spec.Health.TimeoutMS = 2000
		all.Go(func() { services[i], errs[i] = s.start(tt.mode) })
	}
	all.Wait()
	for i, tt := range tests {
		if tt.code == "" {
			c.must(errs[i])
			continue
		}
		testkit.WantCode(t, errs[i], tt.code)
		wantMessage(t, schemas.AsError(errs[i]), tt.text)
		equal(t, tt.mode+" state", services[i].State, schemas.ServiceFailed)
		equal(t, tt.mode+" starts", services[i].Starts, 3)
	}
}

// Processes 4: a health check may be a unix socket, a port alone, or a command. A service whose program does not exist fails.
func TestHealthChecks(t *testing.T) {
	c, _ := newRig(t)
	s := newServer(c)
	port := *s.spec.Health
	port.Path = ""
	s.spec.Health = &port
	for name, check := range map[string]*schemas.HealthCheck{
		"port": &port, "command": {Command: []string{"sh", "-c", "exit 0"}}, "none": nil,
	} {
		s.spec.Health = check
		_, err := s.start(name)
		c.must(err)
		_, err = c.control(schemas.ServiceRequest{Name: name, Stop: true})
		c.must(err)
	}
	for name, command := range map[string][]string{"fails": {"false"}, "does-not-exist": {"no-such-program"}} {
		s.spec.Health, s.spec.StartTimeoutMS = &schemas.HealthCheck{Command: command, IntervalMS: 50}, 300
		_, err := s.start(name)
		testkit.WantCode(t, err, schemas.CodeUnavailable)
	}
	s.spec.StartTimeoutMS = 0
	socket := t.TempDir() + "/s"
	s.spec.Args, s.spec.Health = []string{socket}, &schemas.HealthCheck{Socket: socket, Path: "/health"}
	_, err := s.start("socket")
	c.must(err)
	s.spec.Command = "/does/not/exist"
	got, err := s.start("missing") // at once
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	equal(t, "state", got.State, schemas.ServiceFailed)
	equal(t, "starts", got.Starts, 1)
	for _, bad := range []schemas.HealthCheck{{}, {Port: 1, Socket: "/s"}, {Port: 70000}, {Socket: "s"}, {Port: 1, Path: "health"}, {Port: 1, Path: "/a b"}, {Command: []string{""}}} {
		s.spec.Health = &bad
		_, err := s.start("bad")
		testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	}
}

// Processes 4: a service survives its worker, and the next incarnation supervises it. Its process is the same one.
func TestServiceOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	c, dead := newRig(t, hasty)
	s := newServer(c)
	before, err := s.start("web")
	c.must(err)
	dead.crash()
	if s.tell("well"); !strings.Contains(fmt.Sprint(c.service("web").State), "running") {
		t.Errorf("state while its worker is away is %s", c.service("web").State)
	}
	w := dead.again()
	after, err := s.start("web") // it joins
	c.must(err)
	equal(t, "process", after.Process(), before.Process())
	s.tell("die")
	c.awaitStates(starting, running, unhealthy, starting, running)

	// The end of the sandbox while the worker is away: the service is lost, and says so.
	w.crash()
	found, err := newTestProvider(c, w.provider.dir).Attach(c.ctx)
	c.must(err)
	for _, sb := range found {
		c.must(sb.Terminate(c.ctx, 0))
	}
	w.again()
	got := c.service("web")
	equal(t, "state", got.State, schemas.ServiceFailed)
	wantFields(t, got, schemas.Service{Error: coded(schemas.CodeLost)})
	_, err = s.start("web")
	c.must(err)
}

// Processes 4: a service ends with its session, and with its worker.
func TestServiceEndsWithItsSession(t *testing.T) {
	c, w := newRig(t)
	s := newServer(c)
	_, err := s.start("web")
	c.must(err)
	_, err = c.stop(schemas.StopRequest{})
	c.must(err)
	c.awaitStates(starting, running, stopped)
	_, err = c.control(schemas.ServiceRequest{Name: "web", Stop: true})
	testkit.WantCode(t, err, schemas.CodeNotFound) // the thread has no session
	_, err = c.place(schemas.PlaceRequest{})
	c.must(err)
	_, err = s.start("web")
	c.must(err)
	w.cancel()
	<-w.done
	c.awaitStates(starting, running, stopped, starting, running, stopping, stopped)
}

// heldServices delays the record of a state until it is released.
type heldServices struct {
	processor.Services
	state   schemas.ServiceState
	held    chan struct{} // closed once a record of the state is held
	release chan struct{}
	once    sync.Once
}

func (h *heldServices) SaveService(ctx context.Context, tenant string, s *schemas.Service, revision uint64) (uint64, error) {
	if s.State == h.state {
		h.once.Do(func() {
			close(h.held)
			<-h.release
		})
	}
	return h.Services.SaveService(ctx, tenant, s, revision)
}

// A start joins no service that is about to end, be it with its session or because it was stopped: it waits for the end, and starts anew.
func TestStartJoinsNoServiceThatEnds(t *testing.T) {
	for name, v := range map[string]struct {
		held schemas.ServiceState // while its record is held, the service ends
		end  func(c *cell) error
	}{
		"with its session": {running, func(c *cell) error {
			if _, err := c.stop(schemas.StopRequest{}); err != nil {
				return err
			}
			_, err := c.place(schemas.PlaceRequest{})
			return err
		}},
		"being stopped": {stopping, func(*cell) error { return nil }},
		"stopped":       {stopped, func(*cell) error { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &heldServices{state: v.held, held: make(chan struct{}), release: make(chan struct{})}
			c, _ := newRig(t, func(cfg *processor.Config) { h.Services, cfg.Services = cfg.Services, h })
			s := newServer(c)
			var others sync.WaitGroup
			defer others.Wait()
			others.Go(func() {
				if _, err := s.start("web"); err != nil && v.held != running { // else its session has ended
					t.Error(err)
				}
				if v.held != running {
					_, _ = s.control(schemas.ServiceRequest{Name: "web", Stop: true}) // perhaps of the next one
				}
			})
			<-h.held
			before := c.service("web").Process()
			c.must(v.end(c))
			others.Go(func() {
				<-time.After(100 * time.Millisecond) // a start that joins answers at once
				close(h.release)
			})
			got, err := s.start("web")
			c.must(err)
			equal(t, "state", got.State, running)
			if got.Process() == before {
				t.Errorf("process %s runs, want another one", before)
			}
		})
	}
}

// Processes 4: a restart makes a new sandbox when the old one has ended.
func TestServiceGetsANewSandbox(t *testing.T) {
	c, w := newRig(t)
	s := newServer(c)
	before, err := s.start("web")
	c.must(err)
	for _, sb := range w.provider.sandboxes() {
		c.must(sb.Terminate(c.ctx, 0))
	}
	c.awaitStates(starting, running, unhealthy, starting, running)
	if after := c.service("web"); after.Process() == before.Process() {
		t.Errorf("the process is still %s", after.Process())
	}
}
