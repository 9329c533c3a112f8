package main

import (
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

// A hook whose program does not exist is not taken for the command that waits for it: not found, with exit code 127.
func TestMissingProgramOfAHookIsNotTheCommands(t *testing.T) {
	c := newCLI(t)
	c.env["SLUICE_TEMPLATES"], _ = c.templates("name: mine\nhooks: {cold_start: [{command: [no-such-program]}]}\n")
	c.up()
	c.exec("--template", "mine", "--", "true").wantError(t, schemas.CodeInvalidArgument, "the cold start of thread", "no-such-program")
}
