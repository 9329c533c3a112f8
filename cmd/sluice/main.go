package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

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
	// A reader that leaves, as head does, must be an error that can be handled and not the end of this program, which may host
	// other commands. Ignoring the signal instead would be inherited by what is started.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
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
	if errors.Is(err, unix.EPIPE) && schemas.CodeOf(err) == schemas.CodeInternal {
		return schemas.ExitSignalBase + int(unix.SIGPIPE) // who reads this has left, and need not be told
	}
	if err != nil {
		m.say(err)
		return schemas.ExitSluiceFailed
	}
	return 0
}

// say tells a person what failed. The code comes first: it is what a script can decide by.
func (m *Main) say(err error) {
	text := err.Error()
	if e, ok := errors.AsType[*schemas.Error](err); ok {
		text = string(e.Code) + ": " + text
	}
	fmt.Fprintln(m.Stderr, "sluice: "+printable(text))
}

// exitCode is an error that has been told already, or is none: the code is all that is left to say.
type exitCode int

// Error makes it an error.
func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// printable keeps what comes from elsewhere from driving the terminal it is shown on: no control characters, and none of the
// invisible ones that turn the direction of the text around.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// oneLine is printable text that cannot pretend to be a further line of a list.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, printable(s))
}
