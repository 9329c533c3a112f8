package client_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/internal/membership"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/local"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

// cell is a server with workers and connections.
type cell struct {
	server *embedded.Server
	dir    string
	undo   []func()

	topology events.Topology
}

// start starts a cell. The examples use it too, without a testing.T.
func start() (*cell, error) {
	dir, err := os.MkdirTemp("", "sl") // short, for unix sockets
	if err != nil {
		return nil, err
	}
	c := &cell{dir: dir, topology: events.Topology{Partitions: 1, LeaseTTL: testkit.Timeout, Room: 2 << 30}, undo: []func(){func() { _ = os.RemoveAll(dir) }}}
	if c.server, err = embedded.Start(embedded.Config{Dir: filepath.Join(dir, "nats"), StoreBytes: 16 << 30}); err != nil {
		c.close()
		return nil, err
	}
	c.undo = append(c.undo, c.server.Close)
	return c, nil
}

func (c *cell) close() {
	for i := len(c.undo) - 1; i >= 0; i-- {
		c.undo[i]()
	}
}

// conn connects until the cell closes.
func (c *cell) conn() (*events.Conn, error) {
	conn, err := events.Connect(events.Options{InProcess: c.server})
	if err != nil {
		return nil, err
	}
	c.undo = append(c.undo, conn.Close)
	return conn, conn.Ensure(context.Background(), c.topology)
}

// worker runs a worker until the cell closes.
func (c *cell) worker(id string) error {
	conn, err := c.conn()
	if err != nil {
		return err
	}
	provider, err := local.New(local.Config{RunDir: filepath.Join(c.dir, id), Warn: func(string) {}})
	if err != nil {
		return err
	}
	templates, err := template.New(template.Config{})
	if err != nil {
		return err
	}
	chains, err := hooks.New(hooks.Config{Worker: id, Record: func(context.Context, *schemas.Event) {}, Messages: conn.Worker().Messages})
	if err != nil {
		return err
	}
	member, err := membership.Join(context.Background(), conn, processor.Config{
		Worker: id, Providers: map[string]sandbox.Provider{"local": provider}, DefaultProvider: "local",
		Workspaces: filepath.Join(c.dir, "workspaces"), StopGrace: 200 * time.Millisecond,
		Templates: templates, Hooks: chains,
	}, nil, nil)
	if err != nil {
		return err
	}
	stop, err := member.Start(context.Background())
	if err != nil {
		return err
	}
	c.undo = append(c.undo, func() {
		_ = stop() // its error is that of the lease's release
		_ = chains.Close(context.Background())
		_ = provider.Close()
	})
	return nil
}

// example returns a client of a cell with a worker, for the examples.
func example() (*client.Client, func()) {
	c, err := start()
	if err != nil {
		panic(err)
	}
	if err := c.worker("w1"); err != nil {
		panic(err)
	}
	conn, err := c.conn()
	if err != nil {
		panic(err)
	}
	cl, err := client.New(conn)
	if err != nil {
		panic(err)
	}
	return cl, c.close
}

// caller is a client in a test.
type caller struct {
	*client.Client
	conn *events.Conn
	t    *testing.T
	ctx  context.Context
	cell *cell
}

// newCaller starts a cell with these workers, and a client.
func newCaller(t *testing.T, workers ...string) *caller {
	t.Helper()
	cell, err := start()
	testkit.Must(t, err)
	t.Cleanup(cell.close)
	for _, id := range workers {
		testkit.Must(t, cell.worker(id))
	}
	return callerOf(t, cell)
}

// callerOf returns a client of a cell.
func callerOf(t *testing.T, cell *cell) *caller {
	t.Helper()
	conn, err := cell.conn()
	testkit.Must(t, err)
	cl, err := client.New(conn)
	testkit.Must(t, err)
	return &caller{Client: cl, conn: conn, t: t, ctx: testkit.Context(t), cell: cell}
}

func (d *caller) must(err error) {
	d.t.Helper()
	testkit.Must(d.t, err)
}

// wantCode ends the test unless err has this code. what names the operation.
func (d *caller) wantCode(what string, err error, want schemas.Code) {
	d.t.Helper()
	if got := schemas.CodeOf(err); got != want {
		d.t.Fatalf("%s: code = %q, want %q (error: %v)", what, got, want, err)
	}
}

// equal fails the test unless got is want. what names the value.
func (d *caller) equal(what string, got, want any) {
	d.t.Helper()
	testkit.Equal(d.t, what, got, want)
}

// sh is a request to run a shell script in thread t.
func sh(script string) client.Request {
	return client.Request{Thread: "t", Command: "sh", Args: []string{"-c", script}}
}

// exec runs a command.
func (d *caller) exec(req client.Request) *schemas.Result {
	d.t.Helper()
	r, err := d.Exec(d.ctx, req)
	d.must(err)
	return r
}

// stream sends a command, and closes its stream after the test.
func (d *caller) stream(req client.Request) *client.Execution {
	d.t.Helper()
	x, err := d.ExecStream(d.ctx, req)
	d.must(err)
	d.t.Cleanup(x.Close)
	return x
}

// waitForEnd waits until a process has exited, and returns its result.
func (d *caller) waitForEnd(process string) *schemas.Result {
	d.t.Helper()
	d.waitForEvent(process, schemas.TypeProcessExited)
	r, err := d.process(process).Result(d.ctx)
	d.must(err)
	return r
}

// process returns a handle on a process, found by its id.
func (d *caller) process(id string) *client.Process {
	d.t.Helper()
	p, err := d.Process(d.ctx, "", id)
	d.must(err)
	return p
}

// errorOf returns the error of a call with two results.
func errorOf[T any](_ T, err error) error { return err }

// waitForOutput follows the output of a process until it contains a text.
func (d *caller) waitForOutput(process, text string) {
	d.t.Helper()
	var b bytes.Buffer
	err := d.Logs(d.ctx, client.LogQuery{Process: process, Thread: "t", Follow: true}, func(k schemas.Chunk) error {
		b.Write(k.Data)
		if strings.Contains(b.String(), text) {
			return errStop
		}
		return nil
	})
	if !errors.Is(err, errStop) {
		d.t.Fatalf("output = %q, want %q in it (error: %v)", b.String(), text, err)
	}
}

// errStop ends an iteration.
var errStop = errors.New("stop")
