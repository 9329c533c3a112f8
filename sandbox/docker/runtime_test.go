package docker

import (
	"slices"
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
		t.Skip(`the engine has no runtime runsc: apt-get install runsc, and {"runtimes":{"runsc":{"path":"/usr/bin/runsc","runtimeArgs":["--fsgofer-host-uds=true"]}}} in the engine's configuration (--host-uds=open with a newer one)`)
	}
}

// gVisor cannot pass a socket into a container, so the supervisor keeps the request connection.
func TestGVisor(t *testing.T) {
	needGVisor(t)
	s := newSandbox(t, newProvider(t, func(c *Config) { c.Runtime = "runsc" }), sandbox.Spec{})
	out, exit := sandboxtest.Shell(t, s, "kernel", "dmesg; echo x >f; cat f; exit 3")
	testkit.Equal(t, "exit code", exit.Code, 3)
	if !strings.Contains(out, "gVisor") || !strings.HasSuffix(out, "x\n") {
		t.Errorf("output %q, want gVisor's kernel messages and then x", out)
	}
	p := sandboxtest.StartShell(t, s, "tree", "sleep 300 & sleep 300")
	testkit.Must(t, p.Kill(0))
	_, exit = sandboxtest.MustFinish(t, p)
	wantReason(t, "tree", exit, schemas.ReasonKilled)
	testkit.Must(t, s.Terminate(t.Context(), 0))
}

func TestRuntimes(t *testing.T) {
	_ = newProvider(t, nil) // needs the engine
	got, err := Runtimes(t.Context(), "")
	testkit.Must(t, err)
	testkit.Equal(t, "has runc: "+strings.Join(got, " "), slices.Contains(got, "runc"), true)
}
