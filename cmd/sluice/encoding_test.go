package main

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestExecPrintsOutputInAnEncoding(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	for encoding, want := range map[string]string{"utf-8": "a\uFFFD", "base64": "Yf8="} {
		got := c.exec("--json", "--encoding", encoding, "--", "printf", `a\377`)
		testkit.Equal(t, "output as "+encoding, decode[schemas.Result](t, got.stdout).Stdout, want)
	}
	c.exec("--encoding", "base64", "--", "true").wantError(t, schemas.CodeInvalidArgument, "--json")
	c.exec("--json", "--encoding", "raw", "--", "true").wantError(t, schemas.CodeInvalidArgument, "--encoding raw")
	c.exec("--json", "--encoding", "latin-1", "--", "true").wantError(t, schemas.CodeInvalidArgument, "latin-1")
}
