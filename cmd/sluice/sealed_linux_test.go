package main

import (
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Hardening 7: what waits is sealed with the key of the workers, and a worker without it does not start.
func TestSealedCommandsWaitForAWorkerWithTheKey(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "seal.keys")
	newCLI(t).run("keygen", keys).check(t).exits(0).prints("")
	newCLI(t).run("keygen", keys).wantError(t, schemas.CodeInvalidArgument, "exists")
	newCLI(t).run("keygen").check(t).exits(0).printsMatch(`^sluice-seal-1:[\w-]{43}\n$`)
	f := newFleet(t, map[string]string{"SLUICE_SEAL_KEYS": keys}, "a")
	a := f.workers["a"]
	a.kill()
	p, err := f.client.StartProcess(f.ctx, client.Request{Thread: "t1", Command: "sh", Args: []string{"-c", "echo $TOKEN"}, Env: map[string]string{"TOKEN": "a-secret"}})
	f.must(err)
	defer p.Close()
	testkit.Equal(t, "waits", p.Queued(), true)
	without := newCLI(t)
	without.env["SLUICE_NATS_TOKEN"] = fleetToken
	without.run("worker", "--nats", f.server.URL(), "--provider", "local", "--partitions", "1").wantError(t, schemas.CodeInvalidArgument, "sealed", "--seal-keys")
	without.run("worker", "--nats", f.server.URL(), "--provider", "local", "--seal-keys", f.dir).wantError(t, schemas.CodeInvalidArgument, "key")
	f.start("a")
	r, err := p.Wait(f.ctx)
	f.must(err)
	testkit.Equal(t, "standard output", r.Stdout, "a-secret\n")
}
