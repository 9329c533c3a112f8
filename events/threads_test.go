package events

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// The connection of a worker breaks while it takes a thread: nats.go reports it as closed, and restores it.
func TestThreadIsSubscribedOverABrokenConnection(t *testing.T) {
	c, taps := twoTaps(t, 4*time.Second)
	w, _ := startWorkerOn(t, c, "w1", nil)
	taps[0].freeze() // that of requests
	testkit.Must(t, w.listener.Threads.Subscribe(testkit.Context(t), schemas.DefaultTenant, "t"))
}
