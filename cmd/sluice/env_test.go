package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 14, 15: a variable with a wrong value starts no worker: part of the value, or a default in its place, may delete what is stored.
func TestWrongVariablesAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		flag  string // that sets the same; empty where the variable also sets something else
		wrong []string
	}{
		"SLUICE_LOG_BYTES":        {"--log-bytes=8GiB", []string{"8GB of output", "-1", "x", "0x10", "8"}},
		"SLUICE_EVENT_AGE":        {"--event-age=72h", []string{"3d", "-1h", "72"}},
		"SLUICE_KEEP_WORKSPACES":  {"--keep-workspaces=168h", []string{"7d", "-1s"}},
		"SESSION_TIMEOUT_MINUTES": {"--idle-timeout=2h", []string{"2h", "-3", "0x10", "1.5", "1000000000000000000"}},
		"POOL_SIZE":               {"--pool=3", []string{"x", "-1", "3x"}},
		"MAX_WORKSPACE_SIZE_MB":   {"", []string{"1.9", "500MB", "10000000000000"}},
		"MAX_TOTAL_FILES":         {"", []string{"-1", "1e3"}},
		"MAX_FILE_SIZE_MB":        {"", []string{"x"}},
	} {
		for _, wrong := range tt.wrong {
			c := newCLI(t)
			c.env[name] = wrong
			what := name
			if wrong == "8" {
				what = "--log-bytes" // a size, but too small
			}
			c.run("up", "--provider", "local", "--listen", "127.0.0.1:0").wantError(t, schemas.CodeInvalidArgument, what)
			if tt.flag == "" {
				continue
			}
			up, _, err := (&Main{Getenv: func(n string) string { return c.env[n] }}).rootCommand().Find([]string{"up"})
			testkit.Must(t, err)
			testkit.Must(t, up.ParseFlags([]string{tt.flag}))
			testkit.Must(t, checkEnv(up))
		}
	}
	c := newCLI(t)
	c.env["SANDBOX_SYNC_STALE_THRESHOLD"] = "1h"
	c.run("sync", "status", t.TempDir(), "file://"+t.TempDir()).wantError(t, schemas.CodeInvalidArgument, "SANDBOX_SYNC_STALE_THRESHOLD")
}

// A variable may be set to nothing, and sizes have units.
func TestVariablesSetFlags(t *testing.T) {
	env := map[string]string{
		"SLUICE_LOG_BYTES": "9GiB", "SLUICE_EVENT_BYTES": "3000000", "SLUICE_LOG_AGE": "2h", "SLUICE_KEEP_WORKSPACES": "0", "SESSION_TIMEOUT_MINUTES": "45",
		"POOL_SIZE": "", "MAX_WORKSPACE_SIZE_MB": "500", "MAX_TOTAL_FILES": "7",
	}
	up, _, err := (&Main{Getenv: func(n string) string { return env[n] }}).rootCommand().Find([]string{"up"})
	testkit.Must(t, err)
	testkit.Must(t, checkEnv(up))
	for flag, want := range map[string]string{
		"log-bytes": "9GiB", "event-bytes": "3MB", "log-age": "2h0m0s", "keep-workspaces": "0s", "idle-timeout": "45m0s",
		"pool": "10", "workspace-bytes": "500MB", "workspace-files": "7", "file-bytes": "500MB",
	} {
		testkit.Equal(t, "--"+flag, up.Flags().Lookup(flag).Value.String(), want)
	}
}

// Ten minutes 11: the error of a flag says what the flag takes, in the words of the rest.
func TestWrongValuesOfFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"--pool=x": `--pool is "x": not a whole number`, "--pids=1.5": `--pids is "1.5": not a whole number`, "--cpus=two": `--cpus is "two": not a number`,
		"--event-age=3d": `--event-age is "3d": not a duration: write`, "--private-hooks=maybe": "write true or false", "--memory=much": "not a size",
		"--pids=99999999999999999999": "too large",
	} {
		newCLI(t).run("up", flag).wantError(t, schemas.CodeInvalidArgument, want, "sluice up --help")
	}
}

// Values that can be read and mean nothing are refused, too.
func TestUselessValuesOfFlags(t *testing.T) {
	up := []string{"up", "--provider", "local", "--listen", "127.0.0.1:0"}
	create := []string{"tenant", "create", "acme", "--dir", t.TempDir()}
	for _, tt := range []struct {
		command []string
		flags   []string
	}{
		{up, []string{"--log-format=xyz", "--log-format=", "--log-level=", "--log-level=5", "--log-level=trace", "--idle-timeout=-1s", "--grace=-1s", "--pids=4194304",
			"--max-processes=9223372036854775807", "--max-processes=0", "--max-sessions=1000001", "--max-sandboxes=1000001"}},
		{[]string{"gateway", "--http", "127.0.0.1:0", "--nats", "nats://127.0.0.1:1"}, []string{"--grace=-1s", "--log-format=xyz"}},
		{create, []string{"--max-storage=0", "--max-connections=0"}},
		{[]string{"process", "wait", "p1"}, []string{"--timeout=-1s"}},
		{[]string{"process", "kill", "p1"}, []string{"--grace=-1s"}},
	} {
		for _, flag := range tt.flags {
			name, _, _ := strings.Cut(flag, "=")
			newCLI(t).run(append(slices.Clone(tt.command), flag)...).wantError(t, schemas.CodeInvalidArgument, strings.TrimPrefix(name, "--"))
		}
	}
	for _, flag := range []string{"--health-port=0", "--health-socket="} {
		newCLI(t).run("service", "start", "--provider", "local", flag, "t1", "web", "--", "true").wantError(t, schemas.CodeInvalidArgument, strings.Split(flag, "=")[0])
	}
}

// An empty value, as that of a variable that is not set, does not stand for a default.
func TestEmptyGlobalFlagsAreRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, flag := range []string{"--data", "--allow", "--templates", "--creds", "--tls-ca", "--nats"} {
		newCLI(t).run("up", "--provider", "local", "--listen", "127.0.0.1:0", flag, "").wantError(t, schemas.CodeInvalidArgument, flag+" is empty")
	}
	made, err := filepath.Glob("*")
	if testkit.Must(t, err); len(made) > 0 {
		t.Errorf("the current folder has %v, want nothing", made)
	}
}
