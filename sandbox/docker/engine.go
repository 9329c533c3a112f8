package docker

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"github.com/sluice-dev/sluice/schemas"
)

// Install is the command that installs an engine on Debian, for error messages.
const Install = "apt-get install docker.io"

// Probe returns the version of the engine at host, or at DOCKER_HOST of the environment when host is empty: "20.10.24, API 1.41".
// Errors: unavailable, with the way out.
func Probe(ctx context.Context, host string) (string, error) {
	c, err := newClient(host)
	if err != nil {
		return "", err
	}
	defer c.Close()
	v, err := c.ServerVersion(ctx)
	if err != nil {
		return "", engineError(c, "read its version", err)
	}
	return v.Version + ", API " + v.APIVersion, nil
}

// CheckRuntime checks that the engine at host has an OCI runtime of this name, and that it applies the filter of system calls, which gVisor's
// runsc does only when it is asked to. An empty host is that of the environment. Errors: invalid_argument; unavailable when no engine answers.
func CheckRuntime(ctx context.Context, host, name string) error {
	c, err := newClient(host)
	if err != nil {
		return err
	}
	defer c.Close()
	info, err := c.Info(ctx)
	if err != nil {
		return engineError(c, "read its runtimes", err)
	}
	r, ok := info.Runtimes[name]
	if !ok {
		return schemas.Errorf(schemas.CodeInvalidArgument, "the Docker engine has no runtime %q, but %s: add it to the engine's configuration, or name one of these",
			name, strings.Join(slices.Sorted(maps.Keys(info.Runtimes)), ", "))
	}
	if filepath.Base(r.Path) == "runsc" && !slices.ContainsFunc(r.Args, appliesFilter) {
		return schemas.Errorf(schemas.CodeInvalidArgument,
			`the runtime %q ignores the filter of system calls: add "--oci-seccomp=true" to its runtimeArgs in the engine's configuration`, name)
	}
	return nil
}

// appliesFilter reports whether an argument has runsc apply a container's filter: one or two dashes, as all of its flags.
func appliesFilter(arg string) bool {
	name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	return name == "oci-seccomp" && value != "false"
}

// listenTimeout bounds a connection to the engine's socket on this machine.
const listenTimeout = 200 * time.Millisecond

// Listens reports whether a process accepts connections at DOCKER_HOST of the environment, or at the default socket. It sends no
// request, so it is fast. It does not try an address of another machine, and returns true for it.
func Listens() bool {
	c, err := newClient("")
	if err != nil {
		return false
	}
	defer c.Close()
	path, ok := strings.CutPrefix(c.DaemonHost(), "unix://")
	if !ok {
		return true
	}
	conn, err := net.DialTimeout("unix", path, listenTimeout)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// newClient returns a client, which connects when it is first used. It negotiates the API version with the engine.
func newClient(host string) (*client.Client, error) {
	options := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if host != "" {
		options = append(options, client.WithHost(host))
	}
	c, err := client.NewClientWithOpts(options...)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "docker: engine address: %w", err)
	}
	return c, nil
}

// negotiate negotiates the API version once, before the first request: the client would do it in the first request, and race with
// concurrent ones. Errors: unavailable.
func (p *Provider) negotiate(ctx context.Context) error {
	var done bool
	select {
	case done = <-p.negotiated:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { p.negotiated <- done }()
	if done {
		return nil
	}
	ping, err := p.client.Ping(ctx)
	if err != nil {
		return engineError(p.client, "read its version", err)
	}
	p.client.NegotiateAPIVersionPing(ping)
	done = true
	return nil
}

// engineError adds a code and the failed operation to an error of the engine.
func engineError(c *client.Client, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrPermission):
		return schemas.Errorf(schemas.CodeUnavailable, "docker: this user may not use the engine at %s: run `usermod -aG docker USER` as root, and log in again: %w",
			c.DaemonHost(), err)
	case client.IsErrConnectionFailed(err):
		return schemas.Errorf(schemas.CodeUnavailable, "docker: no engine answers at %s: start it, or install one with `%s`: %w",
			c.DaemonHost(), Install, err)
	case strings.Contains(err.Error(), "bind source path does not exist"):
		return schemas.Errorf(schemas.CodeUnavailable, "docker: the engine at %s cannot mount folders of this machine: use an engine on this machine: %w",
			c.DaemonHost(), err)
	case errdefs.IsNotFound(err):
		return schemas.Errorf(schemas.CodeNotFound, "docker: %s: %w", what, err)
	case errdefs.IsInvalidArgument(err):
		return schemas.Errorf(schemas.CodeInvalidArgument, "docker: %s: %w", what, err)
	default:
		return schemas.Errorf(schemas.CodeUnavailable, "docker: %s: %w", what, err)
	}
}

func ignoreNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
