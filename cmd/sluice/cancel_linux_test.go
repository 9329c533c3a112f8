package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 8: Ctrl+C, or another user, cancels what is queued while no worker runs. Nothing of it runs when one starts.
func TestCtrlCCancelsAQueuedCommand(t *testing.T) {
	f := newFleet(t, nil, "w1")
	f.workers["w1"].signal(syscall.SIGTERM)
	f.workers["w1"].wantExit(0)
	c := f.homes["w1"]
	dir := t.TempDir()
	exec := func(name string, flags ...string) *spawned {
		args := append([]string{"exec", "-n", "--nats", f.server.URL(), "--provider", "local", "--thread", "t1", "--key", name}, flags...)
		x := c.spawn(append(args, "--", "touch", filepath.Join(dir, name))...)
		x.awaitStderr("is queued")
		return x
	}
	interrupted, terminated, asJSON, byKey, kept := exec("interrupted"), exec("terminated"), exec("json", "--json"), exec("key"), exec("kept")
	interrupted.signal(syscall.SIGINT)
	interrupted.outcome().check(t).exits(130).prints("").reports("sluice: canceled: ", "does not run")
	terminated.signal(syscall.SIGTERM)
	terminated.outcome().check(t).exits(143).reports("sluice: canceled: ")
	asJSON.signal(syscall.SIGINT)
	got := asJSON.outcome()
	got.check(t).exits(130)
	failure := decode[struct{ Error *schemas.Error }](t, got.stdout)
	testkit.WantCode(t, failure.Error, schemas.CodeCanceled)
	kept.signal(syscall.SIGHUP) // it is for workers
	c.run("process", "cancel", "--nats", f.server.URL(), "--thread", "t1", "--key", "key").check(t).exits(0).prints("").reportsNothing()

	f.start("w1")
	byKey.outcome().wantError(t, schemas.CodeCanceled, "did not run")
	kept.wantExit(0)
	f.echo("t1") // what was queued before it in its thread has ended
	for _, name := range []string{"interrupted", "terminated", "json", "key", "kept"} {
		_, err := os.Stat(filepath.Join(dir, name))
		testkit.Equal(t, name+" ran", fmt.Sprint(err == nil), fmt.Sprint(name == "kept"))
	}
	again := c.run("exec", "-n", "--nats", f.server.URL(), "--provider", "local", "--thread", "t1", "--key", "interrupted", "--", "touch", filepath.Join(dir, "interrupted"))
	again.wantError(t, schemas.CodeCanceled)
}
