package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 11: the names of other tools lead to the command that does the same, not to one that is spelled alike.
func TestNamesOfOtherToolsAreSuggested(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	for typed, want := range map[string]string{
		"run": "sluice exec", "ls": "sluice ps", "copy": "sluice cp", "run -it x": "sluice exec", "health": "sluice status", "kill": "sluice process", "rm": "sluice session",
		"process ls": "sluice process list", "session rm": "sluice session delete", "template cat": "sluice template show", "verson": "sluice version",
	} {
		c.run(strings.Fields(typed)...).wantError(t, schemas.CodeInvalidArgument, "did you mean `"+want+"`?")
	}
}

// Ten minutes 11: every empty list is a notice on standard error, and JSON without values.
func TestEmptyListsAreAlike(t *testing.T) {
	c := newUp(t)
	for _, list := range []string{
		"ps", "process list", "process list --all", "session list", "sandbox list", "sandbox list --all", "sync versions file://" + t.TempDir() + "/none",
		"events", "messages --thread t1", "workspace list",
	} {
		args := strings.Fields(list)
		got := c.run(args...)
		got.check(t).exits(0).prints("").that(strings.HasPrefix(got.stderr, "sluice: ") && strings.Count(got.stderr, "\n") == 1, "%s: want one line of notice", list)
		got = c.run(append(args, "--json")...)
		got.check(t).exits(0).reportsNothing().omits("null")
	}
}

// Ten minutes 11: the session's own state stands beside that of its sandbox.
func TestSessionListShowsBothStates(t *testing.T) {
	c := newUp(t)
	c.run("session", "create", "--thread", "fresh").check(t).exits(0)
	c.good()
	c.run("session", "list").check(t).exits(0).printsMatch(`(?m)^THREAD +SESSION +STATE +SANDBOX `).
		printsMatch(`(?m)^fresh +\S+ +new +- `).printsMatch(`(?m)^t1 +\S+ +active +running `)
	c.run("session", "get", "-t", "t1").check(t).exits(0).printsMatch(`(?m)^state +active$`).printsMatch(`(?m)^sandbox +s\w+, running$`)
}

// Ten minutes 11: a rejection has its reason, and an event its date.
func TestEventsShowReasonAndDate(t *testing.T) {
	c := newUp(t)
	c.exec("--key", "k", "--", "no-such-program").check(t).exits(127)
	c.run("events").check(t).exits(0).printsMatch(`(?m)^\d+ +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  process\.accepted `)
	rejected := &schemas.Event{Type: schemas.TypeProcessRejected, Process: "p1"}
	testkit.Must(t, rejected.SetData(&schemas.Result{Reason: schemas.ReasonRejected, Error: &schemas.Error{Code: schemas.CodePolicyDenied, Message: "it is rm"}}))
	testkit.Equal(t, "detail", eventDetail(rejected), "p1  rejected: policy_denied: it is rm")
}

// Ten minutes 11: a file that does not exist is not_found.
func TestMissingFilesAreNotFound(t *testing.T) {
	t.Parallel()
	c, url := newCLI(t), newCLI(t).up().url
	missing := filepath.Join(t.TempDir(), "missing")
	for _, args := range [][]string{
		{"template", "check", missing}, {"--templates", missing, "template", "list"}, {"sync", "push", missing, "file://" + t.TempDir()},
		{"--nats", url, "--creds", missing, "ps"},
	} {
		c.run(args...).wantError(t, schemas.CodeNotFound, missing)
	}
}

// Ten minutes 11: what is no terminal, or a dumb one, gets no colours.
func TestColoursNeedATerminal(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		testkit.Missing(t, "a pseudo-terminal", "mount -t devpts devpts /dev/pts")
	}
	defer terminal.Close()
	for _, k := range []struct {
		term, noColor string
		is, colours   bool
	}{{"xterm", "", true, true}, {"dumb", "", true, false}, {"xterm", "1", true, false}} {
		c.env["TERM"], c.env["NO_COLOR"] = k.term, k.noColor
		m := &Main{Getenv: c.getenv}
		is, colours := m.terminal(terminal)
		testkit.Equal(t, "terminal with TERM="+k.term, is, k.is)
		testkit.Equal(t, "colours with TERM="+k.term+" NO_COLOR="+k.noColor, colours, k.colours)
	}
	var out bytes.Buffer
	m := &Main{Stderr: &out, Getenv: c.getenv}
	log, err := (&workerFlags{globals: &globals{Main: m}, logFormat: "text", logLevel: "info"}).logger()
	testkit.Must(t, err)
	log.Info().Msg("ready")
	testkit.Equal(t, "escapes in "+out.String(), strings.Contains(out.String(), "\x1b"), false)
}

// Ten minutes 11: sync counts in English and names flags as they are typed.
func TestSyncMessagesAreLikeTheRest(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	dir, copied, store := t.TempDir(), t.TempDir(), "file://"+t.TempDir()
	write := func(dir, text string) { testkit.Must(t, os.WriteFile(filepath.Join(dir, "a"), []byte(text), 0o600)) }
	write(dir, "one")
	c.run("sync", "push", dir, store).check(t).exits(0).printsPart(": 1 file, 1 uploaded")
	c.run("sync", "push", dir, store).check(t).exits(0).printsPart("in sync: 1 file, ")
	c.run("sync", "pull", copied, store).check(t).exits(0)
	write(dir, "two")
	write(copied, "three")
	c.run("sync", "push", dir, store).check(t).exits(0)
	c.run("sync", "push", copied, store).wantError(t, schemas.CodeConflict, "1 path changed on both sides", "--on-conflict local, remote or both")
	c.run("sync", "push", copied, store, "--on-conflict", "x").wantError(t, schemas.CodeInvalidArgument, "unknown --on-conflict")
	c.run("sync", "push", copied, store, "--layout", "plain").wantError(t, schemas.CodeInvalidArgument, "omit --layout")
	c.run("sync", "restore", copied, store, "--at", "x").wantError(t, schemas.CodeNotFound, "`sluice sync versions`")
}
