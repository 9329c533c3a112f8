package events

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 17: live output is complete when the leader of LOG steps down while much is written.
func TestFollowersLoseNothingWhenTheLeaderOfLogStepsDown(t *testing.T) {
	servers := newCluster(t)
	worker := servers.connect(0)
	ctx := testkit.Context(t)
	servers.ensure(worker, Topology{})
	const processes, lines = 12, 3000
	var wg sync.WaitGroup
	for i := range processes {
		r := ref("t", fmt.Sprintf("p%d", i))
		f, err := servers.connect(i%len(servers.servers)).FollowLog(r, 0)
		testkit.Must(t, err)
		testkit.Must(t, f.Flush(ctx))
		ended := make(chan *schemas.Result, 1)
		o, live := newOutput(t, worker, r), newCollector(t)
		wg.Go(func() {
			pace := time.NewTicker(time.Millisecond)
			defer pace.Stop()
			for n := range lines {
				if err := o.print(schemas.Stdout, fmt.Appendf(nil, "line %d of a process\n", n)); err != nil {
					t.Error(err)
					return
				}
				<-pace.C
			}
			ended <- o.close()
		})
		wg.Go(func() {
			defer f.Close()
			if err := follow(ctx, f, ended, live.add); err != nil {
				t.Error(err)
				return // the process may still print
			}
			live.want(schemas.Stdout, o.data[schemas.Stdout])
		})
	}
	for range 3 {
		testkit.Must(t, sleep(ctx, lines/6*time.Millisecond))
		if _, err := worker.nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+worker.names.log, nil, publishTimeout); err != nil {
			t.Log(err)
		}
	}
	wg.Wait()
}
