package main

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 15: `exec -d` prints the process id, and the command goes on.
func TestDetachedCommandGoesOn(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.exec("-d", "--", "true").wantError(t, schemas.CodeUnavailable, "in the background", "sluice up", "--nats")
	c.up()
	got := c.exec("-d", "--", "bash", "-c", "read -r line < "+c.fifo("go")+"; echo got $line; cat")
	got.check(t).exits(0)
	id := strings.TrimSuffix(got.stdout, "\n")
	if !schemas.ValidID(id) {
		t.Fatalf("standard output = %q, want a process id", got.stdout)
	}
	got.check(t).reports("sluice logs -f " + id)
	f := c.spawn("logs", "-f", id)
	c.release("go", "on")
	f.wantEnd(0, "got on\n")
	d := decode[detached](t, c.exec("-d", "--json", "--key", "k", "--", "true").stdout)
	testkit.Equal(t, "detached command", d, detached{Process: schemas.ProcessID(schemas.DefaultTenant, "t1", "k"), Thread: "t1"})
}
