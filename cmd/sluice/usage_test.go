package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/cmd/internal/node"
	"github.com/sluice-dev/sluice/schemas"
)

// every calls f with each command and the words that call it.
func every(c *cobra.Command, path []string, f func(c *cobra.Command, path []string)) {
	f(c, path)
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "help" {
			every(sub, append(path[:len(path):len(path)], sub.Name()), f)
		}
	}
}

func TestEveryHelpHasAnExample(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	m := &Main{Getenv: c.getenv}
	every(m.rootCommand(), nil, func(cmd *cobra.Command, path []string) {
		got := c.run(append(path, "--help")...)
		if got.code != 0 || got.stderr != "" {
			t.Errorf("%v --help: %+v", path, got)
		}
		if !strings.Contains(got.stdout, "Examples:\n  "+strings.TrimSpace(strings.SplitN(cmd.Example, "\n", 2)[0])) || cmd.Example == "" {
			t.Errorf("%v --help has no example", path)
		}
		for line := range strings.Lines(cmd.Example) {
			if !strings.Contains(line, "sluice ") {
				t.Errorf("an example of %v that is none: %q", path, line)
			}
		}
		got = c.run(append(path, "--no-such-flag")...)
		got.wantError(t, schemas.CodeInvalidArgument, "--no-such-flag", "--help")
	})
	if got := c.run(); got.code != 0 || !strings.Contains(got.stdout, "Available Commands:") {
		t.Errorf("%+v", got)
	}
	if got := c.run("--version"); got.code != 0 || !strings.Contains(got.stdout, "sluice version") {
		t.Errorf("%+v", got)
	}
}

func TestAnUnknownCommandIsAClearError(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("exek").wantError(t, schemas.CodeInvalidArgument, `"exek"`, "sluice exec", "--help")
	c.run("process", "lst").wantError(t, schemas.CodeInvalidArgument, `"lst"`, "sluice process list")
	c.run("events", "t1").wantError(t, schemas.CodeInvalidArgument, `"t1"`)
	c.run("logs").wantError(t, schemas.CodeInvalidArgument, "process list")
	c.run("logs", "a", "b").wantError(t, schemas.CodeInvalidArgument, "one PROCESS")
	c.run("up", "--provider", "moon").wantError(t, schemas.CodeInvalidArgument, "moon")
	c.run("up", "--provider", "local", "--durability", "some", "--listen", "127.0.0.1:0").wantError(t, schemas.CodeInvalidArgument, "some")
	c.run("up", "--provider", "local", "--log-level", "loud").wantError(t, schemas.CodeInvalidArgument, "loud")
	c.run("worker", "--provider", "local").wantError(t, schemas.CodeInvalidArgument, "--nats")
	c.run("--nats", "nats://127.0.0.1:1", "events").wantError(t, schemas.CodeUnavailable, "127.0.0.1:1", "sluice up")
	c.run("--tenant", "a b", "events").wantError(t, schemas.CodeInvalidArgument, "tenant")
	c.run("--cell", "a.b", "events").wantError(t, schemas.CodeInvalidArgument, "cell")
}

func TestAMachineThatIsolatesNothingSaysSo(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	if _, err := node.Choose(t.Context(), node.Auto); err == nil {
		// This machine isolates: then a command that names no provider must not be refused.
		if got := c.run("exec", "--", "true"); got.code != 0 {
			t.Errorf("%+v", got)
		}
		return
	}
	c.run("up").wantError(t, schemas.CodeUnavailable, "--provider local", "doctor")
	c.run("exec", "--", "true").wantError(t, schemas.CodeUnavailable, "--provider local")
}
