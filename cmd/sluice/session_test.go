package main

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestSessionCommands(t *testing.T) {
	c := newCLI(t)
	c.up()
	got := c.run("session", "create", "--thread", "t1", "--user", "ann", "--tag", "team=blue", "--idle-timeout", "10m", "--start", "--json")
	got.check(t).exits(0)
	made := decode[struct {
		Created bool
		Session schemas.Session
	}](t, got.stdout)
	testkit.Equal(t, "created", made.Created, true)
	testkit.Equal(t, "user", made.Session.User, "ann")
	testkit.Equal(t, "idle_timeout_ms", made.Session.IdleTimeoutMS, int64(600_000))
	c.run("session", "create", "--thread", "t1").check(t).exits(0).reports("already\n").printsPart(made.Session.ID)
	c.run("session", "create", "--thread", "t1", "--user", "bob", "--tag", "a=b").check(t).exits(0).reports("ignored: --user, --tag").printsPart(made.Session.ID)
	for _, args := range [][]string{{"list", "--tag", "team=blue"}, {"list", "--user", "ann", "--json"}, {"get", "-t", "t1"}, {"renew", "-t", "t1", "--idle-timeout", "1h"}} {
		c.run(append([]string{"session"}, args...)...).check(t).exits(0).printsPart(made.Session.ID)
	}
	c.run("session", "list", "--tag", "team=red").check(t).exits(0).omits(made.Session.ID)
	c.exec("--session", "another", "--", "true").wantError(t, schemas.CodeSessionExpired, "another")
	c.exec("--session", made.Session.ID, "--", "sh", "-c", "echo kept >file").check(t).exits(0)
	c.run("session", "stop", "-t", "t1", "--grace", "1s").check(t).exits(0).printsPart("has ended")
	c.run("session", "stop", "-t", "t1").wantError(t, schemas.CodeNotFound, "t1")
	c.run("session", "delete", "-t", "t1", "--missing-ok").check(t).exits(0)
	c.exec("--", "cat", "file").check(t).prints("kept\n")
	c.run("session", "delete", "-t", "t1").check(t).exits(0)
	c.exec("--", "ls").check(t).prints("")
}

func TestSessionCommandsRejectInvalidArguments(t *testing.T) {
	c := newCLI(t)
	for _, args := range [][]string{
		{"create"}, {"create", "-t", "a b"}, {"create", "-t", "t", "--tag", "x"}, {"create", "-t", "t", "--tag", "x=1", "--tag", "x=2"}, {"create", "t", "u"},
		{"get"}, {"list", "--state", "asleep"}, {"list", "--limit", "0"}, {"stop"}, {"stop", "-t", "t", "--grace", "-1s"}, {"renew"}, {"delete"}, {"strop"},
	} {
		c.run(append([]string{"session"}, args...)...).wantError(t, schemas.CodeInvalidArgument)
	}
}
