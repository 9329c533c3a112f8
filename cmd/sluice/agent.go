package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

// The thread of the agent, which is also its template, and the service that it is there.
const (
	agentThread  = "sandbox-agent"
	agentService = "agent"
)

// The defaults of the agent.
const (
	agentProgram    = "sandbox-agent"
	agentHost       = "127.0.0.1"
	agentPort       = 2468
	agentHealthPath = "/health"
)

// agent is the program that `sluice up` supervises when SANDBOX_AGENT_BIN or SANDBOX_WORKSPACE is set: a service with provider local.
type agent struct {
	folder string // its working directory, an absolute path
	spec   schemas.ServiceSpec
}

// newAgent returns the agent that the environment asks for; nil for none. Errors: not_found for its program, invalid_argument.
func (m *Main) newAgent() (*agent, error) {
	program, folder := m.Getenv("SANDBOX_AGENT_BIN"), m.Getenv("SANDBOX_WORKSPACE")
	if program == "" && folder == "" {
		return nil, nil
	}
	path, err := exec.LookPath(cmp.Or(program, agentProgram))
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeNotFound,
			"no agent to start: %w: install it, set SANDBOX_AGENT_BIN to its path, or unset SANDBOX_AGENT_BIN and SANDBOX_WORKSPACE", err)
	}
	if folder, err = filepath.Abs(folder); err == nil {
		folder, err = filepath.EvalSymlinks(folder)
	}
	if info, statErr := os.Stat(folder); err == nil && (statErr != nil || !info.IsDir()) {
		err = cmp.Or(statErr, fmt.Errorf("%s is not a folder", folder))
	}
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "SANDBOX_WORKSPACE: %w: name the folder that the agent works in", err)
	}
	port, err := m.agentPort()
	if err != nil {
		return nil, err
	}
	a := &agent{folder: folder, spec: schemas.ServiceSpec{
		Command: path, Args: []string{"server", "--host", agentHost, "--port", strconv.FormatInt(port, 10), "--no-token"},
		Health: &schemas.HealthCheck{Port: port, Path: cmp.Or(m.Getenv("SANDBOX_AGENT_HEALTH_PATH"), agentHealthPath)},
	}}
	if err := (&schemas.ServiceRequest{Name: agentService, Start: &a.spec}).Validate(); err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "SANDBOX_AGENT_BIN or SANDBOX_AGENT_HEALTH_PATH: %w", err)
	}
	return a, nil
}

func (m *Main) agentPort() (int64, error) {
	text := m.Getenv("SANDBOX_AGENT_PORT")
	if text == "" {
		return agentPort, nil
	}
	port, err := strconv.ParseInt(text, 10, 64)
	if err != nil || port < 1 || port > 65535 {
		return 0, schemas.Errorf(schemas.CodeInvalidArgument, "SANDBOX_AGENT_PORT is %.40q: it must be a port from 1 to 65535", text)
	}
	return port, nil
}

// startAgent starts the agent in the worker of h, and returns once it is healthy. The agent that an earlier `sluice up` left when it was
// killed goes on, if it is the same one. Errors: why the agent did not start.
func (w *workerFlags) startAgent(ctx context.Context, h *host, a *agent) error {
	c, err := w.connectTo(&events.Options{InProcess: h.server, Token: h.cfg.folder.storedToken(), Cell: w.cell, Name: "sluice up"})
	if err != nil {
		return err
	}
	defer c.conn.Close()
	if err := a.enter(ctx, c.client, filepath.Join(h.cfg.node.Workspaces, w.tenant, agentThread)); err != nil {
		return err
	}
	req := client.ServiceRequest{Name: agentService, Provider: schemas.ProviderLocal, Template: agentThread, ServiceSpec: a.spec}
	services := c.client.Services(agentThread)
	s, err := services.Start(ctx, req)
	if errors.Is(err, schemas.ErrConflict) { // another agent
		if err = endSession(ctx, c.client); err == nil {
			s, err = services.Start(ctx, req)
		}
	}
	if err != nil {
		return schemas.Errorf(schemas.CodeOf(err), "%w: `sluice service logs %s %s` shows what it printed", err, agentThread, agentService)
	}
	fmt.Fprintf(w.Stdout, "agent is up: %s, service %s of thread %s, in %s\n", s.BaseURL(), agentService, agentThread, a.folder)
	return nil
}

// enter makes the agent's folder the workspace of its thread: path becomes a link to it. A session in another folder is ended.
func (a *agent) enter(ctx context.Context, c *client.Client, path string) error {
	current, err := os.Readlink(path)
	switch {
	case err == nil && current == a.folder:
		return nil
	case err == nil:
		if err := endSession(ctx, c); err != nil {
			return err
		}
		err = os.Remove(path)
	case errors.Is(err, fs.ErrNotExist):
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	default:
		return schemas.Errorf(schemas.CodeConflict,
			"thread %[1]s has a workspace already, and the agent works in %[2]s: delete it with `sluice session delete %[1]s`, or `sluice workspace rm %[1]s`",
			agentThread, a.folder)
	}
	if err == nil {
		err = os.Symlink(a.folder, path)
	}
	if err != nil {
		return schemas.Errorf(schemas.CodeUnavailable, "workspace of thread %s: %w", agentThread, err)
	}
	return nil
}

func endSession(ctx context.Context, c *client.Client) error {
	_, err := c.StopSession(ctx, agentThread, client.StopMissingOK())
	return err
}

// offerLocal has a worker offer provider local beside those that it offers.
func offerLocal(allowed []string) []string {
	if slices.Contains(allowed, schemas.ProviderLocal) {
		return allowed
	}
	return append(allowed, schemas.ProviderLocal)
}
