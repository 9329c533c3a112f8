package processor_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor/internal/run"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func (r *rig) feed(process string, offset int64, data string, end bool) error {
	return r.control(process, schemas.Control{Stdin: &schemas.StdinPiece{Offset: offset, Data: []byte(data), End: end}})
}

func TestStdinArrivesOnceInOrderWithoutGaps(t *testing.T) {
	c, w := newRig(t)
	e := sh("cat; until [ -e go ]; do sleep 0.02; done") // it runs until all pieces are answered
	e.Stdin, e.StdinOpen = []byte("own "), true
	cmd := command("k", e)
	call, process := c.send(cmd), processOf(cmd)
	for _, k := range []struct {
		offset int64
		data   string
		end    bool
		want   error
	}{
		{0, "one ", false, nil},
		{0, "one ", false, nil},   // its answer was lost
		{2, "e two ", false, nil}, // part of it came before
		{20, "later", false, schemas.ErrInvalidArgument},
		{-1, "one", false, schemas.ErrInvalidArgument},
		{math.MinInt64, "one", false, schemas.ErrInvalidArgument},
		{math.MaxInt64, "one", false, schemas.ErrInvalidArgument},
		{8, "", false, nil},
		{8, "three", true, nil},
		{8, "three", true, nil}, // the end, again
		{13, "", true, nil},
		{0, "one ", false, nil},
		{13, "more", false, schemas.ErrNotFound},
	} {
		if err := w.feed(process, k.offset, k.data, k.end); !errors.Is(err, k.want) || (err == nil) != (k.want == nil) {
			t.Errorf("piece %+v: error %v, want %v", k, err, k.want)
		}
	}
	c.file("go")
	wantFields(t, c.end(call), schemas.Result{Stdout: "own one two three"})
	testkit.WantCode(t, w.feed(process, 13, "more", false), schemas.CodeNotFound)
}

func TestStdinIsRefusedWhenTheProcessDoesNotRead(t *testing.T) {
	c, w := newRig(t)
	w.useDouble(func(_ context.Context, d *double, cmd sandbox.Command) (sandbox.Process, error) {
		return newDoubleProcess(cmd.ID, d), nil
	})
	e := sh(":")
	e.StdinOpen = true
	cmd := command("k", e)
	call, process := c.send(cmd), processOf(cmd)
	const pieces = run.InputDepth + 8
	answers := make(chan error, pieces)
	for i := range pieces {
		w.HandleControl(c.ctx, schemas.Control{Tenant: "default", Thread: "t", Process: process,
			Stdin: &schemas.StdinPiece{Offset: int64(i), Data: []byte("x")}}, func(err error) { answers <- err })
	}
	// One piece may be on its way to the process; those over the depth are refused at once.
	for range pieces - run.InputDepth - 1 {
		testkit.WantCode(t, <-answers, schemas.CodeUnavailable)
	}
	c.must(w.control(process, schemas.Control{Kill: &schemas.KillRequest{}}))
	c.end(call)
	for range run.InputDepth + 1 {
		if err := <-answers; err == nil || !errors.Is(err, schemas.ErrNotFound) && !errors.Is(err, schemas.ErrUnavailable) && !errors.Is(err, schemas.ErrInvalidArgument) {
			t.Fatalf("error of a piece that was not read = %v, want not_found, unavailable or invalid_argument", err)
		}
	}
}

func TestControlRefusesUnknownProcessesAndInvalidRequests(t *testing.T) {
	c, w := newRig(t)
	cmd := command("k", sh("echo on; exec sleep 300"))
	call, process := c.send(cmd), processOf(cmd)
	c.output(process, "on")
	kill := &schemas.KillRequest{}
	for _, k := range []struct {
		name    string
		process string
		ctl     schemas.Control
		want    error
	}{
		{"no such process", "p00000000000000000000000000", schemas.Control{Kill: kill}, schemas.ErrNotFound},
		{"another thread's", process, schemas.Control{Thread: "other", Kill: kill}, schemas.ErrNotFound},
		{"nothing", process, schemas.Control{}, schemas.ErrInvalidArgument},
		{"no signal", process, schemas.Control{Signal: &schemas.SignalRequest{Signal: "SIGNOTHING"}}, schemas.ErrInvalidArgument},
		{"signal 0", process, schemas.Control{Signal: &schemas.SignalRequest{Signal: "0"}}, schemas.ErrInvalidArgument},
		{"a negative signal", process, schemas.Control{Signal: &schemas.SignalRequest{Signal: "-9"}}, schemas.ErrInvalidArgument},
		{"a negative grace", process, schemas.Control{Kill: &schemas.KillRequest{GraceMS: -1}}, schemas.ErrInvalidArgument},
		{"a grace of years", process, schemas.Control{Kill: &schemas.KillRequest{GraceMS: math.MaxInt64}}, schemas.ErrInvalidArgument},
		{"input it does not take", process, schemas.Control{Stdin: &schemas.StdinPiece{}}, schemas.ErrInvalidArgument},
	} {
		if err := w.control(k.process, k.ctl); !errors.Is(err, k.want) {
			t.Errorf("%s: error %v, want %v", k.name, err, k.want)
		}
	}
	for _, name := range []string{"SIGCONT", "cont", "18"} {
		c.must(w.control(process, schemas.Control{Signal: &schemas.SignalRequest{Signal: name}}))
	}
	c.must(w.control(process, schemas.Control{Kill: &schemas.KillRequest{GraceMS: 10000}}))
	wantFields(t, c.end(call), schemas.Result{Reason: schemas.ReasonKilled, Signal: 15})
	testkit.WantCode(t, w.control(process, schemas.Control{Kill: kill}), schemas.CodeNotFound)
}
