package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

func TestSessionsByHand(t *testing.T) {
	c := newCLI(t)
	c.up()
	got := c.run("session", "create", "--thread", "t1", "--user", "ann", "--tag", "team=blue", "--idle-timeout", "10m", "--start", "--json")
	var made struct {
		Created bool
		Session schemas.Session
	}
	if err := json.Unmarshal([]byte(got.stdout), &made); err != nil || got.code != 0 || !made.Created || made.Session.User != "ann" || made.Session.IdleTimeoutMS != 600_000 {
		t.Fatalf("%v %+v", err, got)
	}
	if got := c.run("session", "create", "--thread", "t1"); got.code != 0 || !strings.Contains(got.stderr, "already") || !strings.Contains(got.stdout, made.Session.ID) {
		t.Fatalf("%+v", got)
	}
	for _, args := range [][]string{{"list", "--tag", "team=blue"}, {"list", "--user", "ann", "--json"}, {"get", "-t", "t1"}, {"renew", "-t", "t1", "--idle-timeout", "1h"}} {
		if got := c.run(append([]string{"session"}, args...)...); got.code != 0 || !strings.Contains(got.stdout, made.Session.ID) {
			t.Errorf("%v: %+v", args, got)
		}
	}
	if got := c.run("session", "list", "--tag", "team=red"); got.code != 0 || strings.Contains(got.stdout, made.Session.ID) {
		t.Errorf("%+v", got)
	}
	c.exec("--session", "another", "--", "true").wantError(t, schemas.CodeSessionExpired, "another")
	if got := c.exec("--session", made.Session.ID, "--", "sh", "-c", "echo kept >file"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if got := c.run("session", "stop", "-t", "t1", "--grace", "1s"); got.code != 0 || !strings.Contains(got.stdout, "has ended") {
		t.Fatalf("%+v", got)
	}
	c.run("session", "stop", "-t", "t1").wantError(t, schemas.CodeNotFound, "t1")
	if got := c.run("session", "delete", "-t", "t1", "--missing-ok"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if got := c.exec("--", "cat", "file"); got.stdout != "kept\n" {
		t.Fatalf("%+v", got)
	}
	if got := c.run("session", "delete", "-t", "t1"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if got := c.exec("--", "ls"); got.stdout != "" {
		t.Fatalf("the workspace is still there: %+v", got)
	}
}

func TestSessionCommandsRefuseWhatMakesNoSense(t *testing.T) {
	c := newCLI(t)
	for _, args := range [][]string{
		{"create"}, {"create", "-t", "a b"}, {"create", "-t", "t", "--tag", "x"}, {"create", "-t", "t", "--tag", "x=1", "--tag", "x=2"}, {"create", "t"},
		{"get"}, {"list", "--state", "asleep"}, {"list", "--limit", "0"}, {"stop"}, {"stop", "-t", "t", "--grace", "-1s"}, {"renew"}, {"delete"}, {"strop"},
	} {
		c.run(append([]string{"session"}, args...)...).wantError(t, schemas.CodeInvalidArgument)
	}
}
