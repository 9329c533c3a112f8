package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox/supervisor"
	"github.com/sluice-dev/sluice/schemas"
)

// version is set by the build.
var version = "dev"

func main() {
	// On a platform without an embedded supervisor, this binary runs as the supervisor.
	if len(os.Args) > 1 && os.Args[1] == "supervisor" {
		os.Exit(supervisor.Main(os.Args[2:]))
	}
	// When the reader of the output leaves, as head does, the write must fail and not end this program, which may host other
	// commands. Child processes would inherit an ignored signal, so it is caught.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	catchHangups()
	m := &Main{Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
	os.Exit(m.Run(context.Background()))
}

// Main is the program with its outside world as fields, so that a test can run all of it.
type Main struct {
	Args           []string
	Stdin          *os.File
	Stdout, Stderr io.Writer
	Getenv         func(string) string

	wide bool // tables are as wide as they are, also on a terminal
}

// Run runs the program and returns its exit code.
func (m *Main) Run(ctx context.Context) int {
	root := m.rootCommand()
	root.SetArgs(m.Args)
	root.SetIn(m.Stdin)
	root.SetOut(m.Stdout)
	root.SetErr(m.Stderr)
	command, err := root.ExecuteContextC(ctx)
	if exit, ok := errors.AsType[exitCode](err); ok {
		return int(exit)
	}
	if errors.Is(err, unix.EPIPE) && schemas.CodeOf(err) == schemas.CodeInternal {
		return schemas.ExitSignalBase + int(unix.SIGPIPE) // the reader of the output has left: a message is of no use
	}
	if err != nil {
		for _, arg := range m.Args {
			if isNATSURL(arg) {
				err = schemas.PublicURLError(err, arg) // an error repeats an argument that is out of place
			}
		}
		m.printError(err)
		if isSync(command) {
			return syncExit(err)
		}
		return schemas.ExitSluiceFailed
	}
	return 0
}

// isNATSURL reports whether an argument is the URL of a NATS server, which may have a token.
func isNATSURL(arg string) bool {
	scheme, _, ok := strings.Cut(arg, "://")
	return ok && slices.Contains([]string{"nats", "tls", "ws", "wss"}, strings.ToLower(scheme))
}

// exitCode is an error that was printed already, or needs no message.
type exitCode int

// Error makes it an error.
func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }
