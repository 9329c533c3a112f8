package docker

import (
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

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
	"github.com/sluice-dev/sluice/schemas"
)

func TestConfig(t *testing.T) {
	for what, c := range map[string]Config{
		"no folder": {}, "relative": {RunDir: "run"}, "too long": {RunDir: "/" + strings.Repeat("x", 80)},
		"cell": {RunDir: "/r", Cell: "a b"}, "worker": {RunDir: "/r", Worker: "a="}, "user": {RunDir: "/r", UID: -1},
		"time": {RunDir: "/r", SweepEvery: -1}, "limit": {RunDir: "/r", Limits: sandbox.Limits{PIDs: -1}},
		"little memory": {RunDir: "/r", Limits: sandbox.Limits{MemoryBytes: 1 << 20}},
	} {
		if _, err := New(c); !errors.Is(err, schemas.ErrInvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestNoEngine: whoever has none is told how to get one.
func TestNoEngine(t *testing.T) {
	dir := runDir(t)
	host := "unix://" + filepath.Join(dir, "none.sock")
	p, err := New(Config{RunDir: dir, Host: host, Image: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer shut(t, p)
	workspace := filepath.Join(dir, "ws")
	_, createErr := p.Create(t.Context(), sandbox.Spec{ID: "a", Workspace: workspace})
	_, probeErr := Probe(t.Context(), host)
	_, sweepErr := p.Sweep(t.Context())
	for what, err := range map[string]error{"create": createErr, "probe": probeErr, "sweep": sweepErr} {
		if !errors.Is(err, schemas.ErrUnavailable) || !strings.Contains(err.Error(), Install) || !strings.Contains(err.Error(), host) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := os.Stat(workspace); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// TestPull asks an engine that is none: what it says of a pull is what engines say.
func TestPull(t *testing.T) {
	for what, tt := range map[string]struct {
		status int
		body   string
		code   schemas.Code
	}{
		"not there":    {404, `{"message":"manifest for x:1 not found: manifest unknown"}`, schemas.CodeNotFound},
		"denied":       {404, `{"message":"pull access denied for x, repository does not exist"}`, schemas.CodeNotFound},
		"out of reach": {500, `{"message":"dial tcp: lookup registry: no such host"}`, schemas.CodeUnavailable},
		"no name":      {400, `{"message":"invalid reference format"}`, schemas.CodeInvalidArgument},
		"later":        {200, `{"status":"Pulling","id":"layer"}` + "\n" + `{"error":"connection reset"}`, schemas.CodeUnavailable},
		"no such file": {200, `{"status":"Downloading","id":"layer","progressDetail":{"current":1,"total":2}}` + "\n", schemas.CodeNotFound},
		"cut short":    {200, `{"status":"Pull`, schemas.CodeUnavailable},
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
			var told []Progress
			p, err := New(Config{
				RunDir: runDir(t), Host: "tcp://" + strings.TrimPrefix(server.URL, "http://"), Image: "x:1",
				Pulling: func(p Progress) { told = append(told, p) },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer shut(t, p)
			if _, err := p.Create(t.Context(), sandbox.Spec{ID: "a", Workspace: t.TempDir()}); schemas.CodeOf(err) != tt.code {
				t.Errorf("%v", err)
			}
			if what == "no such file" && (len(told) != 1 || told[0] != Progress{"x:1", "layer", "Downloading", 1, 2}) {
				t.Errorf("%+v", told)
			}
		})
	}
}

// TestRefused: what the engine cannot do is said, and nothing is left behind.
func TestRefused(t *testing.T) {
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
			if _, err := p.Create(t.Context(), tt.spec); schemas.CodeOf(err) != tt.code {
				t.Errorf("%v is %s", err, schemas.CodeOf(err))
			}
			if _, err := os.Stat(tt.spec.Workspace); !os.IsNotExist(err) {
				t.Error(err)
			}
			if n, err := p.Sweep(t.Context()); n != 0 || err != nil {
				t.Error(n, err)
			}
			if left, err := filepath.Glob(filepath.Join(p.dir, "*.[as]*")); err != nil || len(left) != 0 {
				t.Error(left, err)
			}
		})
	}
}

// TestSupervisorFails: a container that ends before its supervisor has asked is noticed at once, not by a timeout.
func TestSupervisorFails(t *testing.T) {
	p := newProvider(t, func(c *Config) { c.StartTimeout = patience })
	ctx, cancel := context.WithTimeout(t.Context(), patience/2)
	defer cancel()
	if err := os.WriteFile(filepath.Join(p.dir, "true"), []byte("#!/bin/true\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p.program = filepath.Join(p.dir, "true")
	_, err := p.Create(ctx, sandbox.Spec{ID: "a", Workspace: t.TempDir()})
	if !errors.Is(err, schemas.ErrUnavailable) || !strings.Contains(err.Error(), "exit code 0") {
		t.Error(err)
	}
	if n, err := p.Sweep(t.Context()); n != 0 || err != nil {
		t.Error(n, err)
	}
}

// TestCancelledCreate: whenever the caller gives up, the engine keeps no container of it, and a sweep beside it is no trouble.
func TestCancelledCreate(t *testing.T) {
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
				t.Error(err)
			}
		})
		group.Go(func() {
			if n, err := p.Sweep(t.Context()); n != 0 || err != nil {
				t.Error(n, err)
			}
		})
	}
	group.Wait()
	if n, err := p.Sweep(t.Context()); n != 0 || err != nil {
		t.Error(n, err)
	}
}

// TestSweep: what a worker that died left is removed; what lives, or is another's, stays.
func TestSweep(t *testing.T) {
	dead := newProvider(t, func(c *Config) { c.Worker = "sweep" })
	left := box(t, dead, sandbox.Spec{ID: "left"})
	live := box(t, dead, sandbox.Spec{ID: "live"})
	other := box(t, newProvider(t, func(c *Config) { c.Worker = "other" }), sandbox.Spec{ID: "left"})
	p := newProvider(t, func(c *Config) {
		c.Worker, c.SweepEvery, c.StartTimeout = "sweep", time.Hour, patience
		c.Live = func(context.Context) (map[string]bool, error) { return map[string]bool{"live": true}, nil }
	})
	mine := box(t, p, sandbox.Spec{ID: "mine"})
	old, name := time.Now().Add(-time.Hour), filepath.Join(p.dir, "stale")
	for _, suffix := range []string{".sock", ".ask"} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name + suffix, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		if err := errors.Join(l.Close(), os.Chtimes(name+suffix, old, old)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	<-left.Done()
	absent(t, p, left.Container())
	for _, s := range []*Sandbox{live, other, mine} {
		if out, _ := sh(t, s, "p", "echo alive"); out != "alive\n" {
			t.Errorf("%s: %q", s.ID(), out)
		}
	}
	cancel()
	if err := <-ran; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n, err := p.Sweep(t.Context()); n != 0 || err != nil {
		t.Error(n, err)
	}
	if stale, err := filepath.Glob(name + ".*"); err != nil || len(stale) != 0 {
		t.Error(stale, err)
	}
	found, err := p.client.ContainerList(t.Context(), container.ListOptions{All: true})
	if err != nil || len(found) == 0 {
		t.Error(found, err)
	}
}

func TestCounterPath(t *testing.T) {
	for in, want := range map[string]string{
		"0::/docker/x\n":                         "/sys/fs/cgroup/docker/x/memory.events",
		"3:cpu,memory:/docker/x\n0::/docker/x\n": "/sys/fs/cgroup/memory/docker/x/memory.oom_control",
		"3:cpu:/docker/x\n":                      "",
		"":                                       "",
	} {
		if got := counterPath([]byte(in)); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
	for in, want := range map[string]int64{"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n": 3, "low 0\noom 1\noom_kill 2\noom_group_kill 0\n": 2} {
		if got, ok := parseCount([]byte(in)); !ok || got != want {
			t.Errorf("%q: %d", in, got)
		}
	}
	if _, ok := parseCount([]byte("oom_kill x")); ok {
		t.Error("a number was found")
	}
}
