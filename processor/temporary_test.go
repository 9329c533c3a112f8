package processor_test

import (
	"testing"

	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func temporary(cfg *processor.Config) { cfg.Temporary = true }

// Ten minutes 1: a temporary worker ends what it started, and leaves what it adopted to the next worker.
func TestTemporaryWorkerLeavesWhatItAdopted(t *testing.T) {
	c, dead := newRig(t, hasty)
	found := command("found", sh("echo one; until [ -e go ]; do sleep 0.02; done; echo two; exit 7"))
	c.start(found, "one")
	dead.crash()

	w := dead.again(temporary)
	w.awaitLine("process_resumed")
	beside := command("beside", sh("echo on; sleep 300")) // in the same sandbox
	apart := command("apart", sh("echo on; sleep 300"))
	apart.Thread = "t2"
	for _, own := range []*schemas.Command{beside, apart} {
		c.send(own)
		c.awaitType(processOf(own), schemas.TypeProcessStarted)
	}
	w.stop()
	c.must(w.err)
	for _, own := range []*schemas.Command{beside, apart} {
		wantFields(t, c.result(c.awaitType(processOf(own), schemas.TypeProcessExited)), schemas.Result{Reason: schemas.ReasonKilled})
	}
	c.wantRecords(processOf(found), schemas.TypeProcessAccepted, schemas.TypeProcessStarted)

	next := dead.again()
	next.awaitLine("process_resumed")
	equal(t, "sandboxes", len(next.log.of("sandbox_reattached")), 1)
	c.file("go")
	wantFields(t, c.result(c.awaitType(processOf(found), schemas.TypeProcessExited)), schemas.Result{ExitCode: 7, Stdout: "one\ntwo\n"})
	c.wantRecords(processOf(found), schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)
}

// Ten minutes 1: what was killed on request ends, with a record.
func TestTemporaryWorkerWaitsForWhatWasKilled(t *testing.T) {
	c, dead := newRig(t, hasty)
	found := command("found", sh("trap '' TERM; echo on; while :; do sleep 0.02; done"))
	c.start(found, "on")
	dead.crash()
	w := dead.again(temporary)
	w.awaitLine("process_resumed")
	c.must(w.control(processOf(found), schemas.Control{Kill: &schemas.KillRequest{GraceMS: 200}}))
	w.stop()
	c.wantRecords(processOf(found), schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)
	dead.again() // it ends the sandbox
}

// Ten minutes 1: a temporary worker reports none lost whose provider it does not have.
func TestTemporaryWorkerWithoutTheProvider(t *testing.T) {
	c, dead := newRig(t, hasty)
	found := command("found", sh("echo one; until [ -e go ]; do sleep 0.02; done; exit 7"))
	c.start(found, "one")
	dead.crash()
	dead.again(temporary, func(cfg *processor.Config) {
		cfg.Providers, cfg.DefaultProvider = map[string]sandbox.Provider{}, ""
	}).stop()
	c.wantRecords(processOf(found), schemas.TypeProcessAccepted, schemas.TypeProcessStarted)
	dead.again().awaitLine("process_resumed")
	c.file("go")
	wantFields(t, c.result(c.awaitType(processOf(found), schemas.TypeProcessExited)), schemas.Result{ExitCode: 7})
}
