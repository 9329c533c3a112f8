package client_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// sink makes a request that reads the output of a process.
func sink(from, script string) client.Request {
	req := sh(script)
	req.StdinFrom = from
	return req
}

func TestOutputIsTheInputOfAnotherProcess(t *testing.T) {
	d := newCaller(t, "w1")
	req := sh("while read -r line; do echo $line; done; echo error >&2; seq 400000")
	req.StdinOpen = true
	source := d.start(req)
	// One that begins before there is output, and one that begins after the end.
	live := d.start(sink(source.ID(), "sha256sum"))
	d.must(source.WriteStdin(d.ctx, []byte("first\n")))
	echo := d.start(sink(source.ID(), "head -n 1"))
	r, err := echo.Wait(d.ctx)
	d.must(err)
	d.equal("first line before the source ends", r.Stdout, "first\n")
	d.must(source.CloseStdin(d.ctx))
	r, err = source.Wait(d.ctx)
	d.must(err)
	d.equal("exit code of a source whose reader left early", r.ExitCode, 0)

	want := sha256.New()
	_, _ = io.WriteString(want, "first\n")
	seq, err := exec.Command("seq", "400000").Output()
	d.must(err)
	_, _ = want.Write(seq)
	sum := fmt.Sprintf("%x  -\n", want.Sum(nil))
	r, err = live.Wait(d.ctx)
	d.must(err)
	d.equal("checksum of the live reader", r.Stdout, sum)
	d.equal("checksum of a late reader", d.exec(sink(source.ID(), "sha256sum")).Stdout, sum)
}

func TestInputFromAProcessIsRefused(t *testing.T) {
	d := newCaller(t, "w1")
	refused := func(what string, req client.Request, code schemas.Code) {
		t.Helper()
		p, err := d.StartProcess(d.ctx, req)
		if err == nil {
			_, err = p.Wait(d.ctx)
		}
		d.wantCode(what, err, code)
	}
	refused("an unknown process", sink("p0", "cat"), schemas.CodeNotFound)
	other := sh("true")
	other.Thread = "other"
	refused("a process of another thread", sink(d.exec(other).Process, "cat"), schemas.CodeNotFound)
	again := sh("true")
	again.Retry = schemas.RetrySafe
	refused("a process that may run again", sink(d.exec(again).Process, "cat"), schemas.CodeInvalidArgument)
	own := sink(d.ProcessID("t", "own"), "cat")
	own.Key = "own"
	refused("its own output", own, schemas.CodeInvalidArgument)
	both := sink("p0", "cat")
	both.StdinOpen = true
	refused("two inputs", both, schemas.CodeInvalidArgument)
	refused("no process id", sink("a.b", "cat"), schemas.CodeInvalidArgument)
}

// A process never takes a part of its input for all.
func TestMissingInputKillsTheProcess(t *testing.T) {
	cell, err := start()
	testkit.Must(t, err)
	t.Cleanup(cell.close)
	cell.topology.LogProcessBytes = 1 << 20
	testkit.Must(t, cell.worker("w1"))
	d := callerOf(t, cell)
	source := d.exec(sh("seq 400000"))
	r, err := d.start(sink(source.Process, "cat; echo all; sleep 300")).Wait(d.ctx)
	d.must(err)
	d.equal("reason", r.Reason, schemas.ReasonKilled)
	d.wantCode("missing input", r.Error, schemas.CodeUnavailable)
	if r.Success || strings.Contains(r.Stdout, "all") || !strings.Contains(r.Error.Error(), source.Process) {
		t.Errorf("the result is %+v", r)
	}
}
