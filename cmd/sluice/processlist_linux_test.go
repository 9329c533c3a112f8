package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// A list shows what runs while its worker is frozen or killed, and comes back.
func TestListIsCompleteAfterAKill(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "w1")
	var want []string
	for i := range 3 {
		process, _, _ := f.runTicker(fmt.Sprint("t", i))
		want = append(want, process)
	}
	slices.Sort(want)
	check := func(when string) {
		t.Helper()
		list, err := f.client.Processes(f.ctx, client.ProcessQuery{})
		f.must(err)
		var got []string
		for _, p := range list {
			got = append(got, p.Process)
			testkit.Equal(t, "status "+when, p.Status, schemas.StatusRunning)
			testkit.Contains(t, "command "+when, p.Command+" "+strings.Join(p.Args, " "), "echo tick")
		}
		slices.Sort(got)
		testkit.Equal(t, "processes "+when, got, want)
	}
	check("of a live worker")
	f.workers["w1"].signal(syscall.SIGSTOP)
	check("of a frozen worker")
	f.workers["w1"].signal(syscall.SIGCONT)
	check("of a worker that goes on")
	f.workers["w1"].kill()
	check("of a killed worker")
	f.start("w1")
	check("of a worker that came back")
}
