package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 15: `logs --tail N` prints the last lines, and then what follows while the process runs.
func TestLogsPrintTheLastLines(t *testing.T) {
	c := newUp(t)
	x := c.spawn(execArgs("-n", "--", "bash", "-c", "for i in $(seq 1000); do echo $i; done; read -r line < "+c.fifo("go")+"; printf 'and '; echo more; printf end")...)
	x.awaitLine("1000")
	id := c.only()
	f := c.spawn("logs", "-f", "--tail", "2", id)
	f.wantLine("999")
	c.release("go", "on")
	x.wantEnd(0, "and more\nend")
	f.wantEnd(0, "1000\nand more\nend")
	for n, want := range map[string]string{"1": "end", "2": "and more\nend", "4": "999\n1000\nand more\nend"} {
		c.run("logs", "--tail", n, id).check(t).exits(0).prints(want).reportsNothing()
	}
	testkit.Equal(t, "newlines of --tail 5000", strings.Count(c.run("logs", "--tail", "5000", id).stdout, "\n"), 1001)
	c.run("logs", "--tail", "0", id).wantError(t, schemas.CodeInvalidArgument, "--tail")
}

// Ten minutes 15: `logs --since` and `--timestamps` know when output was stored.
func TestLogsKnowWhenOutputWasStored(t *testing.T) {
	c := newUp(t)
	began := time.Now()
	x := c.spawn(execArgs("-n", "--", "bash", "-c", "echo early; read -r line < "+c.fifo("go")+"; echo late; printf end")...)
	x.wantLine("early")
	id := c.only()
	k := decode[chunkLine](t, c.run("logs", "--json", id).stdout)
	if k.Time.Before(began.Add(-time.Second)) || k.Time.After(time.Now().Add(time.Second)) {
		t.Errorf("time of the first chunk = %s, want about %s", k.Time, began)
	}
	c.release("go", "on")
	x.wantEnd(0, "late\nend")
	since := k.Time.Add(time.Nanosecond).Format(time.RFC3339Nano)
	c.run("logs", "--since", since, id).check(t).exits(0).prints("late\nend").reportsNothing()
	c.run("logs", "--since", "1h", id).check(t).exits(0).prints("early\nlate\nend")
	c.run("logs", "--since", "yesterday", id).wantError(t, schemas.CodeInvalidArgument, "yesterday")
	const stamp = `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z `
	got := c.run("logs", "--timestamps", id)
	if !regexp.MustCompile("^" + stamp + "early\n" + stamp + "late\n" + stamp + "end$").MatchString(got.stdout) {
		t.Errorf("output with timestamps = %q", got.stdout)
	}
}
