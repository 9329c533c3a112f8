package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// TestStopAndStatusSayWhatIsOwed stops a session while its store is down, over a restart of `sluice up`. Ten minutes 5.
func TestStopAndStatusSayWhatIsOwed(t *testing.T) {
	c := newCLI(t)
	store := filepath.Join(t.TempDir(), "store")
	testkit.Must(t, os.WriteFile(store, nil, 0o600)) // no folder can be made there
	c.env["SLUICE_TEMPLATES"], _ = c.templates("name: mine\nsync: {location: 'file://" + store + "/{thread}'}\nhooks: {cold_start: []}\n")
	s := c.up()
	for _, thread := range []string{"t1", "t2"} {
		c.exec("--template", "mine", "--thread", thread, "--", "sh", "-c", "echo one > a").check(t).exits(0)
	}
	c.run("session", "stop", "-t", "t1").check(t).exits(0).printsPart("has ended").reports("not pushed yet", "sluice status")
	got := decode[schemas.Session](t, c.run("session", "stop", "-t", "t2", "--json").stdout)
	if got.Unpushed == nil || len(got.FailedHooks) != 1 {
		t.Errorf("session = %+v, want the failed push", got)
	}
	c.run("status").check(t).exits(0).printsPart("OWED PUSH OF", "t1", "t2")
	c.exec("--template", "mine", "--thread", "t3", "--", "sh", "-c", "echo one > a").check(t).exits(0)
	c.run("session", "delete", "-t", "t3").wantError(t, schemas.CodeInternal, "until it is pushed")

	testkit.Equal(t, "exit code of up", s.stop(), 0)
	testkit.Must(t, os.Remove(store))
	c.up()
	for owed := 3; owed > 0; {
		owed = len(decode[schemas.Status](t, c.run("status", "--json").stdout).Owed)
		if owed > 0 && t.Context().Err() == nil {
			<-time.After(50 * time.Millisecond)
		}
	}
	c.run("status").check(t).omits("OWED")
	for _, thread := range []string{"t1", "t2", "t3"} {
		text, err := os.ReadFile(filepath.Join(store, thread, ".sandbox-state"))
		testkit.Must(t, err)
		testkit.Equal(t, "a is pushed of "+thread, strings.Contains(string(text), `"path":"a"`), true)
	}
}
