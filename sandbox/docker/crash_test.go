package docker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
)

// worker creates a sandbox, starts a process in it, prints the container's id, and waits until the test kills this program.
func worker(dir, image, reattachWindow string) error {
	window, err := time.ParseDuration(reattachWindow)
	if err != nil {
		return err
	}
	p, err := New(Config{RunDir: dir, Image: image, Cell: cell(os.Getppid()), Worker: filepath.Base(dir), ReattachWindow: window})
	if err != nil {
		return err
	}
	s, err := p.Create(context.Background(), sandbox.Spec{ID: "s1", Workspace: dir + "/ws"})
	if err != nil {
		return err
	}
	q, err := s.Start(context.Background(), sandbox.Command{ID: "p", Path: "sleep", Args: []string{"300"}})
	if err != nil {
		return err
	}
	created, ok := s.(*Sandbox)
	if !ok {
		return fmt.Errorf("sandbox is a %T, want a *Sandbox", s)
	}
	fmt.Println(created.Container())
	_, err = q.Wait(context.Background())
	return err
}

// killedWorker runs worker and kills it. It returns the container's id.
func killedWorker(t *testing.T, dir string, reattachWindow time.Duration) string {
	t.Helper()
	return sandboxtest.KilledWorker(t, "worker", dir, dockertest.Image(t), reattachWindow.String())
}

// providerAfter returns a provider with the folder and labels of a killed worker.
func providerAfter(t *testing.T, dir string) *Provider {
	t.Helper()
	return newProvider(t, func(c *Config) { c.Worker, c.RunDir = filepath.Base(dir), dir })
}

// The container of a killed worker survives sweeps, can be attached, and is removed with its sandbox.
func TestContainerOutlivesKilledWorker(t *testing.T) {
	dir := testkit.ShortDir(t)
	id := killedWorker(t, dir, 0)
	p := providerAfter(t, dir)
	wantSwept(t, p, 0)
	found, _ := sandboxtest.AttachOne(t, p)
	wantSwept(t, p, 0)
	if s, ok := found.(*Sandbox); !ok || s.Container() != id {
		t.Errorf("attached %+v, want container %s", found, id)
	}
	closeProvider(t, p)
	wantNoContainer(t, providerAfter(t, dir), id)
	sandboxtest.WantNoFiles(t, filepath.Join(dir, "docker", "*", "*.json"))
}

// After the reattach window the container ends by itself, and a later Attach removes it.
func TestContainerEndsAfterReattachWindow(t *testing.T) {
	dir := testkit.ShortDir(t)
	id := killedWorker(t, dir, time.Millisecond)
	var warnings []string
	p := newProvider(t, func(c *Config) {
		c.Worker, c.RunDir, c.Warn = filepath.Base(dir), dir, func(err error) { warnings = append(warnings, err.Error()) }
	})
	ended, failed := p.client.ContainerWait(testkit.Context(t), id, container.WaitConditionNotRunning)
	select {
	case state := <-ended:
		testkit.Equal(t, "exit code of the supervisor", state.StatusCode, int64(0))
	case err := <-failed:
		t.Fatalf("wait for the container: %v", err)
	}
	found, err := p.Attach(testkit.Context(t))
	testkit.Must(t, err)
	testkit.Equal(t, "number of attached sandboxes", len(found), 0)
	testkit.Equal(t, "number of warnings", len(warnings), 1)
	testkit.Contains(t, "warning", warnings[0], "is not running")
	wantNoContainer(t, p, id)
}

// A container without a record file, as after the loss of the run folder, is removed by the sweep.
func TestSweepRemovesContainerWithoutRecord(t *testing.T) {
	dir := testkit.ShortDir(t)
	p := providerAfter(t, dir)
	id := killedWorker(t, dir, 0)
	records := filepath.Join(dir, "docker", "kept")
	testkit.Must(t, os.RemoveAll(records))
	wantSwept(t, p, 1)
	wantNoContainer(t, p, id)
	testkit.Must(t, os.Mkdir(records, 0o700))
}
