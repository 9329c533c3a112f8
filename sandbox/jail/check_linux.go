package jail

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// checkPatience is how long a first jail may take before this machine counts as unable: it takes milliseconds.
const checkPatience = 10 * time.Second

// Check starts a jail, runs nothing in it, and says which limits hold here. Errors: unavailable, with what is missing and the
// command that brings it.
func Check() (limits string, err error) {
	dir, err := os.MkdirTemp("", "sluice-check-*")
	if err != nil {
		return "", schemas.Errorf(schemas.CodeUnavailable, "provider jail: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p, err := New(Config{RunDir: filepath.Join(dir, "run"), bare: true, Warn: func(text string) { limits = text }})
	if err != nil {
		return "", err
	}
	if p.cgroups != nil {
		limits = "memory, CPU and pids limited by cgroups v" + p.cgroups.version()
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkPatience)
	defer cancel()
	s, err := p.Create(ctx, sandbox.Spec{ID: "check", Workspace: filepath.Join(dir, "workspace")})
	if err == nil {
		err = s.Terminate(ctx, 0)
	}
	return limits, errors.Join(err, p.Close())
}

// hintNamespaces looks for the setting that keeps this user from making namespaces.
func hintNamespaces() string {
	for _, f := range []struct{ path, bad, command string }{
		{"/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
	} {
		n, err := readNumber(f.path)
		if err == nil && (n == 0) == (f.bad == "0") && (os.Geteuid() != 0 || f.path == "/proc/sys/user/max_user_namespaces") {
			return ": this kernel does not let this user make user namespaces; as root, run `" + f.command + "`, or start the worker as root, or use docker"
		}
	}
	return ": inside a container, it has to be started with the right to make namespaces (docker run --privileged); elsewhere start the worker as root, or use docker"
}
