package docker

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
	"github.com/sluice-dev/sluice/schemas"
)

// needGVisor skips the test when the engine has no runtime runsc. It is optional, also in CI.
func needGVisor(t *testing.T) {
	t.Helper()
	info, err := newProvider(t, nil).client.Info(t.Context())
	testkit.Must(t, err)
	if _, ok := info.Runtimes["runsc"]; !ok {
		t.Skip(`the engine has no runtime runsc: apt-get install runsc, and {"runtimes":{"runsc":{"path":"/usr/bin/runsc","runtimeArgs":["--fsgofer-host-uds=true","--oci-seccomp=true"]}}} in the engine's configuration (--host-uds=open with a newer one; "--network=none" too, where it takes each network namespace for the host's)`)
	}
}

// gVisor cannot pass a socket into a container, so the supervisor keeps the request connection.
func TestGVisor(t *testing.T) {
	needGVisor(t)
	s := newSandbox(t, newProvider(t, func(c *Config) { c.Runtime = "runsc" }), sandbox.Spec{})
	out, exit := sandboxtest.Shell(t, s, "kernel", "cat /proc/version; echo x >f; cat f; chmod 4755 f && echo set-id; exit 3")
	testkit.Equal(t, "exit code", exit.Code, 3)
	// The version is that of gVisor's kernel, and set-user-id files are refused by the filter alone.
	if !strings.HasPrefix(out, "Linux version 4.4.0 ") || !strings.Contains(out, "\nx\n") || strings.Contains(out, "set-id") {
		t.Errorf("output %q, want gVisor's version, then x, and no set-user-id file", out)
	}
	p := sandboxtest.StartShell(t, s, "tree", "sleep 300 & sleep 300")
	testkit.Must(t, p.Kill(0))
	_, exit = sandboxtest.MustFinish(t, p)
	wantReason(t, "tree", exit, schemas.ReasonKilled)
	testkit.Must(t, s.Terminate(t.Context(), 0))
}

func TestRuntimeIsChecked(t *testing.T) {
	_ = newProvider(t, nil) // needs the engine
	testkit.Must(t, CheckRuntime(t.Context(), "", "runc"))
	err := CheckRuntime(t.Context(), "", "none")
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	testkit.Contains(t, "error", err.Error(), "runc")
	for arg, want := range map[string]bool{"--oci-seccomp": true, "-oci-seccomp=true": true, "--oci-seccomp=false": false, "--network=none": false} {
		testkit.Equal(t, arg+" applies the filter", appliesFilter(arg), want)
	}
}
