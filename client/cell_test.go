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

	"github.com/oklog/ulid/v2"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/local"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patient bounds every wait of a test. Nothing is decided by it: a test that comes near it has failed.
const patient = 45 * time.Second

// cell is a server with a worker, and what a caller needs.
type cell struct {
	server *embedded.Server
	dir    string
	undo   []func()
}

// start makes a cell. Examples use it too, which have no testing.T.
func start() (*cell, error) {
	dir, err := os.MkdirTemp("", "sl") // short: it holds unix sockets
	if err != nil {
		return nil, err
	}
	c := &cell{dir: dir, undo: []func(){func() { _ = os.RemoveAll(dir) }}}
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

// conn is a connection that lasts as long as the cell.
func (c *cell) conn() (*events.Conn, error) {
	conn, err := events.Connect(events.Options{InProcess: c.server})
	if err != nil {
		return nil, err
	}
	c.undo = append(c.undo, conn.Close)
	return conn, conn.Ensure(context.Background(), events.Topology{Partitions: 1}.Fit(2<<30))
}

// worker runs a worker, wired as the program does it, until stop is called.
func (c *cell) worker(id string) (stop func(), err error) {
	conn, err := c.conn()
	if err != nil {
		return nil, err
	}
	provider, err := local.New(local.Config{RunDir: filepath.Join(c.dir, id), Warn: func(string) {}})
	if err != nil {
		return nil, err
	}
	templates, err := template.New("")
	if err != nil {
		return nil, err
	}
	chains, err := hooks.New(hooks.Config{Worker: id, Record: func(context.Context, *schemas.Event) {}, Messages: conn})
	if err != nil {
		return nil, err
	}
	inlet := conn.NewInlet(id)
	incarnation := ulid.Make().String()
	w, err := processor.New(processor.Config{
		Worker: id, Incarnation: incarnation, Records: conn, Sessions: conn, Threads: inlet, Roster: conn, History: conn,
		OpenOutput: func(p schemas.ProcessRef, after *schemas.LogRange, stored func(schemas.Stream, int64)) processor.Output {
			return conn.ResumeLog(p, after, stored)
		},
		Replay: func(ctx context.Context, p schemas.ProcessRef, fn func(schemas.Stream, int64, []byte)) (*schemas.LogRange, error) {
			return conn.Replay(ctx, p, func(k schemas.Chunk) error {
				fn(k.Stream, k.Offset, k.Data)
				return nil
			})
		},
		Answer: conn.Answer, MaxRecord: conn.MaxPayload(), Providers: map[string]sandbox.Provider{"local": provider}, DefaultProvider: "local",
		Workspaces: filepath.Join(c.dir, "workspaces"), StopGrace: 200 * time.Millisecond,
		Templates: templates, Hooks: chains,
	})
	if err != nil {
		return nil, err
	}
	lease, err := conn.AcquireLease(context.Background(), id, incarnation)
	if err != nil {
		return nil, err
	}
	if err := w.Recover(context.Background()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	leaseCtx, endLease := context.WithCancel(context.Background())
	group, ctx := errgroup.WithContext(ctx)
	ready := make(chan struct{})
	group.Go(func() error {
		return lease.Run(leaseCtx, incarnation, func(ctx context.Context) { _ = w.Register(ctx) })
	})
	group.Go(func() error { return inlet.Run(ctx, w, func() { close(ready) }) })
	group.Go(func() error {
		defer endLease()
		return w.Run(ctx)
	})
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		_ = group.Wait()
		_ = chains.Close(context.Background())
		_ = provider.Close()
	}
	c.undo = append(c.undo, stop)
	select {
	case <-ready:
		return stop, nil
	case <-ctx.Done():
		return nil, group.Wait()
	}
}

// example is a client of a cell with a worker, for the examples.
func example() (*client.Client, func()) {
	c, err := start()
	if err != nil {
		panic(err)
	}
	if _, err := c.worker("w1"); err != nil {
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

// desk is a caller's place in a test.
type desk struct {
	*client.Client
	t    *testing.T
	ctx  context.Context
	cell *cell
}

func newDesk(t *testing.T, workers ...string) *desk {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	t.Cleanup(cancel)
	d := &desk{t: t, ctx: ctx}
	var err error
	d.cell, err = start()
	d.must(err)
	t.Cleanup(d.cell.close)
	for _, id := range workers {
		_, err := d.cell.worker(id)
		d.must(err)
	}
	conn, err := d.cell.conn()
	d.must(err)
	d.Client, err = client.New(conn)
	d.must(err)
	return d
}

func (d *desk) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// sh is a request for a shell script in thread t.
func sh(script string) client.Request {
	return client.Request{Thread: "t", Command: "sh", Args: []string{"-c", script}}
}

// printed follows a process's output until it holds a text.
func (d *desk) printed(process, text string) {
	d.t.Helper()
	var b bytes.Buffer
	err := d.Logs(d.ctx, client.LogQuery{Process: process, Thread: "t", Follow: true}, func(k schemas.Chunk) error {
		b.Write(k.Data)
		if strings.Contains(b.String(), text) {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		d.t.Fatalf("%q was not printed, but %q: %v", text, b.String(), err)
	}
}

var errEnough = errors.New("enough")
