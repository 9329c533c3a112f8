package main

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/internal/node"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// every calls f with each command and its path.
func every(c *cobra.Command, path []string, f func(c *cobra.Command, path []string)) {
	f(c, path)
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "help" {
			every(sub, append(path[:len(path):len(path)], sub.Name()), f)
		}
	}
}

func TestHelpOfEveryCommand(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	m := &Main{Getenv: c.getenv}
	every(m.rootCommand(), nil, func(cmd *cobra.Command, path []string) {
		name := "sluice " + strings.Join(path, " ")
		got := c.run(append(path, "--help")...)
		got.check(t).exits(0).reportsNothing().printsPart("Usage:\n", "Examples:\n  "+strings.TrimSpace(strings.SplitN(cmd.Example, "\n", 2)[0]))
		if cmd.Example == "" {
			t.Errorf("%s --help has no example", name)
		}
		for line := range strings.Lines(cmd.Example) {
			if !strings.Contains(line, "sluice ") {
				t.Errorf("%s: example %q does not run sluice", name, line)
			}
			if strings.Contains(line, "local") && strings.Contains(line, "--provider") {
				t.Errorf("%s: example %q runs without isolation", name, line)
			}
		}
		for line := range strings.Lines(got.stdout) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > helpWidth {
				t.Errorf("%s --help: a line has %d columns, want at most %d: %s", name, n, helpWidth, line)
			}
		}
		if global := strings.Contains(got.stdout, "--tenant NAME"); global != (len(path) == 0) {
			t.Errorf("%s --help lists the global flags: %v, want them in `sluice --help` only", name, global)
		}
		c.run(append(path, "--no-such-flag")...).wantError(t, schemas.CodeInvalidArgument, "--no-such-flag", "--help")
	})
	c.run().check(t).exits(0).printsPart("Run:\n", "Observe:\n", "Operate:\n", "Global flags:\n")
	c.run("help", "exec").check(t).exits(0).prints(c.run("exec", "--help").stdout)
	c.run("--version").check(t).exits(0).printsPart("sluice version")
}

// A flag that several commands have has one letter and one value name in all of them.
func TestFlagsAreNamedAlike(t *testing.T) {
	t.Parallel()
	m := &Main{Getenv: func(string) string { return "" }}
	for _, name := range []string{"thread", "json", "from", "follow", "timeout", "grace", "provider", "template", "idle-timeout", "key", "session", "image", "user", "all"} {
		seen := ""
		every(m.rootCommand(), nil, func(cmd *cobra.Command, path []string) {
			f := cmd.Flags().Lookup(name)
			if f == nil {
				return
			}
			_, usage, _ := strings.Cut(f.Usage, "`")
			value, _, _ := strings.Cut(usage, "`")
			short := f.Shorthand
			if tty := cmd.Flags().Lookup("tty"); name == "thread" && short == "" && tty != nil && tty.Shorthand == "t" {
				short = "t" // -t is --tty here, as in docker
			}
			form := "-" + short + ", " + value + " " + f.Value.Type()
			if seen == "" {
				seen = form
			}
			testkit.Equal(t, "--"+name+" of sluice "+strings.Join(path, " "), form, seen)
		})
	}
}

func TestInvalidUsageIsReported(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("exek").wantError(t, schemas.CodeInvalidArgument, `"exek"`, "sluice exec", "--help")
	c.run("process", "lst").wantError(t, schemas.CodeInvalidArgument, `"lst"`, "sluice process list")
	c.run("sync", "psh").wantError(t, schemas.CodeInvalidArgument, `"psh"`, "sluice sync push")
	c.run("sync", "push", "dir").wantError(t, schemas.CodeInvalidArgument, "DIR and URL")
	c.run("events", "t1").wantError(t, schemas.CodeInvalidArgument, `"t1"`)
	c.run("logs").wantError(t, schemas.CodeInvalidArgument, "process list")
	c.run("logs", "a", "b").wantError(t, schemas.CodeInvalidArgument, "one PROCESS")
	c.run("up", "--runtime", "runsc").wantError(t, schemas.CodeInvalidArgument, "runsc", "--provider docker")
	c.run("up", "--provider", "moon").wantError(t, schemas.CodeInvalidArgument, `unknown provider "moon": use jail, docker or local`)
	c.run("up", "--provider", "local", "--durability", "some", "--listen", "127.0.0.1:0").wantError(t, schemas.CodeInvalidArgument, "some")
	c.run("up", "--provider", "local", "--log-level", "loud").wantError(t, schemas.CodeInvalidArgument, "loud")
	c.run("worker", "--provider", "local").wantError(t, schemas.CodeInvalidArgument, "--nats")
	c.run("--nats", "nats://127.0.0.1:1", "events").wantError(t, schemas.CodeUnavailable, "127.0.0.1:1", "sluice up")
	c.run("--tenant", "a b", "events").wantError(t, schemas.CodeInvalidArgument, "tenant")
	c.run("--cell", "a.b", "events").wantError(t, schemas.CodeInvalidArgument, "cell")
}

// What does not exist is named, with the command that shows what does.
func TestErrorsNameTheNextStep(t *testing.T) {
	c := newUp(t)
	missing := filepath.Join(t.TempDir(), "missing")
	c.run("token", "revoke", "none").wantError(t, schemas.CodeNotFound, "none", "sluice token list")
	c.run("limits", "--process", "none").wantError(t, schemas.CodeNotFound, "none", "sluice process list --all")
	c.run("cp", missing, "t1:").wantError(t, schemas.CodeNotFound, missing, "check the path")
	c.run("sync", "ls", "file://"+missing).wantError(t, schemas.CodeNotFound, missing, "sluice sync versions")
	c.run("top", "--count", "1", "--interval", "100ms", "none").check(t).exits(0).reports("none", "sluice ps")
	c.run("session", "delete", "none").wantError(t, schemas.CodeNotFound, "none", "sluice session list")
}

func TestMachineWithoutIsolationIsReported(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	if _, err := node.Choose(t.Context(), schemas.ProviderAuto, testkit.ShortDir(t)); err == nil {
		// This machine isolates: a command that names no provider runs.
		c.run("exec", "--", "true").check(t).exits(0)
		return
	}
	c.run("up").wantError(t, schemas.CodeUnavailable, "--provider local", "doctor")
	c.run("exec", "--", "true").wantError(t, schemas.CodeUnavailable, "--provider local")
}
