package docker

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
)

// worker is what killedWorker kills: it makes a sandbox, starts something in it, says so, and waits.
func worker(dir, image, reattachWindow string) error {
	d, err := time.ParseDuration(reattachWindow)
	if err != nil {
		return err
	}
	p, err := New(Config{RunDir: dir, Image: image, Cell: cell(os.Getppid()), Worker: filepath.Base(dir), ReattachWindow: d})
	if err != nil {
		return err
	}
	s, err := p.Create(context.Background(), sandbox.Spec{ID: "box", Workspace: dir + "/ws"})
	if err != nil {
		return err
	}
	q, err := s.Start(context.Background(), sandbox.Command{ID: "p", Path: "sleep", Args: []string{"300"}})
	if err != nil {
		return err
	}
	made, ok := s.(*Sandbox)
	if !ok {
		return fmt.Errorf("%T", s)
	}
	fmt.Println(made.Container())
	_, err = q.Wait(context.Background())
	return err
}

// TestWorkerKilled: the worker dies of SIGKILL. Its container waits for the next one, whatever that sweeps meanwhile, and is
// removed with it.
func TestWorkerKilled(t *testing.T) {
	dir := runDir(t)
	id := killedWorker(t, dir, 0)
	p := newProvider(t, func(c *Config) { c.Worker, c.RunDir = filepath.Base(dir), dir })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if n, err := p.Sweep(ctx); n != 0 || err != nil {
		t.Error(n, err)
	}
	found, err := p.Attach(ctx)
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	if held, err := found[0].Held(ctx); err != nil || len(held) != 1 || held[0].Ended {
		t.Errorf("%+v, %v", held, err)
	}
	if n, err := p.Sweep(ctx); n != 0 || err != nil {
		t.Error(n, err)
	}
	if made, ok := found[0].(*Sandbox); !ok || made.Container() != id {
		t.Errorf("%T, not container %s", found[0], id)
	}
	shut(t, p)
	p = newProvider(t, func(c *Config) { c.Worker, c.RunDir = filepath.Base(dir), dir })
	absent(t, p, id)
	if left, err := filepath.Glob(filepath.Join(dir, "docker", "*", "*.json")); err != nil || len(left) != 0 {
		t.Error(left, err)
	}
}

// TestWorkerKilledForGood: nobody comes back in time. The container ends by itself, and whoever comes later removes it.
func TestWorkerKilledForGood(t *testing.T) {
	dir := runDir(t)
	id := killedWorker(t, dir, time.Millisecond)
	p := newProvider(t, func(c *Config) { c.Worker, c.RunDir = filepath.Base(dir), dir })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ended, failed := p.client.ContainerWait(ctx, id, container.WaitConditionNotRunning)
	select {
	case state := <-ended:
		if state.StatusCode != 0 {
			t.Errorf("the supervisor ended with %d", state.StatusCode)
		}
	case err := <-failed:
		t.Fatal(err)
	}
	if found, err := p.Attach(ctx); err != nil || len(found) != 0 {
		t.Error(found, err)
	}
	absent(t, p, id)
	// One that no file tells of, as where the folder was lost with its machine, is for the sweep.
	other := killedWorker(t, dir, 0)
	if err := os.RemoveAll(filepath.Join(dir, "docker", "kept")); err != nil {
		t.Fatal(err)
	}
	if n, err := p.Sweep(ctx); n != 1 || err != nil {
		t.Error(n, err)
	}
	absent(t, p, other)
	if err := os.Mkdir(filepath.Join(dir, "docker", "kept"), 0o700); err != nil {
		t.Error(err)
	}
}

// killedWorker starts a worker with a process in a container, and kills it. It gives the container's id.
func killedWorker(t *testing.T, dir string, reattachWindow time.Duration) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "worker", dir, dockertest.Image(t), reattachWindow.String())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := bufio.NewReader(out).ReadString('\n')
	id = strings.TrimSpace(id)
	if err != nil || cmd.Process.Kill() != nil {
		t.Fatal(id, err)
	}
	_ = cmd.Wait()
	return id
}
