package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
	"github.com/sluice-dev/sluice/schemas"
)

func TestNewRefusesInvalidConfig(t *testing.T) {
	for what, c := range map[string]Config{
		"no folder": {}, "relative": {RunDir: "run"}, "too long": {RunDir: "/" + strings.Repeat("x", 80)},
		"cell": {RunDir: "/r", Cell: "a b"}, "worker": {RunDir: "/r", Worker: "a="},
		"time": {RunDir: "/r", SweepInterval: -1}, "limit": {RunDir: "/r", Limits: sandbox.Limits{PIDs: -1}},
		"little memory": {RunDir: "/r", Limits: sandbox.Limits{MemoryBytes: 1 << 20}},
	} {
		_, err := New(c)
		sandboxtest.WantCode(t, what, err, schemas.CodeInvalidArgument)
	}
}

// Without an engine the error names its address and the command that installs one.
func TestNoEngine(t *testing.T) {
	dir := testkit.ShortDir(t)
	host := "unix://" + filepath.Join(dir, "none.sock")
	p, err := New(Config{RunDir: dir, Host: host, Image: "x"})
	testkit.Must(t, err)
	defer closeProvider(t, p)
	workspace := filepath.Join(dir, "ws")
	_, createErr := p.Create(t.Context(), sandbox.Spec{ID: "a", Workspace: workspace})
	_, probeErr := Probe(t.Context(), host)
	_, sweepErr := p.Sweep(t.Context())
	for what, err := range map[string]error{"create": createErr, "probe": probeErr, "sweep": sweepErr} {
		testkit.WantCode(t, err, schemas.CodeUnavailable)
		if !strings.Contains(err.Error(), Install) || !strings.Contains(err.Error(), host) {
			t.Errorf("%s: error %v, want %q and %q in it", what, err, Install, host)
		}
	}
	if _, err := os.Stat(workspace); !os.IsNotExist(err) {
		t.Errorf("stat of the workspace: %v, want not exist", err)
	}
}

// The engine is an HTTP server with the answers of real engines.
func TestPullErrors(t *testing.T) {
	for what, tt := range map[string]struct {
		status int
		body   string
		code   schemas.Code
	}{
		"not found":              {404, `{"message":"manifest for x:1 not found: manifest unknown"}`, schemas.CodeNotFound},
		"denied":                 {404, `{"message":"pull access denied for x, repository does not exist"}`, schemas.CodeNotFound},
		"unreachable":            {500, `{"message":"dial tcp: lookup registry: no such host"}`, schemas.CodeUnavailable},
		"no name":                {400, `{"message":"invalid reference format"}`, schemas.CodeInvalidArgument},
		"error during the pull":  {200, `{"status":"OnPull","id":"layer"}` + "\n" + `{"error":"connection reset"}`, schemas.CodeUnavailable},
		"missing after the pull": {200, `{"status":"Downloading","id":"layer","progressDetail":{"current":1,"total":2}}` + "\n", schemas.CodeNotFound},
		"cut short":              {200, `{"status":"Pull`, schemas.CodeUnavailable},
	} {
		t.Run(what, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case strings.HasSuffix(r.URL.Path, "/_ping"):
					w.Header().Set("Api-Version", "1.41")
				case strings.HasSuffix(r.URL.Path, "/images/create"):
					w.WriteHeader(tt.status)
					fmt.Fprint(w, tt.body)
				default:
					w.WriteHeader(http.StatusNotFound)
					fmt.Fprint(w, `{"message":"No such image: x"}`)
				}
			}))
			defer server.Close()
			var progress []Progress
			p, err := New(Config{
				RunDir: testkit.ShortDir(t), Host: "tcp://" + strings.TrimPrefix(server.URL, "http://"), Image: "x:1",
				OnPull: func(p Progress) { progress = append(progress, p) },
			})
			testkit.Must(t, err)
			defer closeProvider(t, p)
			_, err = p.Create(t.Context(), sandbox.Spec{ID: "a", Workspace: t.TempDir()})
			testkit.WantCode(t, err, tt.code)
			if what == "missing after the pull" {
				testkit.Equal(t, "progress", progress, []Progress{{"x:1", "layer", "Downloading", 1, 2}})
			}
		})
	}
}

// Version 20.10 of the engine fails to remove a container that ends just as it is killed. The server answers as it does.
func TestContainerThatEndsWhileItIsKilledIsRemoved(t *testing.T) {
	for what, failures := range map[string]int{"once": 1, "always": removeTries} {
		t.Run(what, func(t *testing.T) {
			asked := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case r.Method != http.MethodDelete:
					w.Header().Set("Api-Version", "1.41")
				case asked < failures:
					asked++
					w.WriteHeader(http.StatusInternalServerError)
					fmt.Fprint(w, `{"message":"Could not kill running container c, cannot remove - Container c is not running"}`)
				default:
					w.WriteHeader(http.StatusNoContent)
				}
			}))
			defer server.Close()
			warned := 0
			p, err := New(Config{
				RunDir: testkit.ShortDir(t), Host: "tcp://" + strings.TrimPrefix(server.URL, "http://"), Image: "x:1", Warn: func(error) { warned++ },
			})
			testkit.Must(t, err)
			defer closeProvider(t, p)
			removed := p.remove("c")
			testkit.Equal(t, "removed", removed, failures < removeTries)
			testkit.Equal(t, "warnings", warned, failures/removeTries)
			testkit.Equal(t, "failed requests", asked, failures)
		})
	}
}

// A sandbox that the engine cannot create is refused, and leaves nothing behind.
func TestCreateRefusesInvalidSpec(t *testing.T) {
	image := dockertest.Image(t)
	for what, tt := range map[string]struct {
		change func(*Config)
		spec   sandbox.Spec
		code   schemas.Code
	}{
		"runtime":    {func(c *Config) { c.Runtime = "no-such-runtime" }, sandbox.Spec{}, schemas.CodeUnavailable},
		"no image":   {func(c *Config) { c.Image = "" }, sandbox.Spec{}, schemas.CodeInvalidArgument},
		"image name": {nil, sandbox.Spec{Image: "A B"}, schemas.CodeInvalidArgument},
		"limits":     {nil, sandbox.Spec{Limits: sandbox.Limits{CPUs: -1}}, schemas.CodeInvalidArgument},
		"processors": {nil, sandbox.Spec{Image: image, Limits: sandbox.Limits{CPUs: 10000}}, schemas.CodeInvalidArgument},
	} {
		t.Run(what, func(t *testing.T) {
			p := newProvider(t, tt.change)
			tt.spec.ID, tt.spec.Workspace = "a", filepath.Join(t.TempDir(), "ws")
			_, err := p.Create(t.Context(), tt.spec)
			testkit.WantCode(t, err, tt.code)
			if _, err := os.Stat(tt.spec.Workspace); !os.IsNotExist(err) {
				t.Errorf("stat of the workspace: %v, want not exist", err)
			}
			wantSwept(t, p, 0)
			sandboxtest.WantNoFiles(t, filepath.Join(p.dir, "*.[as]*"))
		})
	}
}

// A container that ends before its supervisor has sent the request fails at once, not after the timeout.
func TestCreateFailsWhenSupervisorExits(t *testing.T) {
	p := newProvider(t, func(c *Config) { c.StartTimeout = time.Hour })
	testkit.WriteProgram(t, filepath.Join(p.dir, "true"), []byte("#!/bin/true\n"))
	p.program = filepath.Join(p.dir, "true")
	_, err := p.Create(testkit.Context(t), sandbox.Spec{ID: "a", Workspace: t.TempDir()})
	testkit.WantCode(t, err, schemas.CodeUnavailable)
	if !strings.Contains(err.Error(), "exit code 0") {
		t.Errorf("error %v, want %q in it", err, "exit code 0")
	}
	wantSwept(t, p, 0)
}

// A canceled Create leaves no container, at any time of the cancellation. Concurrent sweeps do not disturb it.
func TestCanceledCreateLeavesNoContainer(t *testing.T) {
	p := newProvider(t, nil)
	var group sync.WaitGroup
	for i := range 12 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*20*time.Millisecond)
		group.Go(func() {
			defer cancel()
			s, err := p.Create(ctx, sandbox.Spec{ID: fmt.Sprint("s", i), Workspace: t.TempDir()})
			if err == nil {
				err = s.Terminate(t.Context(), 0)
			}
			if err != nil && ctx.Err() == nil {
				t.Errorf("create s%d: %v", i, err)
			}
		})
		group.Go(func() {
			if n, err := p.Sweep(t.Context()); n != 0 || err != nil {
				t.Errorf("concurrent sweep: %d containers, error %v, want none", n, err)
			}
		})
	}
	group.Wait()
	wantSwept(t, p, 0)
}

// A sweep removes the containers of a dead worker. It keeps live ones, those of other workers, and those of a worker of the same name with
// another run folder.
func TestSweep(t *testing.T) {
	dir := testkit.ShortDir(t)
	dead := newProvider(t, func(c *Config) { c.RunDir, c.Worker = dir, "sweep" })
	left := newSandbox(t, dead, sandbox.Spec{ID: "left"})
	live := newSandbox(t, dead, sandbox.Spec{ID: "live"})
	records, err := filepath.Glob(filepath.Join(dead.dir, "kept", "*.json"))
	testkit.Must(t, err)
	for _, record := range records {
		if body, err := os.ReadFile(record); err == nil && bytes.Contains(body, []byte(left.Container())) {
			testkit.Must(t, os.Remove(record))
		}
	}
	namesake := newSandbox(t, newProvider(t, func(c *Config) { c.Worker = "sweep" }), sandbox.Spec{ID: "left"})
	other := newSandbox(t, newProvider(t, func(c *Config) { c.Worker = "other" }), sandbox.Spec{ID: "left"})
	p := newProvider(t, func(c *Config) {
		c.RunDir, c.Worker, c.SweepInterval, c.StartTimeout = dir, "sweep", time.Hour, testkit.Timeout
	})
	mine := newSandbox(t, p, sandbox.Spec{ID: "mine"})
	old, name := time.Now().Add(-time.Hour), filepath.Join(p.dir, "stale")
	for _, suffix := range []string{".sock", ".ask"} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name + suffix, Net: "unix"})
		testkit.Must(t, err)
		l.SetUnlinkOnClose(false)
		testkit.Must(t, errors.Join(l.Close(), os.Chtimes(name+suffix, old, old)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	<-left.Done()
	wantNoContainer(t, p, left.Container())
	for _, s := range []*Sandbox{live, namesake, other, mine} {
		sandboxtest.WantShell(t, s, "p", "echo alive", "alive\n")
	}
	cancel()
	if err := <-ran; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v, want context.Canceled", err)
	}
	wantSwept(t, p, 0)
	sandboxtest.WantNoFiles(t, name+".*")
	found, err := p.client.ContainerList(t.Context(), container.ListOptions{All: true})
	testkit.Must(t, err)
	if len(found) == 0 {
		t.Error("the engine lists no containers, want those of the live sandboxes")
	}
}

// A sweep neither counts nor removes a container that its owner has removed since the engine listed it: the owner tracks it no more.
func TestSweepIgnoresContainerThatIsGone(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/_ping"):
			w.Header().Set("Api-Version", "1.41")
		case strings.HasSuffix(r.URL.Path, "/containers/json"):
			fmt.Fprint(w, `[{"Id":"c","Names":["/sluice-c"]}]`)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"message":"No such container: c"}`)
		}
	}))
	defer server.Close()
	p, err := New(Config{RunDir: testkit.ShortDir(t), Host: "tcp://" + strings.TrimPrefix(server.URL, "http://"), Image: "x:1", Warn: func(err error) { t.Error(err) }})
	testkit.Must(t, err)
	defer closeProvider(t, p)
	wantSwept(t, p, 0)
}

// What does not run for another run folder is left to its worker for a time.
func TestAbandoned(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		running           bool
		created, finished time.Time
		want              bool
	}{
		"runs":           {true, now.Add(-time.Hour), time.Time{}, false},
		"ended now":      {false, now.Add(-time.Hour), now, false},
		"ended long ago": {false, now.Add(-2 * time.Hour), now.Add(-time.Hour), true},
		"is starting":    {false, now, time.Time{}, false},
		"never ran":      {false, now.Add(-time.Hour), time.Time{}, true},
	} {
		c := container.InspectResponse{ContainerJSONBase: &container.ContainerJSONBase{
			Created: test.created.Format(time.RFC3339Nano),
			State:   &container.State{Running: test.running, FinishedAt: test.finished.Format(time.RFC3339Nano)},
		}}
		testkit.Equal(t, name, abandoned(c), test.want)
	}
	testkit.Equal(t, "unknown", abandoned(container.InspectResponse{}), false)
}

// Every run folder has a name of its own, also for two workers that start on it at once.
func TestFolderName(t *testing.T) {
	dir := t.TempDir()
	names := make([]string, 8)
	var group sync.WaitGroup
	for i := range names {
		group.Go(func() {
			var err error
			if names[i], err = folderName(dir); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for _, name := range names {
		testkit.Equal(t, "name", name, names[0])
	}
	other, err := folderName(t.TempDir())
	testkit.Must(t, err)
	if other == names[0] {
		t.Errorf("two folders have the name %s", other)
	}
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "name"), nil, 0o600))
	renamed, err := folderName(dir)
	testkit.Must(t, err)
	again, err := folderName(dir)
	testkit.Must(t, err)
	testkit.Equal(t, "name after one was cut off", again, renamed)
}

func TestOOMCounter(t *testing.T) {
	for in, want := range map[string]string{
		"0::/docker/x\n":                         "/sys/fs/cgroup/docker/x/memory.events",
		"3:cpu,memory:/docker/x\n0::/docker/x\n": "/sys/fs/cgroup/memory/docker/x/memory.oom_control",
		"3:cpu:/docker/x\n":                      "",
		"":                                       "",
	} {
		testkit.Equal(t, fmt.Sprintf("counter path of %q", in), counterPath([]byte(in)), want)
	}
	for in, want := range map[string]int64{"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n": 3, "low 0\noom 1\noom_kill 2\noom_group_kill 0\n": 2} {
		if got, ok := parseCount([]byte(in)); !ok || got != want {
			t.Errorf("count in %q: %d, %v, want %d, true", in, got, ok, want)
		}
	}
	if got, ok := parseCount([]byte("oom_kill x")); ok {
		t.Errorf("count in %q: %d, want none", "oom_kill x", got)
	}
}
