package docker

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// TestNetwork: a container is in the host's network only where that was asked for.
func TestNetwork(t *testing.T) {
	for network, shared := range map[schemas.Network]bool{"": false, schemas.NetworkNone: false, schemas.NetworkHost: true} {
		config, host := (&Provider{}).describe(sandbox.Spec{ID: "box", Workspace: t.TempDir(), Network: network}, &recipe{}, "ask")
		if (host.NetworkMode == "host") != shared || config.NetworkDisabled == shared {
			t.Errorf("%q: mode %q, disabled %v", network, host.NetworkMode, config.NetworkDisabled)
		}
	}
	p := newProvider(t, nil)
	s := box(t, p, sandbox.Spec{Network: schemas.NetworkHost})
	if out, exit := sh(t, s, "p", "cat /proc/net/dev | wc -l"); exit.Code != 0 || strings.TrimSpace(out) == "" {
		t.Fatalf("%+v %q", exit, out)
	}
}
