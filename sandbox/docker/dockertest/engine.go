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

// Engine is the Docker engine with nothing of Sluice between: what Sluice's ways are measured against.
type Engine struct{ client *client.Client }

// Open finds the engine that DOCKER_HOST names, or the local one. Errors: ErrMissing when none answers.
func Open(ctx context.Context) (*Engine, error) {
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, err
	}
	if _, err := c.Ping(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("%w: no Docker engine answers: %w: run %s", ErrMissing, err, Bring)
	}
	return &Engine{client: c}, nil
}

// Close ends the connections.
func (e *Engine) Close() error { return e.client.Close() }

// Start creates and starts a container with the settings of another, each limit and protection included, whose one
// process waits.
func (e *Engine) Start(ctx context.Context, like string) (id string, err error) {
	pattern, err := e.client.ContainerInspect(ctx, like)
	if err != nil {
		return "", err
	}
	config := *pattern.Config
	config.Entrypoint, config.Cmd = []string{"/bin/sleep"}, []string{"3600"}
	host := *pattern.HostConfig
	// What was mounted for its start alone is not there any more.
	host.Mounts = slices.DeleteFunc(slices.Clone(host.Mounts), func(m mount.Mount) bool {
		_, err := os.Lstat(m.Source)
		return err != nil
	})
	made, err := e.client.ContainerCreate(ctx, &config, &host, nil, nil, "")
	if err != nil {
		return "", err
	}
	return made.ID, e.client.ContainerStart(ctx, made.ID, container.StartOptions{})
}

// Remove ends a container by force.
func (e *Engine) Remove(ctx context.Context, id string) error {
	return e.client.ContainerRemove(ctx, id, container.RemoveOptions{Force: true})
}

// Exec runs a command in a container as docker exec does, and reads its output to the end.
func (e *Engine) Exec(ctx context.Context, id string, command ...string) error {
	made, err := e.client.ContainerExecCreate(ctx, id, container.ExecOptions{Cmd: command, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return err
	}
	conn, err := e.client.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn.Reader)
	conn.Close()
	if err != nil {
		return err
	}
	state, err := e.client.ContainerExecInspect(ctx, made.ID)
	if err == nil && (state.Running || state.ExitCode != 0) {
		err = fmt.Errorf("%v: %+v", command, state)
	}
	return err
}
