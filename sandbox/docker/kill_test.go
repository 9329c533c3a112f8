package docker

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/hostproc"
	"github.com/sluice-dev/sluice/schemas"
)

// Hardening 2: a container ends by its cgroups, without its engine.
func TestContainerEndsByItsCgroups(t *testing.T) {
	s := newSandbox(t, newProvider(t, nil), sandbox.Spec{})
	if len(s.cgroups) == 0 {
		testkit.Missing(t, "an engine on this host", "sudo -E go test ./sandbox/docker")
	}
	p, err := s.Start(t.Context(), sandbox.Command{ID: "p", Path: "sh", Args: []string{"-c", "trap '' TERM; sleep 300"}})
	testkit.Must(t, err)
	hostproc.KillCgroup(s.cgroups)
	exit, err := p.Wait(testkit.Context(t))
	testkit.Must(t, err)
	wantReason(t, "a process of the container", exit, schemas.ReasonLost)
	<-s.Done()
	wantNoContainer(t, s.provider, s.id)
}
