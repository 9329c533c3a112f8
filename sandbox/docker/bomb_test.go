package docker

import (
	"fmt"
	"testing"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// TestForkBombBeside: while a bomb takes every process there may be, the supervisor goes on: it refuses what it cannot start, and still
// ends the bomb.
func TestForkBombBeside(t *testing.T) {
	s := box(t, newProvider(t, nil), sandbox.Spec{Limits: sandbox.Limits{PIDs: 40}})
	bomb, err := s.Start(t.Context(), sandbox.Command{ID: "bomb", Path: "sh", Args: []string{"-c", `sh -c 'while :; do sleep 300 & done' 2>/dev/null; echo lit; exec sleep 300`}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bomb.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	started := []sandbox.Process{}
	refused := 0
	for i := range 60 {
		p, err := s.Start(t.Context(), sandbox.Command{ID: fmt.Sprint("beside", i), Path: "sleep", Args: []string{"300"}})
		if err == nil {
			started = append(started, p)
			continue
		}
		refused++
		if schemas.CodeOf(err) != schemas.CodeUnavailable {
			t.Error(err)
		}
	}
	t.Logf("%d started, %d refused", len(started), refused)
	for _, p := range append(started, bomb) {
		if err := p.Kill(0); err != nil {
			t.Fatal(err)
		}
		if _, exit := finish(t, p); exit.Reason != schemas.ReasonKilled {
			t.Fatalf("%+v", exit)
		}
	}
	if out, _ := sh(t, s, "after", "echo alive"); out != "alive\n" {
		t.Errorf("%q", out)
	}
}
