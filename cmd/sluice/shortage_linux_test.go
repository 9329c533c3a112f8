package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
	"github.com/sluice-dev/sluice/schemas"
)

// limitFiles lets a running process open only this many files more, until lift is called: what it opens beyond that fails with EMFILE. With 0
// it opens none even in place of those that it closes meanwhile. EMFILE stands for ENFILE too, which takes the same paths and says that the
// whole machine has no more: no test may do that to its machine.
func (s *spawned) limitFiles(more int) (lift func()) {
	s.t.Helper()
	pid := s.cmd.Process.Pid
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	testkit.Must(s.t, err)
	used := make(map[int]bool)
	for _, entry := range open {
		fd, err := strconv.Atoi(entry.Name())
		testkit.Must(s.t, err)
		used[fd] = true
	}
	limit := 3 // standard input, output and error are never closed
	for free := 0; free < more; limit++ {
		if !used[limit] {
			free++
		}
	}
	var before unix.Rlimit
	testkit.Must(s.t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before))
	testkit.Must(s.t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(limit), Max: before.Max}, nil))
	return func() {
		s.t.Helper()
		testkit.Must(s.t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil))
	}
}

// short is a worker that gets into a shortage of files.
type short struct {
	*fleet
	home   *cli
	worker *spawned
	flags  []string
	ran    map[string]int // by key: how often a process must have run
}

// newShort starts a worker of a fleet.
func newShort(f *fleet, flags ...string) *short {
	t := f.t
	t.Helper()
	c := newCLI(t)
	c.env["WORKER_ID"], c.env["SLUICE_NATS_TOKEN"] = "w1", fleetToken
	flags = append([]string{"worker", "--nats", f.server.URL(), "--lease", f.lease, "--grace", "100ms", "--log-format", "json"}, flags...)
	w := c.spawn(flags...)
	w.awaitLine("is up")
	return &short{fleet: f, home: c, worker: w, flags: flags, ran: make(map[string]int)}
}

func (s *short) request(thread, key, script string) client.Request {
	return client.Request{Thread: thread, Key: key, Command: "sh", Args: []string{"-c", "echo " + key + " >>runs; " + script}}
}

// begin starts a process that prints at once, and waits for that.
func (s *short) begin(thread, key, script string) *client.Execution {
	s.t.Helper()
	x, err := s.client.ExecStream(s.ctx, s.request(thread, key, "echo begun; "+script))
	s.must(err)
	for e, err := range x.Events(s.ctx) {
		s.must(err)
		if e.Chunk != nil {
			break
		}
	}
	s.ran[key] = 1
	return x
}

// end is the result of a process that begin has started.
func (s *short) end(x *client.Execution) (r *schemas.Result) {
	s.t.Helper()
	for e, err := range x.Events(s.ctx) {
		s.must(err)
		if e.Result != nil {
			r = e.Result
		}
	}
	x.Close()
	return r
}

// tries runs a command during the shortage. It runs, or is refused with the way out, and then runs under the same key later.
func (s *short) tries(thread, key string) {
	s.t.Helper()
	r, err := s.client.Exec(s.ctx, s.request(thread, key, "exit 3"))
	if err == nil {
		testkit.Equal(s.t, "exit code of "+key, fmt.Sprint(r.ExitCode, " ", r.Error), "3 <nil>")
		return
	}
	testkit.WantCode(s.t, err, schemas.CodeUnavailable)
	testkit.Contains(s.t, "error of "+key, err.Error(), "too many open files")
	testkit.Contains(s.t, "error of "+key, err.Error(), "ulimit -n")
	if r != nil {
		testkit.Equal(s.t, "reason of "+key, r.Reason, schemas.ReasonRejected)
	}
}

// works runs a command after the shortage, and again under the same key.
func (s *short) works(thread, key string) {
	s.t.Helper()
	for range 2 {
		r, err := s.client.Exec(s.ctx, s.request(thread, key, "exit 3"))
		s.must(err)
		if r.ExitCode != 3 || r.Error != nil {
			s.t.Errorf("%s in thread %s after the shortage: exit code %d, error %v, want 3 and none", key, thread, r.ExitCode, r.Error)
		}
	}
	s.ran[key] = 1
}

// ranOnce checks what ran in a thread's workspace.
func (s *short) ranOnce() {
	s.t.Helper()
	got := make(map[string]int)
	files, err := filepath.Glob(filepath.Join(s.home.data, "workspaces", schemas.DefaultTenant, "*", "runs"))
	s.must(err)
	for _, file := range files {
		body, err := os.ReadFile(file)
		s.must(err)
		for key := range strings.FieldsSeq(string(body)) {
			got[key]++
		}
	}
	testkit.Equal(s.t, "how often each process ran", got, s.ran)
}

// A worker that can open no more files goes on: running processes go on and can be killed, requests are answered, no process is lost, and
// none runs twice. When it can open files again, the same worker starts processes in old and new sessions.
func TestWorkerSurvivesAShortageOfFiles(t *testing.T) {
	for name, flags := range map[string]func(t *testing.T) []string{
		"local": func(*testing.T) []string { return []string{"--provider", "local"} },
		"jail":  func(t *testing.T) []string { return jailFlags(t, nil) },
		"docker": func(t *testing.T) []string {
			return []string{"--provider", "docker", "--image", dockertest.Image(t), "--pool", "0"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShort(newFleet(t, nil), flags(t)...)
			running := s.begin("old", "running", "until test -e go; do sleep 0.1; done; seq 1 30000; exit 6")
			arg := unique()
			killed := s.begin("old", "killed", "while :; do sleep 1; done; : "+arg)
			stopped := unique()
			s.begin("stopped", "stopped", "while :; do sleep 1; done; : "+stopped).Close()
			pids := withArgumentPart(t, stopped)
			control, err := net.Dial("unix", filepath.Join(s.home.data, "run", controlSocket))
			s.must(err)
			s.must(control.Close())

			for more := range 10 {
				// It outlasts the next measurement of the workspace, which fails.
				timed := s.begin("old", fmt.Sprint("timed-", more), fmt.Sprint("sleep ", max(0.1, 2.5*float64(1-more)), "; exit 5"))
				lift := s.worker.limitFiles(more)
				r := s.end(timed)
				if r.ExitCode != 5 || r.Error != nil {
					t.Errorf("a process that ran during the shortage: exit code %d, error %v, want 5 and none", r.ExitCode, r.Error)
				}
				s.tries("old", fmt.Sprint("old-", more))
				s.tries(fmt.Sprint("new-", more), fmt.Sprint("new-", more))
				if more == 0 {
					s.must(killed.Kill(s.ctx, 0))
					testkit.Equal(t, "reason of the killed process", s.end(killed).Reason, schemas.ReasonKilled)
					s.stopSession("stopped")
					waitGone(t, pids)
				}
				lift()
				for _, thread := range []string{"old", fmt.Sprint("new-", more)} {
					s.works(thread, thread[:3]+fmt.Sprint("-", more))
				}
				s.works(fmt.Sprint("later-", more), fmt.Sprint("later-", more))
			}

			s.must(os.WriteFile(filepath.Join(s.home.data, "workspaces", schemas.DefaultTenant, "old", "go"), nil, 0o644))
			r := s.end(running)
			testkit.Equal(t, "exit code, bytes and error of the process that ran all the time", fmt.Sprint(r.ExitCode, " ", r.StdoutBytes, " ", r.Error), "6 168900 <nil>")
			s.ranOnce()
			s.worker.signal(syscall.SIGTERM)
			s.worker.wantExit(0)
			(&survival{cli: s.home, up: s.flags}).nothingLeft()
		})
	}
}

// withArgumentPart returns the processes with an argument that has this text.
func withArgumentPart(t *testing.T, text string) (pids []int) {
	t.Helper()
	for pid, line := range commandLines(t) {
		if pid != os.Getpid() && strings.Contains(string(line), text) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// During a shortage of files the sockets that a worker has go on: connections to it wait or are cut, and later ones succeed, also into a
// sandbox whose supervisor passes them to the worker.
func TestSocketsSurviveAShortageOfFiles(t *testing.T) {
	t.Parallel()
	s := newShort(newFleet(t, nil), "--provider", "local")
	running := s.begin("old", "running", "until test -e go; do sleep 0.1; done; exit 6")
	l, err := net.Listen("tcp", "127.0.0.1:0") // provider local has the network of this machine
	s.must(err)
	defer l.Close()
	go echo(l)
	_, port, err := net.SplitHostPort(l.Addr().String())
	s.must(err)
	forward := func() error {
		ours, theirs := net.Pipe()
		defer ours.Close()
		forwarded := make(chan error, 1)
		number, err := strconv.Atoi(port)
		s.must(err)
		go func() { forwarded <- s.client.Forward(s.ctx, "old", number, theirs) }()
		s.must(ours.SetDeadline(time.Now().Add(testkit.Timeout)))
		if _, err := ours.Write([]byte("x")); err != nil {
			return errors.Join(<-forwarded, err)
		}
		if _, err = ours.Read(make([]byte, 1)); err != nil {
			return errors.Join(<-forwarded, err)
		}
		_ = ours.Close()
		if err := <-forwarded; err != nil {
			t.Logf("the close of a connection that was answered: %v", err)
		}
		return nil
	}
	s.must(forward())

	lift := s.worker.limitFiles(0)
	if err := forward(); schemas.CodeOf(err) != schemas.CodeUnavailable || !strings.Contains(err.Error(), "ulimit -n") {
		t.Errorf("forward during the shortage: %v, want unavailable with the way out", err)
	}
	reload := make(chan outcome, 1)
	go func() { reload <- s.home.run("reload") }()
	select {
	case got := <-reload:
		got.wantError(t, schemas.CodeUnavailable)
	case <-time.After(200 * time.Millisecond): // it waits to be accepted
	}
	lift()
	select {
	case got := <-reload:
		got.check(t).exits(0)
	default:
	}
	s.home.run("reload").check(t).exits(0)
	s.must(forward())
	s.must(os.WriteFile(filepath.Join(s.home.data, "workspaces", schemas.DefaultTenant, "old", "go"), nil, 0o644))
	testkit.Equal(t, "exit code of the process that ran all the time", s.end(running).ExitCode, 6)
}

// A worker whose lease is lost while it can open no more files waits for them, and then reattaches what ran.
func TestWorkerRejoinsAfterAShortageOfFiles(t *testing.T) {
	t.Parallel()
	s := newShort(newExpiringFleet(t, nil), "--provider", "local")
	running := s.begin("old", "running", "until test -e go; do sleep 0.1; done; exit 6")
	url := s.server.URL()
	s.server.Close()
	lift := s.worker.limitFiles(8) // for the connection to NATS
	s.awaitLog(s.worker, "lease lost")
	server, err := embedded.Start(embedded.Config{Dir: s.dir, Listen: strings.TrimPrefix(url, "nats://"), Token: fleetToken, StoreBytes: 16 << 30})
	s.must(err)
	t.Cleanup(server.Close)
	s.awaitLog(s.worker, "waiting for file descriptors")
	lift()
	s.awaitLog(s.worker, "worker rejoined")
	s.must(os.WriteFile(filepath.Join(s.home.data, "workspaces", schemas.DefaultTenant, "old", "go"), nil, 0o644))
	testkit.Equal(t, "exit code of the process that ran all the time", s.end(running).ExitCode, 6)
	s.works("old", "after")
}

// A worker that may open too few files to take over its sandboxes does not start, and says so: the next one finds them.
func TestStartWithTooFewFilesLeavesSandboxes(t *testing.T) {
	t.Parallel()
	s := newShort(newFleet(t, nil), "--provider", "local")
	running := s.begin("old", "running", "until test -e go; do sleep 0.1; done; exit 6")
	s.worker.signal(syscall.SIGKILL)
	<-s.worker.ended
	s.home.bin = filepath.Join(s.home.data, "few")
	testkit.WriteProgram(t, s.home.bin, fmt.Appendf(nil, "#!/bin/sh\nulimit -n 48\nexec '%s' \"$@\"\n", os.Args[0]))
	few := s.home.spawn(s.flags...)
	few.outcome().wantError(t, schemas.CodeUnavailable)
	testkit.Contains(t, "what the worker said", few.stderr.String(), "ulimit -n")
	s.home.bin = ""
	s.worker = s.home.spawn(s.flags...)
	s.worker.awaitLine("is up")
	s.must(os.WriteFile(filepath.Join(s.home.data, "workspaces", schemas.DefaultTenant, "old", "go"), nil, 0o644))
	testkit.Equal(t, "exit code of the process that ran all the time", s.end(running).ExitCode, 6)
	s.works("old", "after")
}

// A `sluice up` that can open no more files goes on, its server of NATS and its gateway too: once it can open files again, the same process
// answers the requests that waited, and serves old and new connections.
func TestUpSurvivesAShortageOfFiles(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	up := c.spawn("up", "--provider", "local", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
	found := regexp.MustCompile(`sluice is up: ([^,]+), .*HTTP ([^, ]+)`).FindStringSubmatch(up.line())
	if found == nil {
		t.Fatal("sluice up printed no URLs")
	}
	token := (&dataFolder{path: c.data}).storedToken()
	conn, err := events.Connect(events.Options{URL: found[1], Token: token})
	testkit.Must(t, err)
	t.Cleanup(conn.Close)
	sdk, err := client.New(conn)
	testkit.Must(t, err)
	s := &short{fleet: &fleet{t: t, ctx: testkit.Context(t), client: sdk}, home: c, worker: up, ran: make(map[string]int)}
	s.works("old", "before")
	running := s.begin("old", "running", "until test -e go; do sleep 0.1; done; seq 1 30000; exit 6")

	lift := up.limitFiles(0)
	health := make(chan error, 1)
	go func() {
		resp, err := http.Get(found[2] + "/healthz") // it waits to be accepted
		if err == nil {
			err = resp.Body.Close()
		}
		health <- err
	}()
	waiting := s.untilOneWaits()
	lift()
	testkit.Must(t, <-health)
	if r := <-waiting; r == nil || r.ExitCode != 3 {
		t.Errorf("result of the command that waited = %+v, want exit code 3", r)
	}
	s.works("old", "after")
	s.works("new", "new")
	newWebUser(t, found[2], nil).wantExecute(token, "web")
	testkit.Must(t, os.WriteFile(filepath.Join(c.data, "workspaces", schemas.DefaultTenant, "old", "go"), nil, 0o644))
	r := s.end(running)
	testkit.Equal(t, "exit code, bytes and error of the process that ran all the time", fmt.Sprint(r.ExitCode, " ", r.StdoutBytes, " ", r.Error), "6 168900 <nil>")
	s.ranOnce()
	up.signal(syscall.SIGTERM)
	up.wantExit(0)
}

// untilOneWaits runs commands until one gets no answer, because the streams take nothing more, or for three seconds: with the race detector
// the server writes less often.
func (s *short) untilOneWaits() (waiting <-chan *schemas.Result) {
	s.t.Helper()
	for n, begin := 0, time.Now(); ; n++ {
		key := fmt.Sprint("waits-", n)
		s.ran[key] = 1
		result := make(chan *schemas.Result, 1)
		go func() {
			r, _ := s.client.Exec(s.ctx, s.request("old", key, "exit 3")) // without a result the test fails
			result <- r
		}()
		select {
		case r := <-result:
			if r == nil || r.ExitCode != 3 || time.Since(begin) > 3*time.Second {
				result <- r
				return result
			}
		case <-time.After(time.Second):
			return result
		}
	}
}
