package client_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

// canceledExec runs a command with the key k, ends its context when CMD has so many messages, and returns the error.
func (d *caller) canceledExec(queued uint64, before func()) error {
	d.t.Helper()
	req := sh("echo ran")
	req.Key = "k"
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := d.Exec(ctx, req)
		done <- err
	}()
	d.waitForQueued(queued)
	before()
	cancel()
	return <-done
}

// waitForQueued waits until CMD has so many messages.
func (d *caller) waitForQueued(n uint64) {
	d.t.Helper()
	for {
		s, err := d.Status(d.ctx)
		d.must(err)
		if s.Streams[0].Messages == n {
			return
		}
	}
}

// Promises 8: Exec cancels what no worker has taken. It does not run later, and every caller of the key gets canceled.
func TestExecCancelsAQueuedCommand(t *testing.T) {
	d := newCaller(t)
	waits := d.stream(sh("echo other"))
	err := d.canceledExec(2, func() {})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want %v", err, context.Canceled)
	}
	d.wantCode("Exec", err, schemas.CodeCanceled)
	d.must(d.cell.worker("w1"))
	d.waitForEvent(schemas.ProcessID(schemas.DefaultTenant, "t", "k"), schemas.TypeProcessRejected)
	for e, err := range waits.Events(d.ctx) {
		d.must(err)
		if e.Result != nil {
			d.equal("the other command", e.Result.Stdout, "other\n")
		}
	}
	req := sh("echo ran")
	req.Key = "k"
	d.wantCode("the same command again", errorOf(d.Exec(d.ctx, req)), schemas.CodeCanceled)
	req.Command = "another"
	d.wantCode("another command", errorOf(d.Exec(d.ctx, req)), schemas.CodeConflict)
	d.waitForQueued(0)
}

// Promises 8: another client cancels by the process id alone.
func TestCancelByProcess(t *testing.T) {
	d := newCaller(t)
	x := d.stream(sh("echo ran"))
	d.wantCode("without a thread", d.Cancel(d.ctx, "", x.Process()), schemas.CodeNotFound)
	d.must(d.Cancel(d.ctx, "t", x.Process()))
	d.must(d.cell.worker("w1"))
	var last error
	for _, err := range x.Events(d.ctx) {
		last = err
	}
	d.wantCode("end", last, schemas.CodeCanceled)
	d.waitForQueued(0)
}

// Promises 8: a cancel that is not stored is no canceled command.
func TestCancelOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	d := newCaller(t)
	err := d.canceledExec(1, d.cell.server.Close)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want %v", err, context.Canceled)
	}
	if code := schemas.CodeOf(err); code != schemas.CodeDeadlineExceeded && code != schemas.CodeUnavailable {
		t.Errorf("code = %s, want one of an unknown outcome: %v", code, err)
	}
}
