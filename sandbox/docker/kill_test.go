package docker

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Hardening 2: a container ends by its cgroups, without its engine. An engine that is behind with its events is not asked.
func TestContainerEndsByItsCgroups(t *testing.T) {
	s := newSandbox(t, newProvider(t, nil), sandbox.Spec{})
	if len(s.cgroups) == 0 || os.Geteuid() != 0 {
		testkit.Missing(t, "an engine on this host", "sudo -E go test ./sandbox/docker")
	}
	p, err := s.Start(t.Context(), sandbox.Command{ID: "p", Path: "sh", Args: []string{"-c", "trap '' TERM; sleep 300"}})
	testkit.Must(t, err)
	engine := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the engine was asked for %s %s", r.Method, r.URL)
	}))
	defer engine.Close()
	behind := newProvider(t, func(c *Config) { c.Host = "tcp://" + strings.TrimPrefix(engine.URL, "http://") })
	(&Sandbox{provider: behind, id: s.id, cgroups: s.cgroups}).kill()
	exit, err := p.Wait(testkit.Context(t))
	testkit.Must(t, err)
	wantReason(t, "a process of the container", exit, schemas.ReasonLost)
	<-s.Done()
	wantNoContainer(t, s.provider, s.id)
}

// Hardening 2: a container that cannot be attached ends, although the engine fails to remove it.
func TestContainerThatIsNotAttachedEnds(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.Missing(t, "root, to kill by cgroups", "sudo -E go test ./sandbox/docker")
	}
	dir := testkit.ShortDir(t)
	id := killedWorker(t, dir, 0)
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		if !strings.HasSuffix(r.URL.Path, "/_ping") {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer engine.Close()
	failing := newProvider(t, func(c *Config) {
		c.Worker, c.RunDir, c.Host = filepath.Base(dir), dir, "tcp://"+strings.TrimPrefix(engine.URL, "http://")
		c.Warn = func(err error) { t.Log(err) }
	})
	found, err := failing.Attach(testkit.Context(t))
	testkit.Must(t, err)
	testkit.Equal(t, "attached", len(found), 0)
	p := providerAfter(t, dir)
	ended, failed := p.client.ContainerWait(testkit.Context(t), id, container.WaitConditionNotRunning)
	select {
	case <-ended:
	case err := <-failed:
		testkit.Must(t, err)
	}
	wantSwept(t, p, 1)
}
