package jail

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/registry"
	"github.com/sluice-dev/sluice/schemas"
)

// checkTimeout bounds the start of Check's jail, which takes milliseconds where it works.
const checkTimeout = 10 * time.Second

// Check starts a jail below runDir, runs nothing in it, and returns the limits that this machine enforces. runDir is the Config's of the
// worker's Provider, which may be running: jails of another folder may fail where these work, such as below a /tmp that is mounted
// noexec. Errors: unavailable, with what is missing and the command that provides it.
func Check(runDir string) (support Support, err error) {
	unavailable := func(err error) error {
		return schemas.Errorf(schemas.CodeUnavailable, "provider jail: run folder: %w", err)
	}
	if err := registry.PrivateDir(runDir); err != nil {
		return support, unavailable(err)
	}
	dir, err := os.MkdirTemp(runDir, "c*")
	if err != nil {
		return support, unavailable(err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p, err := New(Config{RunDir: dir, programDir: runDir, withoutEtc: true, Warn: func(text string) {
		support = Support{Limits: text, Partial: true}
	}})
	if err != nil {
		return support, err
	}
	if p.cgroups != nil {
		support.Limits = fmt.Sprintf("memory, CPU and pids limited by cgroups v%d", p.cgroups.version)
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	s, err := p.Create(ctx, sandbox.Spec{ID: "check", Workspace: filepath.Join(dir, "workspace")})
	if err == nil {
		err = s.Terminate(ctx, 0)
	}
	return support, errors.Join(err, p.Close())
}

// withHint adds the way out to the error of a start that failed.
func withHint(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	hint := ""
	switch failed, ok := errors.AsType[*callError](err); {
	case ok && errors.Is(failed.err, unix.ENOSYS):
		hint = ": provider jail needs Linux 5.12 or newer; use docker, or a newer kernel"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS):
		hint = namespaceHint()
	}
	return schemas.Errorf(schemas.CodeUnavailable, "start a jail: %w%s", err, hint)
}

// namespaceHint names the kernel setting that denies this user new namespaces.
func namespaceHint() string {
	const maxNamespaces = "/proc/sys/user/max_user_namespaces"
	for _, f := range []struct {
		path    string
		denying int
		command string
	}{
		{maxNamespaces, 0, "sysctl -w user.max_user_namespaces=15000"},
		{"/proc/sys/kernel/unprivileged_userns_clone", 0, "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 1, "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
	} {
		n, err := readNumber(f.path)
		if err == nil && (n == 0) == (f.denying == 0) && (os.Geteuid() != 0 || f.path == maxNamespaces) {
			return ": this kernel denies this user new user namespaces; as root, run `" + f.command + "`, or start the worker as root, or use docker"
		}
	}
	return ": inside a container, start that container with the right to create namespaces (docker run --privileged); elsewhere start the worker as root, or use docker"
}
