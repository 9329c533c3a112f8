package docker

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"github.com/sluice-dev/sluice/schemas"
)

// Install is the command that brings an engine to a Debian machine, for messages to those who have none.
const Install = "apt-get install docker.io"

// Probe says which engine answers at host, or at the environment's DOCKER_HOST where host is empty: "20.10.24, API 1.41".
// Errors: unavailable, with what to do about it.
func Probe(ctx context.Context, host string) (string, error) {
	c, err := dial(host)
	if err != nil {
		return "", err
	}
	defer c.Close()
	v, err := c.ServerVersion(ctx)
	if err != nil {
		return "", engineError(c, "ask for its version", err)
	}
	return v.Version + ", API " + v.APIVersion, nil
}

// listenPatience is how long a connection to an engine on this machine may take.
const listenPatience = 200 * time.Millisecond

// Listens says whether something takes connections where an engine would: at DOCKER_HOST of the environment, or at the usual
// socket. It asks nothing, and so takes no time; an address of another machine counts as one that does.
func Listens() bool {
	c, err := dial("")
	if err != nil {
		return false
	}
	defer c.Close()
	path, ok := strings.CutPrefix(c.DaemonHost(), "unix://")
	if !ok {
		return true
	}
	conn, err := net.DialTimeout("unix", path, listenPatience)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// dial makes a client, which connects only when it is used. It speaks the newest API that the engine knows too.
func dial(host string) (*client.Client, error) {
	options := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if host != "" {
		options = append(options, client.WithHost(host))
	}
	c, err := client.NewClientWithOpts(options...)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "docker: the engine's address: %w", err)
	}
	return c, nil
}

// agree settles the version of the API before anything else is asked: left to the first request, it would be written while others
// read it. Errors: unavailable.
func (p *Provider) agree(ctx context.Context) error {
	var agreed bool
	select {
	case agreed = <-p.version:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { p.version <- agreed }()
	if agreed {
		return nil
	}
	ping, err := p.client.Ping(ctx)
	if err != nil {
		return engineError(p.client, "ask for its version", err)
	}
	p.client.NegotiateAPIVersionPing(ping)
	agreed = true
	return nil
}

// engineError gives what the engine said a code, and what it was about.
func engineError(c *client.Client, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrPermission):
		return schemas.Errorf(schemas.CodeUnavailable, "docker: this user may not use the engine at %s: as root, run `usermod -aG docker USER`, and log in again: %w",
			c.DaemonHost(), err)
	case client.IsErrConnectionFailed(err):
		return schemas.Errorf(schemas.CodeUnavailable, "docker: no engine answers at %s: start it, or install one with `%s`: %w",
			c.DaemonHost(), Install, err)
	case strings.Contains(err.Error(), "bind source path does not exist"):
		return schemas.Errorf(schemas.CodeUnavailable, "docker: the engine at %s does not see this machine's folders: it must run on this machine: %w",
			c.DaemonHost(), err)
	case errdefs.IsNotFound(err):
		return schemas.Errorf(schemas.CodeNotFound, "docker: %s: %w", what, err)
	case errdefs.IsInvalidArgument(err):
		return schemas.Errorf(schemas.CodeInvalidArgument, "docker: %s: %w", what, err)
	default:
		return schemas.Errorf(schemas.CodeUnavailable, "docker: %s: %w", what, err)
	}
}

// ignoreGone is nil for an error that says that the thing is not there any more.
func ignoreGone(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
