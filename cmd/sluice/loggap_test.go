package main

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// wantGapFirst checks that `logs` of a running process reports output that is missing at the beginning, before any other: as text, as
// JSON, and to a follower. The rest is text.
func (c *cli) wantGapFirst(process, text string, end func()) {
	c.t.Helper()
	plain := c.run("logs", process)
	plain.check(c.t).exits(0).reports("bytes 0 to ", " of stdout are missing")
	rest, ok := strings.CutSuffix(plain.stdout, text)
	testkit.Equal(c.t, "the output ends with "+text, ok, true)
	lines := strings.SplitN(c.run("logs", "--json", process).stdout, "\n", 3)
	gap := decode[gapLine](c.t, lines[0]).Gap
	testkit.Equal(c.t, "stream and begin of the gap", []any{gap.Stream, gap.From}, []any{schemas.Stdout, int64(0)})
	testkit.Equal(c.t, "offset of what follows", decode[chunkLine](c.t, lines[1]).Offset, gap.To)

	f := c.spawn("logs", "-f", "--json", process)
	first, err := f.stdout.ReadString('\n')
	testkit.Must(c.t, err)
	testkit.Equal(c.t, "first line of a follower", first, lines[0]+"\n")
	end()
	f.wantExit(0)
	c.run("logs", process).check(c.t).exits(0).prints(rest+text+"last\n").reports("bytes 0 to ", " of stdout are missing")
}

// Promises 11: output that a running process has dropped is missing at the beginning of its log, and the log says so.
func TestLogsOfALoudProcessShowTheGap(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up("--log-bytes", "100000000", "--log-process-bytes", "1000000")
	x := c.spawn(execArgs("-n", "--", "bash", "-c", "yes 0123456789 | head -c 8000000; echo; echo ready; read -r line < "+c.fifo("go")+"; echo last")...)
	x.awaitLine("ready")
	c.wantGapFirst(c.only(), "\nready\n", func() { c.release("go", "on") })
	x.wantExit(0)
}

// Promises 11: the few lines of a process that went with the oldest output of its tenant are missing at the beginning of its log, and
// the log says so while the process runs.
func TestLogsOfAQuietProcessShowTheGap(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up("--log-bytes", "100000000", "--log-tenant-bytes", "4000000")
	// Two of them: the second read could open the one of the first before its writer has closed it, and find its end.
	first, second := c.fifo("first"), c.fifo("second")
	x := c.spawn(execArgs("-n", "--", "bash", "-c", "echo ready; read -r line < "+first+"; echo later; read -r line < "+second+"; echo last")...)
	x.awaitLine("ready")
	quiet := c.only()
	dropped := func() bool { return c.run("logs", quiet).stdout == "" }
	for !dropped() {
		c.exec("--thread", "loud", "--", "bash", "-c", "yes 0123456789 | head -c 4000000")
	}
	c.release("first", "on")
	x.awaitLine("later")
	c.wantGapFirst(quiet, "later\n", func() { c.release("second", "on") })
	x.wantExit(0)
}
