package sandboxtest

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// How a process ends, and what its exit reports.
var exitTests = []test{
	{"Codes", func(t *testing.T, f *fixture) {
		for _, n := range []int{0, 1, 7, 126, 127, 137, 255} {
			exit := f.sh(t, fmt.Sprintf("exit %d", n)).wantExit(t, schemas.ReasonExited, n)
			testkit.Equal(t, "signal", exit.Signal, sandbox.Signal(0))
			testkit.Equal(t, "count of killed descendants", exit.Killed, 0)
		}
	}},
	{"Signals", func(t *testing.T, f *fixture) {
		for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGPIPE} {
			exit := f.sh(t, fmt.Sprintf("kill -%d $$; sleep 300", int(sig))).wantExit(t, schemas.ReasonKilled, 128+int(sig))
			testkit.Equal(t, "signal", exit.Signal, sandbox.Signal(sig))
		}
	}},
	{"Report", func(t *testing.T, f *fixture) {
		exit := f.sh(t, "printf 12345; printf 123 >&2; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done").wantExit(t, schemas.ReasonExited, 0)
		testkit.Equal(t, "counts of bytes", []int64{exit.Stdout, exit.Stderr}, []int64{5, 3})
		if exit.MaxRSS <= 0 {
			t.Errorf("MaxRSS = %d, want it positive", exit.MaxRSS)
		}
		if exit.UserTime+exit.SystemTime <= 0 {
			t.Errorf("CPU time = %v + %v, want it positive", exit.UserTime, exit.SystemTime)
		}
		if exit.Started.IsZero() || !exit.Ended.After(exit.Started) {
			t.Errorf("ran from %v to %v, want an end after the start", exit.Started, exit.Ended)
		}
	}},
	{"WaitTwice", func(t *testing.T, f *fixture) {
		r := f.sh(t, "echo x")
		first := r.readAll(t)
		if second := r.wait(t); second != first {
			t.Errorf("second wait = %+v, want %+v", second, first)
		}
		if r.readChunk(t) {
			t.Error("read after the end returned output, want io.EOF")
		}
	}},
	{"WaitWithoutReading", func(t *testing.T, f *fixture) {
		r := f.sh(t, "echo one; echo two >&2")
		testkit.Equal(t, "exit code", r.wait(t).Code, 0)
		r.wantExit(t, schemas.ReasonExited, 0)
		testkit.Equal(t, "output read after the end", r.stdout.String()+r.stderr.String(), "one\ntwo\n")
	}},
	{"ContextCanceled", func(t *testing.T, f *fixture) {
		r := f.start(t, sandbox.Command{Path: "sleep", Args: []string{"300"}})
		_, err := r.Wait(f.canceled())
		wantError(t, "wait with a canceled context", err, context.Canceled)
		_, err = r.Read(f.canceled())
		wantError(t, "read with a canceled context", err, context.Canceled)
		r.kill(t)
	}},
	{"Signal", func(t *testing.T, f *fixture) {
		r := f.shReady(t, `trap 'echo got; exit 9' USR1; sh -c 'trap "echo child; exit" USR1; echo ready; while :; do sleep 0.01; done' & wait; wait`)
		for _, sig := range []sandbox.Signal{-1, 0, 65, 1000} {
			WantCode(t, "unknown signal", r.Signal(sig), schemas.CodeInvalidArgument)
		}
		testkit.Must(t, r.Signal(sandbox.Signal(syscall.SIGUSR1)))
		r.readUntil(t, "got")
		r.wantExit(t, schemas.ReasonExited, 9)
		WantCode(t, "signal after the end", r.Signal(sandbox.Signal(syscall.SIGUSR1)), schemas.CodeNotFound)
		if err := r.Kill(0); err != nil {
			t.Errorf("kill after the end: error = %v, want none", err)
		}
		if err := r.Ack(schemas.Stdout, 1); err != nil {
			t.Errorf("ack after the end: error = %v, want none", err)
		}
	}},
	{"SignalReachesProcessGroup", func(t *testing.T, f *fixture) {
		r := f.shReady(t, `trap : USR1; sh -c 'trap "echo child; exit" USR1; echo ready; while :; do sleep 0.01; done' & while ! wait $!; do :; done`)
		testkit.Must(t, r.Signal(sandbox.Signal(syscall.SIGUSR1)))
		r.readUntil(t, "child")
		testkit.Must(t, r.Kill(0))
		r.readAll(t)
	}},
	{"Timeout", func(t *testing.T, f *fixture) {
		cmd := shell("echo before; sleep 300 & sleep 300")
		r, _ := f.timedOut(t, cmd, "before")
		testkit.Equal(t, "stdout", r.stdout.String(), "before\n")
		f.wantNoLeftovers(t)
	}},
	{"TimeoutWithGrace", func(t *testing.T, f *fixture) {
		cmd := shell(`trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.01; done`)
		cmd.Grace = testkit.Timeout
		r, exit := f.timedOut(t, cmd, "ready")
		testkit.Equal(t, "stdout", r.stdout.String(), "ready\nasked\n")
		testkit.Equal(t, "signal", exit.Signal, sandbox.Signal(0))
	}},
	{"TimeoutIgnored", func(t *testing.T, f *fixture) {
		cmd := shell(`trap '' TERM; echo ready; sleep 300 & while :; do sleep 300; done`)
		cmd.Grace = 50 * time.Millisecond
		_, exit := f.timedOut(t, cmd, "ready")
		testkit.Equal(t, "signal", exit.Signal, sandbox.Signal(syscall.SIGKILL))
		f.wantNoLeftovers(t)
	}},
	{"TimeoutNotReached", func(t *testing.T, f *fixture) {
		cmd := shell("exit 4")
		cmd.Timeout = testkit.Timeout
		f.start(t, cmd).wantExit(t, schemas.ReasonExited, 4)
	}},
}

// timedOut runs a command until a timeout ends it after it has printed ready. A busy machine may start the script later than a timeout: then
// it has another try, with twice the time.
func (f *fixture) timedOut(t *testing.T, cmd sandbox.Command, ready string) (*testProcess, sandbox.Exit) {
	t.Helper()
	for cmd.Timeout = time.Second; ; cmd.Timeout *= 2 {
		r := f.start(t, cmd)
		exit := r.wantExit(t, schemas.ReasonTimedOut, schemas.ExitTimedOut)
		if strings.Contains(r.stdout.String(), ready) {
			return r, exit
		}
	}
}
