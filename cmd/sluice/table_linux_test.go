package main

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/rivo/uniseg"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// runOn runs sluice in this process, with its standard output on a terminal of this many columns.
func (c *cli) runOn(cols uint16, args ...string) outcome {
	c.t.Helper()
	screen, terminal := openTerminal(c.t)
	testkit.Must(c.t, unix.IoctlSetWinsize(int(screen.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: cols}))
	shown := make(chan string)
	go func() {
		text, _ := io.ReadAll(screen) // it fails once the terminal is closed
		shown <- strings.ReplaceAll(string(text), "\r\n", "\n")
	}()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Timeout)
	defer cancel()
	var stderr buffer
	null, err := os.Open(os.DevNull)
	testkit.Must(c.t, err)
	defer null.Close()
	code := (&Main{Args: c.args(args), Stdin: null, Stdout: terminal, Stderr: &stderr, Getenv: c.getenv}).Run(ctx)
	testkit.Must(c.t, terminal.Close())
	return outcome{code: code, stdout: <-shown, stderr: stderr.String()}
}

// Every list fits a terminal, and has everything off one, and with --wide.
func TestListsFitTheTerminal(t *testing.T) {
	c := newUp(t)
	const command = "sleep 300; : 一個很長的命令 with a long end \x1b[31m that no narrow terminal shows"
	c.run("session", "create", "t1", "--provider", "local", "--user", "ann", "--tag", "team=blue").check(t).exits(0)
	started := c.run("process", "start", "--thread", "t1", "--id", "long", "--", "sh", "-c", command)
	process := strings.TrimSpace(started.check(t).exits(0).got.stdout)
	c.run("service", "start", "--provider", "local", "t1", "web", "--", "sh", "-c", command).check(t).exits(0)
	c.run("message", "--thread", "chat", "--template", "echo-agent", "--user", "ann", strings.Repeat("a prompt of many words ", 20)).check(t).exits(0)
	c.run("token", "create", "--name", strings.Repeat("long name ", 8)).check(t).exits(0)
	work, store := t.TempDir(), "file://"+t.TempDir()
	testkit.Must(t, os.WriteFile(work+"/"+strings.Repeat("檔案", 20), nil, 0o600))
	c.run("sync", "push", work, store).check(t).exits(0)
	for _, list := range []string{
		"ps", "process list", "process list --all", "process list --stats", "process get --thread t1 long", "session list", "session get t1", "sandbox list", "service list",
		"workspace list", "token list", "template list", "events", "messages chat", "status", "limits", "file ls chat:", "top --count 1 --interval 100ms t1",
		"sync ls " + store, "sync versions " + store,
	} {
		args := strings.Fields(list)
		for _, cols := range []int{80, 40} {
			got := c.runOn(uint16(cols), args...)
			got.check(t).exits(0).omits("\x1b[31m")
			for line := range strings.Lines(strings.ReplaceAll(got.stdout, "\x1b[H\x1b[2J", "")) {
				if n := uniseg.StringWidth(strings.TrimSuffix(line, "\n")); n > cols {
					t.Errorf("sluice %s: a line has %d columns on a terminal of %d: %q", list, n, cols, line)
				}
			}
		}
	}
	// The id is whole on the narrowest terminal, and what is left out is named.
	c.runOn(40, "process", "list", "--all").check(t).exits(0).printsPart(process).omits("STARTED").reports("STARTED", "--wide")
	const end = "that no narrow terminal shows"
	c.runOn(80, "ps").check(t).printsPart(ellipsis).omits(end)
	c.runOn(80, "ps", "--wide").check(t).printsPart(end)
	c.run("ps").check(t).printsPart(end).reportsNothing()
}

// NO_COLOR and TERM=dumb keep escape sequences from a terminal.
func TestNoEscapesWithoutColours(t *testing.T) {
	t.Parallel()
	n := 0
	everyJSON(t, func(c *cli, args []string) {
		c.env["NO_COLOR"], c.env["TERM"] = "1", "xterm"
		if n++; n%2 == 0 && args[0] != "top" {
			c.env["NO_COLOR"], c.env["TERM"] = "", "dumb"
		}
		if got := c.runOn(80, with(args)...); strings.Contains(got.stdout, "\x1b") {
			t.Errorf("sluice %q prints escape sequences with NO_COLOR=%s TERM=%s: %q", args, c.env["NO_COLOR"], c.env["TERM"], got.stdout)
		}
	})
}
