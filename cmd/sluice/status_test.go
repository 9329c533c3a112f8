package main

import (
	"os"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestStatusShowsServerStreamsAndWorkers(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("status").wantError(t, schemas.CodeUnavailable, c.data, "sluice up", "--nats")
	if entries, err := os.ReadDir(c.data); err != nil || len(entries) > 0 {
		t.Errorf("status without a server left %v in the data folder (error: %v), want nothing", entries, err)
	}

	s := c.up()
	x := c.spawn(execArgs("-n", "--", "bash", "-c", "echo ready; read -r line < "+c.fifo("go"))...)
	x.wantLine("ready")
	c.exec("--key", "k", "--", "true")
	c.run("status").check(t).exits(0).reportsNothing().printsPart(s.url, "cell ", "1 running", "STREAM", "-EVT", "WORKER", "alive", "local").omits(s.token)
	got := decode[schemas.Status](t, c.run("status", "--json").stdout)
	testkit.Equal(t, "server URL", got.Server.URL, s.url)
	testkit.Equal(t, "cell and tenant", []string{got.Cell, got.Tenant}, []string{schemas.DefaultCell, schemas.DefaultTenant})
	testkit.Equal(t, "sessions, sandboxes and processes", []int{got.Sessions, got.Sandboxes, got.Processes}, []int{1, 1, 1})
	if len(got.Workers) != 1 || !got.Workers[0].Alive || got.Workers[0].Incarnation == "" {
		t.Errorf("workers = %+v, want one that is alive and has an incarnation", got.Workers)
	}
	filled := 0
	for _, stream := range got.Streams {
		if strings.HasSuffix(stream.Name, "-EVT") && stream.Messages > 0 && stream.Bytes > 0 && stream.MaxBytes > 0 {
			filled++
		}
	}
	if filled != 1 {
		t.Errorf("streams = %+v, want EVT with messages, bytes and a limit", got.Streams)
	}

	// By URL, with the token as the user.
	guest := newCLI(t)
	url := "nats://" + s.token + "@" + strings.TrimPrefix(s.url, "nats://")
	guest.run("--nats", url, "status").check(t).exits(0).printsPart(s.url).omits(s.token)
	guest.run("--nats", url, "--cell", "other", "status").wantError(t, schemas.CodeNotFound, "cell other", "worker")
	guest.run("--nats", url, "doctor").check(t).printsPart(s.url).omits(s.token)
	c.release("go", "on")
	x.wantExit(0)
}

func TestStatusOfExecsOwnServer(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	x := c.spawn(execArgs("--", "bash", "-c", "echo ready; read -r line")...)
	x.wantLine("ready")
	c.run("status").check(t).exits(0).printsPart("unix://", "1 running", "alive")
	x.signal(syscall.SIGINT)
	x.wantExit(130)
}

func TestSandboxList(t *testing.T) {
	c := newUp(t)
	c.run("sandbox", "list").check(t).exits(0).prints("").reports("no sandbox runs")
	c.run("sandbox", "list", "--json").check(t).exits(0).prints("[]\n")
	c.run("session", "create", "--thread", "idle").check(t).exits(0)
	c.exec("--", "true").check(t).exits(0)
	session := decode[schemas.Session](t, c.run("session", "get", "--thread", "t1", "--json").stdout)
	c.run("sandbox", "list").check(t).exits(0).omits("idle").
		printsMatch(`^THREAD +SESSION +SANDBOX +PROVIDER +IMAGE +STATE +WORKER +AGE\n`).
		printsMatch(`(?m)^t1 +` + session.ID + ` +` + session.Sandbox + ` +local +- +running +` + session.Owner + ` +\d+s$`)
	testkit.Equal(t, "sandboxes", decode[[]sandboxLine](t, c.run("sandbox", "list", "--json").stdout), []sandboxLine{{
		Thread: "t1", Session: session.ID, Sandbox: session.Sandbox, Provider: schemas.ProviderLocal, State: schemas.SandboxRunning, Worker: session.Owner, Created: session.Created,
	}})
	c.run("session", "stop", "--thread", "t1").check(t).exits(0)
	c.run("sandbox", "list", "--all", "--json").check(t).exits(0).prints("[]\n")
}

func TestSandboxesOmitsThoseThatEnded(t *testing.T) {
	sessions := []schemas.Session{
		{Thread: "new"}, {Thread: "runs", Sandbox: "s1", State: schemas.SandboxRunning}, {Thread: "parked", Sandbox: "s2", State: schemas.SandboxCompleted, Parked: true},
	}
	threads := func(list []sandboxLine) (out []string) {
		for _, s := range list {
			out = append(out, s.Thread)
		}
		return out
	}
	testkit.Equal(t, "sandboxes", threads(sandboxes(sessions, false)), []string{"runs"})
	testkit.Equal(t, "all sandboxes", threads(sandboxes(sessions, true)), []string{"runs", "parked"})
}

func TestVersion(t *testing.T) {
	c := newCLI(t)
	c.run("version").check(t).exits(0).printsMatch(`^sluice ` + regexp.QuoteMeta(version) + `, commit \S+, go\S+, \w+/\w+\n$`)
	got := decode[buildInfo](t, c.run("version", "--json").stdout)
	testkit.Equal(t, "version, go, os and arch", []string{got.Version, got.Go, got.OS, got.Arch}, []string{version, runtime.Version(), runtime.GOOS, runtime.GOARCH})
	c.run("version", "x").wantError(t, schemas.CodeInvalidArgument, "no arguments")
}
