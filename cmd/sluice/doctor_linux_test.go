package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox/jail"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 9: doctor asks the server. The file with its address stays after a kill, and says nothing of it.
func TestDoctorAsksTheServer(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	up := c.spawn("up", "--provider", "local", "--listen", "127.0.0.1:0")
	url := upURL(t, up.stdout)
	c.finding("server").want(t, true, url)
	up.kill()
	c.finding("server").want(t, false, "does not answer")
	c.run("doctor").check(t).exits(0) // the next command starts a server
	got := c.run("--nats", "nats://127.0.0.1:1", "doctor")
	got.check(t).exits(schemas.ExitSluiceFailed).printsPart("!!", "127.0.0.1:1", "does not answer")
}

// Ten minutes 9: an ordinary user's commands have no limit on CPU time without a delegated cgroup, and doctor warns of it.
func TestDoctorWarnsOfMissingLimits(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("running as another user needs root: sudo -E go test -run TestDoctor ./cmd/sluice")
	}
	t.Parallel()
	c := newCLI(t)
	if _, err := jail.Check(testkit.ShortDir(t)); err != nil {
		testkit.Missing(t, "provider jail", err.Error())
	}
	c.runAs(ordinaryUser)
	got := c.spawn("doctor", "--json").outcome()
	got.check(t).exits(0)
	all := decode[[]finding](t, got.stdout)
	i := slices.IndexFunc(all, func(f finding) bool { return f.Check == "provider jail" })
	all[i].want(t, true, "CPU time is not limited")
	if !all[i].Warning {
		t.Errorf("finding = %+v, want a warning", all[i])
	}
	c.spawn("doctor").awaitLine("!   provider jail")
}

// A data folder of another user is of no use, also for root, who can write to it.
func TestDoctorNamesTheOwnerOfTheFolder(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.Missing(t, "root, to make a folder of another user", "sudo -E go test -run TestDoctor ./cmd/sluice")
	}
	t.Parallel()
	c := newCLI(t)
	run := filepath.Join(c.data, "run")
	testkit.Must(t, os.Mkdir(run, 0o700))
	testkit.Must(t, os.Chown(run, ordinaryUser, ordinaryUser))
	const wayOut = ": run as that user, or choose another folder with --data"
	c.finding("data folder").want(t, false, wayOut)
	c.exec("--", "true").wantError(t, schemas.CodePermissionDenied, "belongs to user", wayOut)
	testkit.Must(t, os.Chown(run, 0, 0))
	testkit.Must(t, os.Chmod(run, 0o755))
	c.finding("data folder").want(t, false, "mode 0700: remove it")
}

// finding is what doctor finds for one check.
func (c *cli) finding(check string) finding {
	c.t.Helper()
	for _, f := range decode[[]finding](c.t, c.run("doctor", "--json").stdout) {
		if f.Check == check {
			return f
		}
	}
	c.t.Fatalf("doctor has no check %q", check)
	return finding{}
}

func (f finding) want(t *testing.T, ok bool, part string) {
	t.Helper()
	if f.OK != ok {
		t.Errorf("finding = %+v, want OK %v", f, ok)
	}
	testkit.Contains(t, "finding", f.Found, part)
}
