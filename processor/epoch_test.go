package processor_test

import (
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

// Promises 13: the epoch counts for the thread, so that a run in its next session is a later one to every reader of its output.
func TestEpochGoesOnInTheNextSession(t *testing.T) {
	c, _ := newRig(t)
	var last uint64
	for _, key := range []string{"one", "two", "three"} {
		r := c.exec(command(key, sh("echo "+key)))
		if r.Epoch <= last {
			t.Fatalf("epoch of the run %s = %d, want more than %d", key, r.Epoch, last)
		}
		last = r.Epoch
		c.must(errorOf(c.stop(schemas.StopRequest{})))
	}
}
