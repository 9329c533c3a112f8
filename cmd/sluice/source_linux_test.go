package main

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 13: step two finds the files of step one, in a jail: as a copy that it may change, and read-only.
func TestStepTwoFindsTheFilesOfStepOne(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	store := t.TempDir()
	folder, _ := c.templates(`
name: writer
sync: {location: "file://` + store + `/{agent}/{thread}"}
agent: {command: [sh, -c, "cat >draft; cat draft"]}
---
name: reviewer
workspace: {from: "thread/{label.source}", template: writer}
sync: {location: "file://` + store + `/{agent}/{thread}"}
---
name: reader
workspace: {from: "thread/{label.source}", template: writer, mode: read-only}
`)
	c.up(append(jailFlags(t, c), "--templates", folder)...)
	c.run("message", "--thread", "one", "--template", "writer", "hello").check(t).exits(0).prints("hello")
	c.run("session", "stop", "--thread", "one").check(t).exits(0)
	two := func(thread, template, script string) outcome {
		return c.run("exec", "--thread", thread, "--template", template, "--label", "source=one", "--", "sh", "-c", script)
	}
	two("two", "reviewer", "cat draft; echo changed >draft").check(t).exits(0).prints("hello")
	two("three", "reader", "cat draft; echo x >/tmp/x && echo changed >draft").check(t).exits(2).prints("hello").reports("Read-only file system")
	two("three", "reader", "cat draft; rm -f draft").check(t).exits(1).prints("hello").reports("Read-only file system")
	c.run("exec", "--thread", "four", "--template", "reader", "--label", "source=absent", "--", "true").
		wantError(t, schemas.CodeNotFound, "thread absent has no stored workspace")
	c.run("exec", "--thread", "five", "--template", "reader", "--", "true").wantError(t, schemas.CodeInvalidArgument, "label source is missing")
	testkit.Equal(t, "the first thread's draft", c.run("message", "--thread", "one", "--template", "writer", "again").stdout, "again")
}
