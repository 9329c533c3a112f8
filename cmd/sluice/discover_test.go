package main

import (
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 15: a program of the SDK finds a running `sluice exec` and `sluice up` by the data folder alone, and runs commands there. A
// command that only reads has no worker for it.
func TestProgramsFindTheServer(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	getenv := func(name string) string {
		if name == "SLUICE_DATA" {
			return c.data
		}
		return c.getenv(name)
	}
	run := func() {
		t.Helper()
		p, err := client.Discover(getenv, client.WithName("a program"))
		testkit.Must(t, err)
		defer p.Close()
		r, err := p.Exec(t.Context(), client.Request{Thread: "program", Provider: schemas.ProviderLocal, Command: "echo", Args: []string{"on"}})
		testkit.Must(t, err)
		testkit.Equal(t, "output of a program's command", r.Stdout, "on\n")
	}
	host := c.spawn(execArgs("-n", "--", "bash", "-c", "echo host; read -r line < "+c.fifo("go"))...)
	host.wantLine("host")
	run()
	c.release("go", "on")
	host.wantExit(0)

	reader := c.spawn("events", "-f")
	reader.line()
	_, err := client.Discover(getenv)
	testkit.WantCode(t, err, schemas.CodeUnavailable)
	c.up()
	run()
}
