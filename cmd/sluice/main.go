package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sluice-dev/sluice/sandbox/supervisor"
	"github.com/sluice-dev/sluice/schemas"
)

// version is set by the build.
var version = "dev"

func main() {
	// A machine for which no supervisor is embedded runs this binary as one.
	if len(os.Args) > 1 && os.Args[1] == "supervisor" {
		os.Exit(supervisor.Main(os.Args[2:]))
	}
	m := &Main{Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
	os.Exit(m.Run(context.Background()))
}

// Main is the program with all it touches as fields, so that a test can run it whole.
type Main struct {
	Args           []string
	Stdin          *os.File
	Stdout, Stderr io.Writer
	Getenv         func(string) string
}

// Run runs the program and returns its exit code.
func (m *Main) Run(ctx context.Context) int {
	root := m.rootCommand()
	root.SetArgs(m.Args)
	root.SetIn(m.Stdin)
	root.SetOut(m.Stdout)
	root.SetErr(m.Stderr)
	err := root.ExecuteContext(ctx)
	if exit, ok := errors.AsType[exitCode](err); ok {
		return int(exit)
	}
	if err != nil {
		fmt.Fprintln(m.Stderr, "sluice: "+printable(err.Error()))
		return schemas.ExitSluiceFailed
	}
	return 0
}

// exitCode is an error that has been told already, or is none: the code is all that is left to say.
type exitCode int

// Error makes it an error.
func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// printable keeps what comes from elsewhere from driving the terminal it is shown on.
func printable(s string) string {
	out := make([]rune, 0, len(s))
	for _, r := range s {
		if r != '\n' && r != '\t' && (r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0)) {
			r = '\uFFFD'
		}
		out = append(out, r)
	}
	return string(out)
}
