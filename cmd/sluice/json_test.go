package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// withoutJSON are the commands without --json, and why.
func withoutJSON() map[string][]string {
	return map[string][]string{
		"it prints nothing":                  {"cp", "file mkdir", "file mv", "file put", "file rm", "process cancel", "process stdin", "token revoke", "workspace rm"},
		"it prints what another program has": {"attach", "file cat", "shell", "sync cat"},
		"its output is JSON already":         {"file watch", "mcp", "process clean", "process kill"},
		"it serves":                          {"gateway", "port-forward", "up", "worker"},
		"it writes files of other programs":  {"completion", "man"},
	}
}

// everyJSON starts `sluice up` and calls f with each command line that has --json, without that flag, in an order that works.
func everyJSON(t *testing.T, f func(c *cli, args []string)) {
	c := newCLI(t)
	dir, work, remote, accounts := t.TempDir(), t.TempDir(), "file://"+t.TempDir(), t.TempDir()
	templates, file := c.templates("name: stored\nprovider: local\nsync: {location: 'file://" + dir + "/{thread}'}\n")
	c.env["SLUICE_TEMPLATES"] = templates
	c.up()
	testkit.Must(t, os.WriteFile(filepath.Join(work, "file"), []byte("\x1b[31m"), 0o600))
	process := schemas.ProcessID(schemas.DefaultTenant, "t1", "done")
	for _, line := range []string{
		"session create t1 --template stored --user ann --tag a=b", "session get t1", "session list", "session renew t1", "session push t1", "session versions t1", "session diff t1",
		"exec --thread t1 --key done {} -- sh -c echo;echo;>file", "process start --thread t1 --id long {} -- sleep 300", "ps", "process list --all",
		"process list --stats", "process get " + process, "process wait " + process, "logs " + process, "process logs " + process, "process follow " + process,
		"top --count 1 --interval 100ms t1", "message --thread chat --template echo-agent {} hello", "messages chat", "events", "status", "limits", "sandbox list", "workspace list",
		"file ls t1:", "file stat t1:file", "file search t1: --name *", "service start --health-timeout 1s {} t1 web -- sleep 300", "service list", "service get t1 web", "service logs t1 web",
		"service stop t1 web", "template list", "template show stored", "template check " + file, "token create --name ci", "token list", "reload", "version", "doctor",
		"sync push " + work + " " + remote, "sync status " + work + " " + remote, "sync versions " + remote, "sync ls " + remote, "sync pull " + work + " " + remote + " --dry-run",
		"sync check " + work + " " + remote, "sync restore " + work + " " + remote + " --at 2100-01-01T00:00:00Z", "sync diff " + remote + " 2100-01-01T00:00:00Z", "sync keygen", "keygen",
		"tenant create acme --dir " + accounts, "tenant list --dir " + accounts, "tenant rotate acme --dir " + accounts, "tenant delete acme --dir " + accounts,
		"session restore t1 --at 2100-01-01T00:00:00Z", "session stop t1 --grace 0s", "session delete chat",
	} {
		f(c, strings.Fields(line))
	}
}

// with puts a flag where {} stands, or at the end.
func with(args []string, flags ...string) []string {
	if i := slices.Index(args, "{}"); i >= 0 {
		return slices.Concat(args[:i], flags, args[i+1:])
	}
	return slices.Concat(args, flags)
}

// Each command that prints has --json, and what it prints then is JSON, without notices.
func TestEveryCommandPrintsJSON(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	everyJSON(t, func(c *cli, args []string) {
		seen[args[0]], seen[strings.Join(args[:min(2, len(args))], " ")] = true, true
		got := c.run(with(args, "--json")...)
		if got.check(t); got.code != 0 && args[0] != "doctor" {
			t.Errorf("sluice %q --json: exit code %d: %s", args, got.code, got.stderr)
		}
		values, decoder := 0, json.NewDecoder(strings.NewReader(got.stdout))
		for {
			var v any
			err := decoder.Decode(&v)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || v == nil {
				t.Errorf("sluice %q --json prints %q: %v", args, got.stdout, err)
				break
			}
			values++
		}
		if values == 0 {
			t.Errorf("sluice %q --json prints no value: %q", args, got.stderr)
		}
	})
	every((&Main{Getenv: func(string) string { return "" }}).rootCommand(), nil, func(cmd *cobra.Command, path []string) {
		if cmd.HasSubCommands() {
			return
		}
		name := strings.Join(path, " ")
		var why string
		for reason, names := range withoutJSON() {
			if slices.Contains(names, name) {
				why = reason
			}
		}
		has := cmd.Flags().Lookup("json") != nil || cmd.InheritedFlags().Lookup("json") != nil
		switch {
		case why == "" && !has:
			t.Errorf("sluice %s has no --json", name)
		case why == "" && !seen[name]:
			t.Errorf("sluice %s --json was not tried", name)
		case why != "" && has && name != "sync cat":
			t.Errorf("sluice %s has --json, although %s", name, why)
		}
	})
}

// What is no terminal gets no escape sequences.
func TestNoEscapesOffATerminal(t *testing.T) {
	t.Parallel()
	everyJSON(t, func(c *cli, args []string) {
		got := c.run(with(args)...)
		if strings.Contains(got.stdout+got.stderr, "\x1b") {
			t.Errorf("sluice %q prints escape sequences: %q", args, got.stdout+got.stderr)
		}
	})
}
