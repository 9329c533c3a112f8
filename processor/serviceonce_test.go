package processor_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Processes 4: whenever a worker is killed, or loses its lease, while it starts a service, the next incarnation has one process of it.
func TestServiceRunsOnceOverOutages(t *testing.T) {
	t.Parallel()
	c, w := newRig(t, hasty)
	_, err := c.place(schemas.PlaceRequest{})
	c.must(err)
	for round := range 30 {
		name := fmt.Sprint("s", round)
		start := schemas.ServiceRequest{Name: name, Start: &schemas.ServiceSpec{Command: "sh", Args: []string{"-c", "echo $$ >>" + name + "; exec sleep 300"}}}
		ctx, leave := context.WithCancel(c.ctx)
		var starting sync.WaitGroup
		starting.Go(func() { _, _ = c.conn.ControlService(ctx, schemas.DefaultTenant, "t", start) })
		<-time.After(time.Duration(rand.IntN(8000)) * time.Microsecond)
		if round%2 == 0 {
			w = w.outage(hasty)
		} else {
			w.crash()
			w = w.again(hasty)
		}
		leave()
		starting.Wait()
		s, err := c.control(start)
		if errors.Is(err, schemas.ErrLost) { // its sandbox was being made
			s, err = c.control(start)
		}
		c.must(err)
		if pids := c.instances(name); len(pids) != 1 {
			t.Errorf("round %d: processes %v run, want one of %v", round, pids, s.Processes)
		}
	}
}

// instances are the processes that run, of those that write their ids to this file of thread t. It waits until there is one.
func (c *cell) instances(file string) (pids []int) {
	c.t.Helper()
	for {
		for _, field := range strings.Fields(c.read(file)) {
			pid, err := strconv.Atoi(field)
			c.must(err)
			if testkit.Alive(pid) {
				pids = append(pids, pid)
			}
		}
		if len(pids) > 0 {
			return pids
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-c.ctx.Done():
			c.t.Fatalf("no process of those in %s runs", file)
		}
	}
}
