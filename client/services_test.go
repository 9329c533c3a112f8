package client_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// sleeper is a service that prints a line, and then idles.
func sleeper(name string) client.ServiceRequest {
	return client.ServiceRequest{Name: name, ServiceSpec: schemas.ServiceSpec{Command: "sh", Args: []string{"-c", "echo up; exec sleep 300"}}}
}

// Start of a sandbox's services starts the sandbox first, unless it was stopped. They are those of its thread.
func TestServicesOfASandboxAndOfItsThread(t *testing.T) {
	d := newCaller(t, "w1")
	box := d.Sandboxes(client.SessionRequest{}).Sandbox(client.SessionRequest{Thread: "t"})
	s, err := box.Services().Start(d.ctx, sleeper("b"))
	d.must(err)
	d.equal("state", s.State, schemas.ServiceRunning)
	d.equal("status of the sandbox", box.Status(), schemas.SandboxRunning)

	services := d.Services("t")
	_, err = services.Start(d.ctx, sleeper("a"))
	d.must(err)
	list, err := services.List(d.ctx)
	d.must(err)
	d.equal("names", []string{list[0].Name, list[1].Name}, []string{"a", "b"})
	d.waitForOutput(s.Process(), "up\n")
	lines, err := services.Logs(d.ctx, "b", 10)
	d.must(err)
	if len(lines) != 1 || !strings.HasSuffix(lines[0], " | up") {
		t.Errorf("lines = %q, want one that ends with up", lines)
	}
	s, err = box.Services().Stop(d.ctx, "b")
	d.must(err)
	d.equal("state after the stop", s.State, schemas.ServiceStopped)

	d.must(box.Stop(d.ctx, client.StopGrace(time.Millisecond)))
	_, err = box.Services().Start(d.ctx, sleeper("b"))
	d.wantIs("start after the stop", err, client.ErrSandboxNotRunning, schemas.CodeSessionExpired)
}

// Services of all threads are listed; what concerns one service needs its thread and its name.
func TestServicesOfAllThreads(t *testing.T) {
	d := newCaller(t, "w1")
	for _, thread := range []string{"u", "t"} {
		_, err := d.Services(thread).Start(d.ctx, sleeper("a"))
		d.must(err)
	}
	all := d.Services("")
	list, err := all.List(d.ctx)
	d.must(err)
	d.equal("threads", []string{list[0].Thread, list[1].Thread}, []string{"t", "u"})
	for what, err := range map[string]error{
		"start": errorOf(all.Start(d.ctx, sleeper("a"))), "stop": errorOf(all.Stop(d.ctx, "a")), "get": errorOf(all.Get(d.ctx, "a")),
		"logs": errorOf(all.Logs(d.ctx, "a", 1)), "list of an invalid thread": errorOf(d.Services("a b").List(d.ctx)),
		"start without a name": errorOf(d.Services("t").Start(d.ctx, sleeper(""))),
	} {
		d.wantCode(what, err, schemas.CodeInvalidArgument)
	}
	for what, err := range map[string]error{
		"get": errorOf(d.Services("t").Get(d.ctx, "none")), "logs": errorOf(d.Services("t").Logs(d.ctx, "none", 1)),
		"stop": errorOf(d.Services("t").Stop(d.ctx, "none")),
	} {
		d.wantCode(what+" of a service that does not exist", err, schemas.CodeNotFound)
	}
}
