package docker

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/sluice-dev/sluice/sandbox"
)

// worker is what TestWorkerKilled kills: it makes a sandbox, starts something in it, says so, and waits.
func worker(dir, image string) error {
	p, err := New(Config{RunDir: dir, Image: image, Cell: cell(os.Getppid()), Worker: "killed"})
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

// TestWorkerKilled: the worker dies of SIGKILL. Its container ends by itself, and the next worker's sweep removes it, with its
// sockets' names free for others.
func TestWorkerKilled(t *testing.T) {
	p := newProvider(t, func(c *Config) { c.Worker = "killed" })
	cmd := exec.CommandContext(t.Context(), os.Args[0], "worker", runDir(t), p.config.Image)
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
	if n, err := p.Sweep(ctx); n != 1 || err != nil {
		t.Error(n, err)
	}
	absent(t, p, id)
}
