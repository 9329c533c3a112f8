package processor_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/internal/membership"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

// equal fails the test unless got is want. what names the value.
func equal[T comparable](tb testing.TB, what string, got, want T) {
	tb.Helper()
	if got != want {
		tb.Errorf("%s = %v, want %v", what, got, want)
	}
}

// wantFields fails the test for each field that is set in want and differs in got, a T or a *T. Of errors it compares the codes.
func wantFields[T any](tb testing.TB, got any, want T) {
	tb.Helper()
	g, w := reflect.Indirect(reflect.ValueOf(got)), reflect.ValueOf(want)
	if !g.IsValid() {
		tb.Fatalf("got nothing, want %+v", want)
	}
	for i := range w.NumField() {
		if w.Field(i).IsZero() {
			continue
		}
		name, a, b := w.Type().Field(i).Name, g.Field(i).Interface(), w.Field(i).Interface()
		if e, ok := b.(*schemas.Error); ok {
			if have := a.(*schemas.Error); have == nil || have.Code != e.Code {
				tb.Errorf("%s = %v, want code %s", name, a, e.Code)
			}
		} else if !reflect.DeepEqual(a, b) {
			tb.Errorf("%s = %v, want %v (all: %+v)", name, a, b, got)
		}
	}
}

// errorOf returns the error of a call with two results.
func errorOf[T any](_ T, err error) error { return err }

// wantMessage fails the test unless an error's message holds a text.
func wantMessage(tb testing.TB, err *schemas.Error, text string) {
	tb.Helper()
	if err == nil || !strings.Contains(err.Message, text) {
		tb.Fatalf("error = %v, want %q in its message", err, text)
	}
}

// failed is a result of which only the code of its error counts.
func failed(code schemas.Code) schemas.Result { return schemas.Result{Error: coded(code)} }

// coded is an error of which only the code counts.
func coded(code schemas.Code) *schemas.Error { return &schemas.Error{Code: code} }

// cell is a NATS server with the cell's streams.
type cell struct {
	history
	begun  map[string][]string // the incarnations by worker, as their data folders keep them
	server *embedded.Server
	dir    string
	next   *testProvider // for the next worker; nil for a new one
	leases time.Duration // the TTL of the leases of the next workers; zero for that of topology
}

func newCell(t testing.TB) *cell {
	t.Helper()
	c := &cell{history: history{t: t, ctx: testkit.Context(t)}, dir: t.TempDir()}
	var err error
	c.server, err = embedded.Start(embedded.Config{Dir: filepath.Join(c.dir, "nats"), StoreBytes: 16 << 30})
	c.must(err)
	t.Cleanup(c.server.Close)
	c.conn = c.connect()
	return c
}

// newRig starts a cell with the worker w1.
func newRig(t testing.TB, edit ...func(*processor.Config)) (*cell, *rig) {
	t.Helper()
	c := newCell(t)
	return c, c.worker("w1", edit...)
}

// connection is a connection with the views of a caller and of a worker.
type connection struct {
	*events.Conn
	*events.Caller
	*events.Worker
	*events.Records
	*events.Logs
	*events.SessionStore
	*events.Roster
}

// Send sends a command as a client does.
func (c *connection) Send(ctx context.Context, tenant string, cmd *schemas.Command) (*events.Call, error) {
	call, err := c.NewCall(tenant, cmd)
	if err == nil {
		err = call.Send(ctx)
	}
	return call, err
}

// topology is that of a cell. Its leases outlast what a busy machine does not do: [cell.lapse] ends one.
func topology() events.Topology {
	return events.Topology{Partitions: 1, LeaseTTL: testkit.Timeout, Room: 2 << 30}
}

func (c *cell) connect() *connection {
	c.t.Helper()
	conn, err := events.Connect(events.Options{InProcess: c.server})
	c.must(err)
	c.t.Cleanup(conn.Close)
	wanted := topology()
	wanted.LeaseTTL = cmp.Or(c.leases, wanted.LeaseTTL)
	c.must(conn.Ensure(c.ctx, wanted))
	w := conn.Worker()
	return &connection{conn, conn.Caller(), w, w.Records, w.Logs, w.Sessions, w.Roster}
}

// rig is a worker in a cell, wired as in the program.
type rig struct {
	*processor.Worker
	cell     *cell
	conn     *connection
	provider *testProvider
	log      *lines

	mu    sync.Mutex
	boxes map[string]chan *schemas.Event

	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// worker starts a worker; edit changes its configuration. The worker stops at the end of the test.
func (c *cell) worker(id string, edit ...func(*processor.Config)) *rig {
	c.t.Helper()
	r := &rig{cell: c, conn: c.connect(), log: &lines{}, boxes: make(map[string]chan *schemas.Event), done: make(chan struct{})}
	if r.provider = c.next; r.provider == nil {
		r.provider = newTestProvider(c, testkit.ShortDir(c.t))
	}
	c.next = nil
	m, err := membership.Join(c.ctx, r.conn.Conn, processor.Config{
		Worker: id, Providers: map[string]sandbox.Provider{"local": r.provider}, DefaultProvider: "local",
		Workspaces: filepath.Join(c.dir, "workspaces"), Log: zerolog.New(r.log),
	}, c.begin(id), func(cfg *processor.Config) {
		cfg.Answer = r.answer
		for _, e := range edit {
			e(cfg)
		}
	})
	c.must(err)
	r.Worker = m.Worker
	c.must(r.Recover(c.ctx))
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	ready := make(chan struct{})
	go func() {
		defer close(r.done)
		r.err = m.Run(ctx, func() { close(ready) })
	}()
	select {
	case <-ready:
	case <-r.done:
		c.t.Fatal(r.err)
	}
	c.t.Cleanup(r.stop)
	return r
}

// expireIdle sweeps, and waits for the ends that it started.
func (r *rig) expireIdle(ctx context.Context) {
	for _, end := range r.Sessions().Sweep(ctx) {
		end.Wait(ctx)
	}
}

// stop shuts the worker down and waits for it.
func (r *rig) stop() {
	r.cancel()
	<-r.done
	_ = r.provider.Close()
}

// die cuts the worker off like a killed process: nothing it does from now on leaves it, and its lease lapses.
func (r *rig) die() {
	r.cell.t.Helper()
	r.conn.Close()
	r.cell.lapse(r.Config().Worker)
}

// begin is what the data folder of a worker does; see events.Lineage.
func (c *cell) begin(worker string) func(string) ([]string, error) {
	return func(incarnation string) ([]string, error) {
		earlier := c.begun[worker]
		if c.begun == nil {
			c.begun = make(map[string][]string)
		}
		c.begun[worker] = append([]string{incarnation}, earlier...)
		return earlier, nil
	}
}

// workers returns the registered workers.
func (c *cell) workers() []schemas.WorkerInfo {
	c.t.Helper()
	workers, err := c.conn.Workers(c.ctx)
	c.must(err)
	return workers
}

// takeLease takes the lease from a live worker.
func (c *cell) takeLease(worker string) *events.Lease {
	c.t.Helper()
	var holders []string
	for _, w := range c.workers() {
		holders = append(holders, w.Incarnation)
	}
	lease, err := c.conn.AcquireLease(c.ctx, worker, "another", holders, nil)
	c.must(err)
	return lease
}

// lapse ends a worker's lease at once, as its TTL would.
func (c *cell) lapse(worker string) {
	c.t.Helper()
	lease := c.takeLease(worker)
	ctx, cancel := context.WithCancel(c.ctx)
	cancel()
	c.must(lease.Run(ctx, func(context.Context) {}))
}

// answer receives what goes to a test's inbox, and sends the rest.
func (r *rig) answer(inbox string, ev *schemas.Event) error {
	r.mu.Lock()
	ch := r.boxes[inbox]
	r.mu.Unlock()
	if ch == nil {
		return r.conn.Answer(inbox, ev)
	}
	ch <- ev
	return nil
}

// inbox is an address whose answers the test itself receives.
func (r *rig) inbox() (string, chan *schemas.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name, ch := "test."+ulid.Make().String(), make(chan *schemas.Event, 64)
	r.boxes[name] = ch
	return name, ch
}

// command is a command for thread t.
func command(key string, e schemas.Exec) *schemas.Command {
	return &schemas.Command{SpecVersion: schemas.Version, Op: schemas.OpExec, Thread: "t", Key: key, Exec: &e}
}

func sh(script string) schemas.Exec { return schemas.Exec{Command: "sh", Args: []string{"-c", script}} }

// deliver gives a command to the worker, as its listener does.
func (r *rig) deliver(cmd *schemas.Command, durable bool, attempt int) (schemas.Verdict, chan *schemas.Event) {
	name, ch := r.inbox()
	d := schemas.Delivery{Tenant: schemas.DefaultTenant, Thread: cmd.Thread, Op: cmd.Op, Inbox: name, Durable: durable, Attempt: attempt}
	d.SetCommand(cmd)
	return r.HandleCommand(r.cell.ctx, d), ch
}

// wantAnswer gives a command to the worker, and fails the test unless the verdict and the end of the process are these.
func (r *rig) wantAnswer(cmd *schemas.Command, durable bool, attempt int, action schemas.Action, want schemas.Result) {
	r.cell.t.Helper()
	v, answers := r.deliver(cmd, durable, attempt)
	equal(r.cell.t, "action on "+cmd.Key, v.Action, action)
	wantFields(r.cell.t, r.cell.terminal(answers), want)
}

// send sends a command as a client does.
func (c *cell) send(cmd *schemas.Command) *events.Call {
	c.t.Helper()
	call, err := c.conn.Send(c.ctx, schemas.DefaultTenant, cmd)
	c.must(err)
	c.t.Cleanup(call.Close)
	return call
}

// start sends a command, and waits until it has printed these texts and its start is on record.
func (c *cell) start(cmd *schemas.Command, texts ...string) *events.Call {
	c.t.Helper()
	call := c.send(cmd)
	for _, s := range texts {
		c.output(processOf(cmd), s)
	}
	c.awaitType(processOf(cmd), schemas.TypeProcessStarted)
	return call
}

// exec sends a command and waits for its result.
func (c *cell) exec(cmd *schemas.Command) *schemas.Result {
	c.t.Helper()
	return c.end(c.send(cmd))
}

func (c *cell) end(call *events.Call) *schemas.Result {
	c.t.Helper()
	for {
		ev, err := call.Next(c.ctx)
		c.must(err)
		if ev.Type.Terminal() {
			return c.result(ev)
		}
	}
}

func (c *cell) result(ev *schemas.Event) *schemas.Result {
	c.t.Helper()
	var r schemas.Result
	c.must(ev.Decode(&r))
	return &r
}

// terminal reads answers until the end of a process.
func (c *cell) terminal(answers <-chan *schemas.Event) *schemas.Result {
	c.t.Helper()
	for {
		select {
		case ev := <-answers:
			if ev.Type.Terminal() {
				return c.result(ev)
			}
		case <-c.ctx.Done():
			c.t.Fatal("no answer reported the end of the process")
		}
	}
}

func processOf(cmd *schemas.Command) string {
	return schemas.ProcessID(schemas.DefaultTenant, cmd.Thread, cmd.Key)
}

// lines are a worker's log lines.
type lines struct {
	mu  sync.Mutex
	all []map[string]any
	raw bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var m map[string]any
	if err := json.Unmarshal(p, &m); err != nil {
		return 0, err
	}
	l.all = append(l.all, m)
	l.raw.Write(p)
	return len(p), nil
}

// of returns the lines of a message.
func (l *lines) of(message string) []map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []map[string]any
	for _, m := range l.all {
		if m["message"] == message {
			out = append(out, m)
		}
	}
	return out
}
