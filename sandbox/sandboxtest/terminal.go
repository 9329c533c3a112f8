package sandboxtest

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// What a process with a terminal sees of it.
var terminalTests = []test{
	{"IsTerminal", func(t *testing.T, f *fixture) {
		r := f.inTerminal(t, `[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && stty size && echo $TERM && (: >/dev/tty) && echo controlling; echo err >&2`)
		r.wantExit(t, schemas.ReasonExited, 0)
		testkit.Equal(t, "stdout", r.stdout.String(), "30 100\r\nxterm\r\ncontrolling\r\nerr\r\n")
		testkit.Equal(t, "stderr", r.stderr.String(), "")
	}},
	{"TermOfCommand", func(t *testing.T, f *fixture) {
		r := f.start(t, sandbox.Command{Path: "sh", Args: []string{"-c", "echo $TERM"}, Env: map[string]string{"TERM": "vt100"}, Terminal: &schemas.TerminalSize{Rows: 1, Cols: 1}})
		r.wantExit(t, schemas.ReasonExited, 0)
		testkit.Equal(t, "stdout", r.stdout.String(), "vt100\r\n")
	}},
	{"Resize", func(t *testing.T, f *fixture) {
		r := f.inTerminal(t, `trap 'stty size' WINCH; echo ready; while :; do sleep 0.02; done`)
		r.readUntil(t, "ready")
		testkit.Must(t, r.Resize(schemas.TerminalSize{Rows: 41, Cols: 132}))
		r.readUntil(t, "41 132")
		testkit.Must(t, r.Resize(schemas.TerminalSize{Rows: schemas.MaxTerminalSize, Cols: 2}))
		r.readUntil(t, "4096 2")
		for _, size := range badSizes() {
			WantCode(t, "resize", r.Resize(size), schemas.CodeInvalidArgument)
		}
		r.kill(t)
		WantCode(t, "resize after the end", r.Resize(schemas.TerminalSize{Rows: 1, Cols: 1}), schemas.CodeNotFound)
	}},
	{"BadSize", func(t *testing.T, f *fixture) {
		for _, size := range badSizes() {
			_, err := f.Start(f.ctx, sandbox.Command{ID: f.nextID(), Path: "true", Terminal: &size})
			WantCode(t, "start", err, schemas.CodeInvalidArgument)
		}
	}},
	{"ResizeWithoutTerminal", func(t *testing.T, f *fixture) {
		r := f.start(t, sandbox.Command{Path: "cat", Stdin: true})
		testkit.Must(t, r.Resize(schemas.TerminalSize{Rows: 1, Cols: 1}))
		r.wantEnd(t)
	}},
	{"Interrupt", func(t *testing.T, f *fixture) {
		r := f.inTerminal(t, `trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.02; done`)
		r.readUntil(t, "ready")
		testkit.Must(t, r.WriteStdin(f.ctx, []byte("\x03")))
		r.wantExit(t, schemas.ReasonExited, 3)
		testkit.Equal(t, "interrupted", strings.Contains(r.stdout.String(), "interrupted"), true)
	}},
	{"EndOfInput", func(t *testing.T, f *fixture) {
		r := f.inTerminal(t, "cat; echo ended")
		testkit.Must(t, r.WriteStdin(f.ctx, []byte("line\n")))
		r.readUntil(t, "line\r\nline\r\n")
		r.wantEnd(t)
		testkit.Equal(t, "stdout", r.stdout.String(), "line\r\nline\r\nended\r\n")
	}},
	{"EndOfInputInALine", func(t *testing.T, f *fixture) {
		r := f.inTerminal(t, "stty -echo; echo ready; cat; echo ended")
		r.readUntil(t, "ready\r\n")
		testkit.Must(t, r.WriteStdin(f.ctx, []byte("part")))
		r.wantEnd(t)
		testkit.Equal(t, "stdout", r.stdout.String(), "ready\r\npartended\r\n")
	}},
	{"NeverReads", func(t *testing.T, f *fixture) {
		// Input that nothing reads holds up neither the output nor the size nor the end.
		r := f.inTerminal(t, `stty raw -echo; trap 'stty size' WINCH; echo ready; while :; do sleep 0.02; done`)
		r.readUntil(t, "ready")
		ctx, cancel := context.WithCancel(f.ctx)
		written := make(chan error, 1)
		go func() { written <- r.WriteStdin(ctx, make([]byte, 1<<20)) }()
		for i := range int64(200) {
			testkit.Must(t, r.Resize(schemas.TerminalSize{Rows: 100 + i, Cols: 70}))
		}
		r.readUntil(t, "299 70")
		cancel()
		wantError(t, "write", <-written, context.Canceled)
		r.kill(t)
	}},
	{"WithoutInput", func(t *testing.T, f *fixture) {
		r := f.start(t, sandbox.Command{Path: "true", Terminal: &schemas.TerminalSize{Rows: 1, Cols: 1}})
		r.wantExit(t, schemas.ReasonExited, 0)
		wantError(t, "write", r.WriteStdin(f.ctx, []byte("x")), io.ErrClosedPipe)
	}},
	{"AllOutput", func(t *testing.T, f *fixture) {
		r := f.inTerminal(t, `stty -opost; i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done; printf end`)
		r.wantExit(t, schemas.ReasonExited, 0)
		testkit.Equal(t, "bytes of stdout", r.stdout.Len(), 20000*11+3)
	}},
	{"ReopenedAfterClose", func(t *testing.T, f *fixture) {
		r := f.inTerminal(t, `exec <&- >&- 2>&-; sleep 0.1; echo again >/dev/tty`)
		r.wantExit(t, schemas.ReasonExited, 0)
		testkit.Equal(t, "stdout", r.stdout.String(), "again\r\n")
	}},
	{"HangUp", func(t *testing.T, f *fixture) {
		// An interactive shell ignores SIGTERM. The grace is longer than the test may take.
		r := f.inTerminal(t, `trap '' TERM; trap 'echo hung up; exit 5' HUP; echo ready; while :; do sleep 0.02; done`)
		r.readUntil(t, "ready")
		testkit.Must(t, r.Kill(testkit.Timeout))
		r.wantExit(t, schemas.ReasonExited, 5)
	}},
	{"LeavesNothing", func(t *testing.T, f *fixture) {
		r := f.inTerminal(t, "sleep 300 & setsid sleep 300 & echo ready")
		r.wantExit(t, schemas.ReasonExited, 0)
		f.wantNoLeftovers(t)
	}},
	{"TerminateSandbox", func(t *testing.T, f *fixture) {
		r := f.inTerminal(t, `trap '' TERM; trap 'exit 6' HUP; echo ready; while :; do sleep 0.02; done`)
		r.readUntil(t, "ready")
		testkit.Must(t, f.Terminate(f.ctx, testkit.Timeout))
		r.wantExit(t, schemas.ReasonExited, 6)
	}},
}

func badSizes() []schemas.TerminalSize {
	return []schemas.TerminalSize{{}, {Rows: 24}, {Cols: 80}, {Rows: 65535, Cols: 65535}, {Rows: -1, Cols: 80}, {Rows: 24, Cols: 4097}, {Rows: 1 << 32, Cols: 1}}
}

// inTerminal starts a script in a terminal of 30 rows and 100 columns.
func (f *fixture) inTerminal(t *testing.T, script string) *testProcess {
	t.Helper()
	cmd := shell(script)
	cmd.Stdin, cmd.Terminal = true, &schemas.TerminalSize{Rows: 30, Cols: 100}
	return f.start(t, cmd)
}
