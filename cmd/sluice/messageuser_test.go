package main

import "testing"

// Ten minutes 15: the log line of a message names the message's user.
func TestUserOfAMessageIsLogged(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	s := c.up()
	c.run("session", "create", "--thread", "t1", "--template", "echo-agent", "--user", "ada").check(t).exits(0)
	c.run("message", "--thread", "t1", "--user", "grace", "hello").check(t).exits(0)
	c.run("message", "--thread", "t1", "hello").check(t).exits(0)
	for _, user := range []string{"grace", "ada"} {
		if !s.log.await(`"user":"`+user+`","command":"sh","exit_code":0`, t.Context().Done()) {
			t.Errorf("no line of a message has the user %s in\n%s", user, s.log)
		}
	}
}
