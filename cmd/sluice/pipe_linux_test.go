package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// A pipe between two processes loses and repeats nothing when their worker is killed and comes back.
func TestPipeSurvivesAKillOfItsWorker(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "w1")
	source, err := f.client.StartProcess(f.ctx, client.Request{
		Thread: "t", Command: "bash", StdinOpen: true,
		Args: []string{"-c", "i=0; until read -t 0.01 line; do i=$((i+1)); echo $i; done; echo end"},
	})
	f.must(err)
	sink, err := f.client.StartProcess(f.ctx, client.Request{Thread: "t", Command: "cat", StdinFrom: source.ID()})
	f.must(err)
	has := func(lines int) {
		t.Helper()
		errEnough := fmt.Errorf("%d lines", lines)
		n := 0
		err := sink.Logs(f.ctx, client.LogQuery{Follow: true}, func(k schemas.Chunk) error {
			if n += strings.Count(string(k.Data), "\n"); n >= lines {
				return errEnough
			}
			return nil
		})
		testkit.Equal(t, "the sink has enough", fmt.Sprint(err), errEnough.Error())
	}
	has(20)
	f.workers["w1"].kill()
	f.start("w1")
	has(200)
	f.workers["w1"].kill()
	f.start("w1")
	f.must(source.WriteStdin(f.ctx, []byte("stop\n")))
	want, err := source.Wait(f.ctx)
	f.must(err)
	got, err := sink.Wait(f.ctx)
	f.must(err)
	if !strings.HasSuffix(want.Stdout, "\nend\n") {
		t.Fatalf("the source printed %q", want.Stdout)
	}
	testkit.Equal(t, "output of the sink", got.Stdout, want.Stdout)
	testkit.Equal(t, "status of the sink", got.Status(), schemas.StatusCompleted)
}
