package client_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// listed returns the ids of the processes of a query, in the order of the list.
func (d *caller) listed(q client.ProcessQuery) []string {
	d.t.Helper()
	list, err := d.Processes(d.ctx, q)
	d.must(err)
	out := []string{}
	for _, p := range list {
		out = append(out, p.Process)
	}
	return out
}

func TestEndedProcessesAreCleanedUp(t *testing.T) {
	d := newCaller(t, "w1", "w2")
	runs := d.start(sh("echo on; exec sleep 300"))
	d.waitForOutput(runs.ID(), "on")
	end := func(thread string, n int) (ids []string) {
		for range n {
			req := sh("exit 3")
			req.Thread = thread
			ids = append(ids, d.exec(req).Process)
		}
		return ids
	}
	clean := func(thread string, want int) {
		t.Helper()
		n, err := d.CleanProcesses(d.ctx, thread)
		d.must(err)
		d.equal("processes cleaned up of thread "+thread, n, want)
	}
	cleaned, other := end("t", 4), end("u", 2)
	all := client.ProcessQuery{All: true}
	clean("t", 4)
	clean("t", 0)
	slices.Reverse(other)
	d.equal("all after the first", d.listed(all), append([]string{runs.ID()}, other...))
	d.equal("of the thread", d.listed(client.ProcessQuery{All: true, Thread: "t"}), []string{runs.ID()})

	// What ends later is listed, on every page.
	later := end("t", 3)
	slices.Reverse(later)
	want := append(slices.Clone(later), other...)
	d.equal("all", d.listed(all), append([]string{runs.ID()}, want...))
	list, err := d.Processes(d.ctx, client.ProcessQuery{All: true, Limit: 1})
	d.must(err)
	page := client.ProcessQuery{All: true, Limit: 2, Before: list[1].Seq}
	d.equal("the second page", d.listed(page), want[1:3])
	clean("t", 3)
	d.equal("the second page when its thread is cleaned up", d.listed(page), other)

	// Records stay: the process is found by its id, and its key still has its result.
	info, err := d.process(cleaned[0]).Info(d.ctx)
	d.must(err)
	d.equal("status of a process that is cleaned up", info.Status, schemas.StatusFailed)
	d.must(runs.Kill(d.ctx, 0))
	d.waitForEnd(runs.ID())
	clean("t", 1)
	clean("u", 2)
	d.equal("processes in the end", d.listed(all), []string{})
	_, err = d.CleanProcesses(d.ctx, "a b")
	d.wantCode("an invalid thread", err, schemas.CodeInvalidArgument)
}

// Output is deleted once its process has ended. Its readers find a gap, and its record stays.
func TestOutputIsDeleted(t *testing.T) {
	d := newCaller(t, "w1")
	runs := d.start(sh("echo on; exec sleep 300"))
	d.waitForOutput(runs.ID(), "on")
	testkit.WantCode(t, runs.DeleteOutput(d.ctx), schemas.CodeConflict)
	ended := d.start(sh("echo printed; echo too >&2; exit 3"))
	_, err := ended.Wait(d.ctx)
	d.must(err)
	read := func() (text string, gaps int64) {
		d.must(d.Logs(d.ctx, client.LogQuery{Process: ended.ID(), Gap: func(g schemas.LogGap) error {
			gaps += g.To - g.From
			return nil
		}}, func(k schemas.Chunk) error {
			text += string(k.Data)
			return nil
		}))
		return text, gaps
	}
	text, gaps := read()
	d.equal("bytes of output", len(text), len("printed\ntoo\n"))
	d.equal("bytes that are missing", gaps, int64(0))
	d.must(ended.DeleteOutput(d.ctx))
	d.must(ended.DeleteOutput(d.ctx)) // again, with nothing to delete
	text, gaps = read()
	d.equal("output afterwards", text, "")
	d.equal("bytes that are missing afterwards", gaps, int64(len("printed\ntoo\n")))
	info, err := ended.Info(d.ctx)
	d.must(err)
	d.equal("status", info.Status, schemas.StatusFailed)
	on := ""
	d.must(d.Logs(d.ctx, client.LogQuery{Process: runs.ID()}, func(k schemas.Chunk) error {
		on += string(k.Data)
		return nil
	}))
	d.equal("output of another process", on, "on\n")
}

func TestProcessesCleanThemselvesUp(t *testing.T) {
	d := newCaller(t, "w1")
	req := sh("echo on; exec sleep 300")
	req.Key, req.AutoCleanup = "mine", true
	p := d.start(req)
	d.waitForOutput(p.ID(), "on")
	d.equal("processes while it runs", d.listed(client.ProcessQuery{All: true}), []string{p.ID()})
	d.must(p.Kill(d.ctx, 0))
	r, err := p.Wait(d.ctx)
	d.must(err)
	d.equal("reason", r.Reason, schemas.ReasonKilled)
	d.equal("processes after its end", d.listed(client.ProcessQuery{All: true}), []string{})
	// Its key is taken, and what it printed is there.
	again, err := d.StartProcess(d.ctx, req)
	d.must(err)
	r, err = again.Wait(d.ctx)
	d.must(err)
	d.equal("output of the repetition", fmt.Sprint(r.Stdout, r.ExitCode), "on\n137")
}
