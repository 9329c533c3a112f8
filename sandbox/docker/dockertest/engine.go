package dockertest

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"
)

// Engine is the Docker engine without Sluice: the baseline of the benchmarks.
type Engine struct{ client *client.Client }

// Open connects to the engine at DOCKER_HOST, or to the local one. Errors: ErrMissing when none answers.
func Open(ctx context.Context) (*Engine, error) {
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, err
	}
	if _, err := c.Ping(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("%w: no Docker engine answers: %w: run %s", ErrMissing, err, InstallCommand)
	}
	return &Engine{client: c}, nil
}

// Close ends the connections.
func (e *Engine) Close() error { return e.client.Close() }

// Start creates and starts a container that sleeps, with the configuration of another one, including all limits and protections.
func (e *Engine) Start(ctx context.Context, like string) (id string, err error) {
	model, err := e.client.ContainerInspect(ctx, like)
	if err != nil {
		return "", err
	}
	config := *model.Config
	config.Entrypoint, config.Cmd = []string{"/bin/sleep"}, []string{"3600"}
	host := *model.HostConfig
	// The sockets that were mounted only for its start are gone.
	host.Mounts = slices.DeleteFunc(slices.Clone(host.Mounts), func(m mount.Mount) bool {
		_, err := os.Lstat(m.Source)
		return err != nil
	})
	created, err := e.client.ContainerCreate(ctx, &config, &host, nil, nil, "")
	if err != nil {
		return "", err
	}
	return created.ID, e.client.ContainerStart(ctx, created.ID, container.StartOptions{})
}

// Remove kills and removes a container.
func (e *Engine) Remove(ctx context.Context, id string) error {
	return e.client.ContainerRemove(ctx, id, container.RemoveOptions{Force: true})
}

// Exec runs a command in a container, like docker exec, and reads its output to the end.
func (e *Engine) Exec(ctx context.Context, id string, command ...string) error {
	exec, err := e.client.ContainerExecCreate(ctx, id, container.ExecOptions{Cmd: command, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return err
	}
	conn, err := e.client.ContainerExecAttach(ctx, exec.ID, container.ExecAttachOptions{})
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn.Reader)
	conn.Close()
	if err != nil {
		return err
	}
	state, err := e.client.ContainerExecInspect(ctx, exec.ID)
	if err == nil && (state.Running || state.ExitCode != 0) {
		err = fmt.Errorf("exec %v: running %v, exit code %d, want exit code 0", command, state.Running, state.ExitCode)
	}
	return err
}
