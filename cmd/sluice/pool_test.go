package main

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 15: POOL_SIZE sets the size of the pool; without it, the documented sizes hold.
func TestPoolHasTheDocumentedSize(t *testing.T) {
	for variable, want := range map[string][2]string{"": {"10", "5"}, "3": {"3", "3"}, "0": {"0", "0"}, "-1": {"10", "5"}, "many": {"10", "5"}} {
		root := (&Main{Getenv: func(name string) string { return map[string]string{"POOL_SIZE": variable}[name] }}).rootCommand()
		for i, name := range []string{"up", "worker"} {
			c, _, err := root.Find([]string{name})
			testkit.Must(t, err)
			testkit.Equal(t, "--pool of "+name+" with POOL_SIZE="+variable, c.Flags().Lookup("pool").DefValue, want[i])
		}
	}
	newCLI(t).run("up", "--provider", "local", "--pool", "-1").wantError(t, schemas.CodeInvalidArgument, "--pool")
}
