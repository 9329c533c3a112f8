package client_test

import (
	"testing"

	"github.com/sluice-dev/sluice/client"
)

// A caller that has seen the end of a process does not find it in a list of what runs.
func TestEndedProcessIsNotListedAsRunning(t *testing.T) {
	d := newCaller(t, "w1")
	for range 100 {
		p := d.start(sh("true"))
		_, err := p.Wait(d.ctx)
		d.must(err)
		list, err := d.Processes(d.ctx, client.ProcessQuery{})
		d.must(err)
		if len(list) > 0 {
			t.Fatalf("process %s has ended, and is listed as %s", p.ID(), list[0].Status)
		}
	}
}
