package client_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func TestProcessesAreListedInPages(t *testing.T) {
	d := newCaller(t, "w1", "w2")
	x := d.stream(sh("echo on; exec sleep 300"))
	d.waitForOutput(x.Process(), "on")
	var ended []string
	for i := range 5 {
		req := sh("exit 0")
		req.Thread = fmt.Sprint("t", i%2)
		ended = append(ended, d.exec(req).Process)
	}
	slices.Reverse(ended)
	var got []string
	for q := (client.ProcessQuery{All: true, Limit: 2}); ; {
		page, err := d.Processes(d.ctx, q)
		d.must(err)
		if len(page) == 0 {
			break
		}
		for _, p := range page {
			got = append(got, p.Process)
		}
		q.Before = page[len(page)-1].Seq
	}
	d.equal("processes of all pages", got, append([]string{x.Process()}, ended...))
	list, err := d.Processes(d.ctx, client.ProcessQuery{})
	d.must(err)
	d.equal("number of processes that run", len(list), 1)
	d.equal("status", list[0].Status, schemas.StatusRunning)
	d.equal("process id is known", list[0].PID > 0, true)
	list, err = d.Processes(d.ctx, client.ProcessQuery{Thread: "t0", All: true})
	d.must(err)
	d.equal("processes of a thread", len(list), 3)

	p, err := d.process(x.Process()).Info(d.ctx)
	d.must(err)
	d.equal("status of the running process", p.Status, schemas.StatusRunning)
	d.must(x.Kill(d.ctx, 0))
	d.waitForEnd(x.Process())
	p, err = d.process(x.Process()).Info(d.ctx)
	d.must(err)
	d.equal("status of the killed process", p.Status, schemas.StatusKilled)
	list, err = d.Processes(d.ctx, client.ProcessQuery{})
	d.must(err)
	d.equal("processes that run after the kill", len(list), 0)
	d.wantCode("an unknown process", errorOf(d.Process(d.ctx, "", "p0")), schemas.CodeNotFound)
	d.wantCode("an invalid thread", errorOf(d.Processes(d.ctx, client.ProcessQuery{Thread: "a b"})), schemas.CodeInvalidArgument)
}
