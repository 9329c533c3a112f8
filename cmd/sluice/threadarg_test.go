package main

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 15: a command about one thread takes it as its argument, or with --thread.
func TestThreadIsAnArgument(t *testing.T) {
	c := newUp(t)
	for _, thread := range [][]string{{"a"}, {"--thread", "b"}} {
		for _, command := range []string{"session create", "session get", "session renew", "messages", "session stop", "session delete --missing-ok"} {
			c.run(append(strings.Fields(command), thread...)...).check(t).exits(0)
		}
	}
	for _, wrong := range [][]string{{}, {"a", "b"}, {"a", "--thread", "a"}, {"a.b"}} {
		c.run(append([]string{"session", "get"}, wrong...)...).wantError(t, schemas.CodeInvalidArgument, "")
	}
}
