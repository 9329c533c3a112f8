package client_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// deaf is a worker that has lost a part of the input of each process.
type deaf struct {
	*events.Worker
	listener *events.Listener
	accepted *schemas.Event
}

func (w *deaf) record(typ schemas.EventType, d any, of *schemas.Event, after uint64) {
	ev := schemas.Event{
		SpecVersion: schemas.EventSpecVersion, Type: typ, ID: string(typ), Source: "w1",
		Tenant: of.Tenant, Thread: of.Thread, Process: of.Process, Subject: of.Process,
	}
	if err := ev.SetData(d); err != nil {
		panic(err)
	}
	seq, err := w.Records.Append(context.Background(), &ev, after)
	if err != nil {
		panic(err)
	}
	ev.Seq, w.accepted = seq, &ev
}

func (w *deaf) HandleCommand(_ context.Context, d schemas.Delivery) schemas.Verdict {
	of := &schemas.Event{Tenant: d.Tenant, Thread: d.Thread, Process: d.Process}
	w.record(schemas.TypeProcessAccepted, schemas.Accepted{Fingerprint: d.Fingerprint}, of, 0)
	_ = w.Answer(d.Inbox, w.accepted)
	return schemas.Verdict{Action: schemas.ActionDone}
}

func (w *deaf) HandleControl(_ context.Context, ctl schemas.Control, done func(error)) {
	if ctl.Stdin != nil {
		done(schemas.Errorf(schemas.CodeInvalidArgument, "offset: 0, but none came before"))
		return
	}
	var a schemas.Accepted
	if err := w.accepted.Decode(&a); err != nil {
		panic(err)
	}
	w.record(schemas.TypeProcessExited, schemas.Result{Fingerprint: a.Fingerprint, Reason: schemas.ReasonKilled, ExitCode: 137}, w.accepted, w.accepted.Seq)
	done(nil)
}

func (w *deaf) HandleCancel(context.Context, schemas.Cancel) (bool, error) { return true, nil }

func (w *deaf) HandleConnect(context.Context, string, string, schemas.ConnectRequest) (net.Conn, error) {
	return nil, schemas.ErrUnavailable
}

func (w *deaf) HandleService(context.Context, schemas.ServiceControl, func(schemas.ServiceReply)) {}

func (w *deaf) HandleSession(context.Context, schemas.SessionControl, func(schemas.SessionReply)) {}

func (w *deaf) HandleProcesses(context.Context, string, schemas.ProcessesRequest) schemas.ProcessesReply {
	return schemas.ProcessesReply{}
}

func (w *deaf) HandleCleaned(context.Context, string, string, schemas.ProcessesCleaned) error {
	return nil
}

func (w *deaf) HandleFile(schemas.FileMessage, func(schemas.FileAnswer)) {}

func (w *deaf) HandleWorkspace(context.Context, string, schemas.WorkspaceRemoval) error { return nil }

func (w *deaf) Room() int { return 1 }

func (w *deaf) RoomFor(string, string) int { return 1 }

func (w *deaf) HandlePlace(ctx context.Context, tenant string, req schemas.PlaceRequest) schemas.PlaceReply {
	if err := w.listener.Threads.Subscribe(ctx, tenant, req.Thread); err != nil {
		panic(err)
	}
	return schemas.PlaceReply{Worker: "w1"}
}

// Promises 9: input that cannot arrive kills the process, and the caller gets the reason.
func TestInputThatCannotArriveIsAnError(t *testing.T) {
	d := newCaller(t)
	conn, err := d.cell.conn()
	testkit.Must(t, err)
	w := &deaf{Worker: conn.Worker()}
	w.listener = w.NewListener("w1")
	ctx, cancel := context.WithCancel(d.ctx)
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.listener.Run(ctx, w, func() { close(ready) })
	}()
	defer func() {
		cancel()
		<-ended
	}()
	<-ready
	_, err = d.Exec(d.ctx, client.Request{Thread: "t", Command: "cat", Stdin: strings.NewReader("input")})
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	if !strings.Contains(err.Error(), "standard input") {
		t.Errorf("error = %v, want it to name the standard input", err)
	}
}
