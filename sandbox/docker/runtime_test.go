package docker

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
	"github.com/sluice-dev/sluice/schemas"
)

// gvisor ends the test where the engine has no runtime runsc: it is an option, and no test may ask for it.
func gvisor(t *testing.T) {
	t.Helper()
	dockertest.Image(t)
	p := newProvider(t, nil)
	info, err := p.client.Info(t.Context())
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := info.Runtimes["runsc"]; !ok {
		t.Skip(`the engine has no runtime runsc: apt-get install runsc, and {"runtimes":{"runsc":{"path":"/usr/bin/runsc","runtimeArgs":["--fsgofer-host-uds=true"]}}} in the engine's configuration (--host-uds=open with a newer one)`)
	}
}

// TestGVisor: where a socket cannot be passed on, the connection on which the supervisor asked for it is kept.
func TestGVisor(t *testing.T) {
	gvisor(t)
	s := box(t, newProvider(t, func(c *Config) { c.Runtime = "runsc" }), sandbox.Spec{})
	if out, exit := sh(t, s, "kernel", "dmesg; echo x >f; cat f; exit 3"); !strings.Contains(out, "gVisor") || !strings.HasSuffix(out, "x\n") || exit.Code != 3 {
		t.Errorf("%q, %+v", out, exit)
	}
	p, err := s.Start(t.Context(), sandbox.Command{ID: "tree", Path: "sh", Args: []string{"-c", "sleep 300 & sleep 300"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(0); err != nil {
		t.Fatal(err)
	}
	if _, exit := finish(t, p); exit.Reason != schemas.ReasonKilled {
		t.Errorf("%+v", exit)
	}
	if err := s.Terminate(t.Context(), 0); err != nil {
		t.Error(err)
	}
}
