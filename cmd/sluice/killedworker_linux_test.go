package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// open is what a user has in thread t1 of a worker that is about to be killed: a terminal, a service, and a forwarded port with a
// connection.
type open struct {
	*fleet
	home     *cli
	terminal *screen
	service  schemas.ServiceSpec
	pids     string // the file with the process ids of the service
	forward  *spawned
	address  string // of the forwarded port
	conn     net.Conn
	owner    string
}

func openAll(f *fleet) *open {
	f.t.Helper()
	c := newCLI(f.t)
	c.env["SLUICE_NATS_TOKEN"] = fleetToken
	o := &open{fleet: f, home: c, pids: filepath.Join(f.t.TempDir(), "pids")}
	nats := []string{"--nats", f.server.URL()}
	o.terminal = c.onScreen(append(nats, execArgs("-it", "--", "bash", "-c", showsSizes)...)...)
	o.terminal.await("ready")
	o.service = schemas.ServiceSpec{Command: "sh", Args: []string{"-c", "echo $$ >>" + o.pids + "; exec sleep 300"}}
	o.startService()
	o.awaitInstances(1)
	o.owner = f.session("t1").Owner

	l, err := net.Listen("tcp", "127.0.0.1:0") // provider local has the network of this machine
	f.must(err)
	f.t.Cleanup(func() { _ = l.Close() })
	go echo(l)
	_, port, err := net.SplitHostPort(l.Addr().String())
	f.must(err)
	o.forward = c.spawn(append(nats, "port-forward", "t1", port+":0")...)
	o.address, _, _ = strings.Cut(o.forward.line(), " ")
	o.conn = o.connect()
	f.must(o.answers(o.conn))
	return o
}

func echo(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(conn, conn) // it ends with its client
			_ = conn.Close()
		}()
	}
}

func (o *open) startService() {
	o.t.Helper()
	s, err := o.client.Services("t1").Start(o.ctx, client.ServiceRequest{Name: "web", Provider: schemas.ProviderLocal, ServiceSpec: o.service})
	o.must(err)
	testkit.Equal(o.t, "state", s.State, schemas.ServiceRunning)
}

func (o *open) connect() net.Conn {
	o.t.Helper()
	conn, err := net.Dial("tcp", o.address)
	o.must(err)
	o.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// answers returns nil when the other end repeats a line.
func (o *open) answers(conn net.Conn) error {
	o.must(conn.SetDeadline(time.Now().Add(testkit.Timeout))) // of this wait: the connection may be minutes old
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil {
		testkit.Equal(o.t, "echo", line, "hello\n")
	}
	return err
}

// wantCut waits until a connection has ended otherwise than by its deadline.
func (o *open) wantCut(conn net.Conn) {
	o.t.Helper()
	if err := o.answers(conn); err == nil {
		_, err = conn.Read(make([]byte, 1))
		o.t.Errorf("the connection goes on: %v", err)
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		o.t.Error("the connection was not cut")
	}
}

func (o *open) wantService(state schemas.ServiceState, code schemas.Code) {
	o.t.Helper()
	s, err := o.client.Services("t1").Get(o.ctx, "web")
	o.must(err)
	got := schemas.Code("")
	if s.Error != nil {
		got = s.Error.Code
	}
	testkit.Equal(o.t, "state and error of the service", fmt.Sprint(s.State, " ", got), fmt.Sprint(state, " ", code))
}

// wantStates checks the states that the service has entered so far.
func (o *open) wantStates(want ...string) {
	o.t.Helper()
	var got []string
	_, err := o.fleet.conn.Caller().ReadEvents(o.ctx, events.Filter{Thread: "t1"}, 1, func(ev *schemas.Event) error {
		if state, ok := strings.CutPrefix(string(ev.Type), "service."); ok {
			got = append(got, state)
		}
		return nil
	})
	o.must(err)
	testkit.Equal(o.t, "states", got, want)
}

// instances are the process ids of the service that run.
func (o *open) instances() (pids []int) {
	o.t.Helper()
	body, err := os.ReadFile(o.pids)
	if !errors.Is(err, os.ErrNotExist) {
		o.must(err)
	}
	for field := range strings.FieldsSeq(string(body)) {
		pid, err := strconv.Atoi(field)
		o.must(err)
		if testkit.Alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (o *open) awaitInstances(n int) {
	o.t.Helper()
	for len(o.instances()) < n {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-o.ctx.Done():
			o.t.Fatalf("processes %v run, want %d", o.instances(), n)
		}
	}
}

// end stops the forwarding. Its standard error has these texts.
func (o *open) end(texts ...string) {
	o.t.Helper()
	o.forward.signal(syscall.SIGINT)
	o.forward.outcome().check(o.t).exits(0).reports(texts...)
}

// Processes 4: a worker that is killed under a terminal, a service and a forwarded port, and comes back: keys wait, the service is the
// same process, the connection is cut, and the next one is made.
func TestKilledWorkerComesBack(t *testing.T) {
	t.Parallel()
	o := openAll(newFleet(t, nil, "w1"))
	before := o.instances()
	o.workers["w1"].kill()
	o.terminal.press("one\r")
	o.wantCut(o.connect()) // there is no worker
	o.wantService(schemas.ServiceRunning, "")
	testkit.Equal(t, "processes while the worker is away", o.instances(), before)

	o.start("w1")
	o.terminal.await("got one")
	o.startService() // it joins
	testkit.Equal(t, "processes", o.instances(), before)
	o.wantStates("starting", "running")
	o.must(o.answers(o.connect()))
	o.wantCut(o.conn)
	o.terminal.press("end\r")
	o.terminal.await("got end")
	o.terminal.wantCooked(7)
	o.end("no worker is running", "is gone")
}

// Processes 4: while no worker is there, the detach keys still leave the terminal.
func TestTerminalWithoutAWorkerIsLeft(t *testing.T) {
	f := newFleet(t, nil, "w1")
	s := f.homes["w1"].onScreen(append([]string{"--nats", f.server.URL()}, execArgs("-it", "--", "bash", "-c", showsSizes)...)...)
	s.await("ready")
	f.workers["w1"].kill()
	s.press("one\r")
	s.press("\x10\x11")
	s.wantCooked(0)
}

// Processes 4: a worker is killed under all three, and another worker takes the thread over: the terminal ends as lost, the service has failed as lost and is not
// started again by itself, and forwarded connections are refused. A process that the killed worker left ends when it comes back.
func TestKilledWorkerIsReplaced(t *testing.T) {
	t.Parallel()
	o := openAll(newExpiringFleet(t, nil, "w1", "w2"))
	orphan := o.instances()
	o.workers[o.owner].kill()
	o.awaitEvent("t1", "", "service.failed")
	o.wantService(schemas.ServiceFailed, schemas.CodeLost)
	o.wantStates("starting", "running", "failed")
	testkit.Equal(t, "processes of the lost service", o.instances(), orphan)
	o.terminal.wantCooked(schemas.ExitSluiceFailed)
	o.terminal.awaitStderr("lost")
	o.wantCut(o.connect())
	o.wantCut(o.conn)

	o.startService()
	if owner := o.session("t1").Owner; owner == o.owner {
		t.Errorf("the owner is still %s", owner)
	}
	o.awaitInstances(2) // a new one, and the one that the killed worker left
	o.must(o.answers(o.connect()))
	o.start(o.owner)
	waitGone(t, orphan)
	testkit.Equal(t, "processes at the end", len(o.instances()), 1)
	o.wantStates("starting", "running", "failed", "starting", "running")
	o.end("not_found", "is gone")
}
