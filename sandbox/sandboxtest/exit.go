package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// How a process ends, and how it is told.
var exitTests = []test{
	{"Codes", func(t *testing.T, b *box) {
		for _, n := range []int{0, 1, 7, 126, 127, 137, 255} {
			exit := b.sh(t, fmt.Sprintf("exit %d", n)).ends(t, schemas.ReasonExited, n)
			if exit.Signal != 0 || exit.Killed != 0 {
				t.Errorf("%+v", exit)
			}
		}
	}},
	{"Signals", func(t *testing.T, b *box) {
		for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGPIPE} {
			exit := b.sh(t, fmt.Sprintf("kill -%d $$; sleep 300", int(sig))).ends(t, schemas.ReasonKilled, 128+int(sig))
			if exit.Signal != sandbox.Signal(sig) {
				t.Errorf("%+v", exit)
			}
		}
	}},
	{"Record", func(t *testing.T, b *box) {
		exit := b.sh(t, "printf 12345; printf 123 >&2; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done").ends(t, schemas.ReasonExited, 0)
		if exit.Stdout != 5 || exit.Stderr != 3 || exit.MaxRSS <= 0 || exit.UserTime+exit.SystemTime <= 0 ||
			exit.Started.IsZero() || !exit.Ended.After(exit.Started) {
			t.Errorf("%+v", exit)
		}
	}},
	{"Again", func(t *testing.T, b *box) {
		r := b.sh(t, "echo x")
		first := r.finish(t)
		if second := r.wait(t); second != first {
			t.Errorf("waited twice: %+v, then %+v", first, second)
		}
		if r.next(t) {
			t.Error("more output after the end")
		}
	}},
	{"WaitWithoutReading", func(t *testing.T, b *box) {
		r := b.sh(t, "echo one; echo two >&2")
		if exit := r.wait(t); exit.Code != 0 {
			t.Errorf("%+v", exit)
		}
		r.ends(t, schemas.ReasonExited, 0)
		is(t, "read after the end", r.stdout.String()+r.stderr.String(), "one\ntwo\n")
	}},
	{"WaitContext", func(t *testing.T, b *box) {
		r := b.start(t, sandbox.Command{Path: "sleep", Args: []string{"300"}})
		ctx, cancel := context.WithCancel(b.ctx)
		cancel()
		if _, err := r.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("wait with a context that is over: %v", err)
		}
		if _, err := r.Read(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("read with a context that is over: %v", err)
		}
		if err := r.Kill(0); err != nil {
			t.Error(err)
		}
		r.ends(t, schemas.ReasonKilled, 137)
	}},
	{"Signal", func(t *testing.T, b *box) {
		r := b.sh(t, `trap 'echo got; exit 9' USR1; sh -c 'trap "echo child; exit" USR1; echo ready; while :; do sleep 0.01; done' & wait; wait`)
		r.until(t, "ready")
		for _, sig := range []sandbox.Signal{-1, 0, 65, 1000} {
			code(t, "no signal", r.Signal(sig), schemas.CodeInvalidArgument)
		}
		if err := r.Signal(sandbox.Signal(syscall.SIGUSR1)); err != nil {
			t.Fatal(err)
		}
		r.until(t, "got")
		r.ends(t, schemas.ReasonExited, 9)
		code(t, "signal after the end", r.Signal(sandbox.Signal(syscall.SIGUSR1)), schemas.CodeNotFound)
		if err := r.Kill(0); err != nil {
			t.Errorf("kill after the end: %v", err)
		}
		if err := r.Ack(schemas.Stdout, 1); err != nil {
			t.Errorf("ack after the end: %v", err)
		}
	}},
	{"SignalReachesTheGroup", func(t *testing.T, b *box) {
		r := b.sh(t, `trap : USR1; sh -c 'trap "echo child; exit" USR1; echo ready; while :; do sleep 0.01; done' & while ! wait $!; do :; done`)
		r.until(t, "ready")
		if err := r.Signal(sandbox.Signal(syscall.SIGUSR1)); err != nil {
			t.Fatal(err)
		}
		r.until(t, "child")
		if err := r.Kill(0); err != nil {
			t.Error(err)
		}
		r.finish(t)
	}},
	{"Timeout", func(t *testing.T, b *box) {
		cmd := shell("echo before; sleep 300 & sleep 300")
		cmd.Timeout = 2 * time.Second
		r := b.start(t, cmd)
		r.ends(t, schemas.ReasonTimedOut, schemas.ExitTimedOut)
		is(t, "printed until then", r.stdout.String(), "before\n")
		b.alone(t)
	}},
	{"TimeoutWithGrace", func(t *testing.T, b *box) {
		cmd := shell(`trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.01; done`)
		cmd.Timeout, cmd.Grace = 2*time.Second, Patience
		r := b.start(t, cmd)
		exit := r.ends(t, schemas.ReasonTimedOut, schemas.ExitTimedOut)
		is(t, "printed in its grace", r.stdout.String(), "ready\nasked\n")
		if exit.Signal != 0 {
			t.Errorf("%+v", exit)
		}
	}},
	{"TimeoutIgnored", func(t *testing.T, b *box) {
		cmd := shell(`trap '' TERM; echo ready; sleep 300 & while :; do sleep 300; done`)
		cmd.Timeout, cmd.Grace = time.Second, 50*time.Millisecond
		r := b.start(t, cmd)
		exit := r.ends(t, schemas.ReasonTimedOut, schemas.ExitTimedOut)
		if exit.Signal != sandbox.Signal(syscall.SIGKILL) {
			t.Errorf("%+v", exit)
		}
		b.alone(t)
	}},
	{"TimeoutNotReached", func(t *testing.T, b *box) {
		cmd := shell("exit 4")
		cmd.Timeout = Patience
		b.start(t, cmd).ends(t, schemas.ReasonExited, 4)
	}},
}
