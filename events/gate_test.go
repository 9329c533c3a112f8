package events

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// A full gate asks its caller to try again. A closed one refuses as a worker does that shuts down: its caller asks another worker.
func TestGate(t *testing.T) {
	t.Parallel()
	g := newGate("w1", 1, schemas.Errorf(schemas.CodePoolExhausted, "full"))
	var done bool
	began, end := make(chan struct{}), make(chan struct{})
	if refused := g.enter(func() { close(began); <-end; done = true }); refused != nil {
		t.Fatal(refused)
	}
	<-began
	testkit.WantCode(t, g.enter(nil), schemas.CodePoolExhausted)
	close(end)
	g.close()
	testkit.Equal(t, "the first is done", done, true)
	refused := g.enter(nil)
	testkit.WantCode(t, refused, schemas.CodeUnavailable)
	testkit.Equal(t, "declined", isDeclined(refused), true)
}
