package node

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// outage is a cell whose server stops and starts in the same folder.
type outage struct {
	t      testing.TB
	ctx    context.Context
	dir    string
	server atomic.Pointer[embedded.Server]
	conn   *events.Conn // the callers'
	client *client.Client

	templates string        // the workers' folder; empty for none
	grace     time.Duration // of the workers; 0 for a short one
	onReady   func()        // is called when a worker is ready; nil for none
}

// shortLease is the lease TTL of these tests: short, for it expires in most of them, and long enough for a busy machine to renew it.
const shortLease = 3 * time.Second

func newOutage(t testing.TB) *outage {
	t.Helper()
	o := &outage{t: t, ctx: testkit.Context(t), dir: t.TempDir()}
	o.start()
	t.Cleanup(func() { o.server.Load().Close() })
	o.conn = o.connect(o)
	testkit.Must(t, o.conn.Ensure(o.ctx, events.Topology{Partitions: 1, LeaseTTL: shortLease}))
	var err error
	o.client, err = client.New(o.conn)
	testkit.Must(t, err)
	return o
}

// start starts the server.
func (o *outage) start() {
	o.t.Helper()
	s, err := embedded.Start(embedded.Config{Dir: filepath.Join(o.dir, "nats"), StoreBytes: 16 << 30})
	testkit.Must(o.t, err)
	o.server.Store(s)
}

func (o *outage) stop() { o.server.Load().Close() }

// InProcessConn connects to the server of this moment.
func (o *outage) InProcessConn() (net.Conn, error) { return o.server.Load().InProcessConn() }

func (o *outage) connect(to interface {
	InProcessConn() (net.Conn, error)
}) *events.Conn {
	o.t.Helper()
	conn, err := events.Connect(events.Options{InProcess: to})
	testkit.Must(o.t, err)
	o.t.Cleanup(conn.Close)
	return conn
}

// outageWorker is a worker in an outage.
type outageWorker struct {
	o     *outage
	id    string
	log   *lineWaiter
	end   context.CancelFunc
	ready chan struct{}
	ended chan struct{}
	err   error
}

// worker starts a worker on a connection, and waits until it accepts commands.
func (o *outage) worker(id string, conn *events.Conn) *outageWorker {
	o.t.Helper()
	w := o.begins(id, conn, nil)
	w.awaitReady()
	return w
}

// begins starts a worker on a connection. begin is Config.Begin.
func (o *outage) begins(id string, conn *events.Conn, begin func(string) ([]string, error)) *outageWorker {
	o.t.Helper()
	dir := testkit.ShortDir(o.t)
	w := &outageWorker{o: o, id: id, log: newLineWaiter(), ready: make(chan struct{}), ended: make(chan struct{})}
	n := New(Config{
		Worker: id, Begin: begin, Templates: o.templates, Provider: schemas.ProviderLocal, Allowed: []string{schemas.ProviderLocal}, RunFolder: filepath.Join(dir, "run"), Workspaces: filepath.Join(dir, "ws"),
		Topology: events.Topology{Partitions: 1, LeaseTTL: shortLease}, Grace: cmp.Or(o.grace, 200*time.Millisecond), Log: zerolog.New(w.log).Level(zerolog.InfoLevel),
	}, conn)
	ctx, cancel := context.WithCancel(o.ctx)
	w.end = cancel
	go func() {
		defer close(w.ended)
		w.err = n.Run(ctx, func() {
			if o.onReady != nil {
				o.onReady()
			}
			close(w.ready)
		})
	}()
	o.t.Cleanup(func() {
		cancel()
		<-w.ended
	})
	return w
}

func (w *outageWorker) awaitReady() {
	w.o.t.Helper()
	select {
	case <-w.ready:
	case <-w.ended:
		w.o.t.Fatal(w.err)
	}
}

// lineWaiter is a log that a test waits for.
type lineWaiter struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{}
	seen    func(line string) // called with each line before Write returns; nil for none
}

func newLineWaiter() *lineWaiter { return &lineWaiter{changed: make(chan struct{})} }

// Write adds lines.
func (l *lineWaiter) Write(p []byte) (int, error) {
	l.mu.Lock()
	close(l.changed)
	l.changed = make(chan struct{})
	seen := l.seen
	n, err := l.text.Write(p)
	l.mu.Unlock()
	if seen != nil {
		seen(string(p))
	}
	return n, err
}

func (l *lineWaiter) onLine(seen func(line string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = seen
}

func (l *lineWaiter) state() (string, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String(), l.changed
}

// await waits until the worker has logged a text this often.
func (w *outageWorker) await(text string, times int) {
	w.o.t.Helper()
	for {
		log, changed := w.log.state()
		if strings.Count(log, text) >= times {
			return
		}
		select {
		case <-changed:
		case <-w.ended:
			w.o.t.Fatalf("the worker ended with error %v before it logged %q %d times: %s", w.err, text, times, log)
		case <-w.o.ctx.Done():
			w.o.t.Fatalf("log = %s, want %d times %q", log, times, text)
		}
	}
}

// begin starts a command and returns when it has printed something.
func (o *outage) begin(thread, key, script string) *client.Execution {
	o.t.Helper()
	x, err := o.client.ExecStream(o.ctx, client.Request{Thread: thread, Key: key, Command: "sh", Args: []string{"-c", script}})
	testkit.Must(o.t, err)
	o.t.Cleanup(x.Close)
	for e, err := range x.Events(o.ctx) {
		testkit.Must(o.t, err)
		if e.Chunk != nil {
			return x
		}
	}
	o.t.Fatalf("%s printed nothing", key)
	return nil
}

// result waits for the end of a process, by its record.
func (o *outage) result(thread, process string) *schemas.Result {
	o.t.Helper()
	feed, err := o.conn.Caller().FollowEvents(events.Filter{Thread: thread, Process: process}, 1)
	testkit.Must(o.t, err)
	defer feed.Close()
	var r *schemas.Result
	look := func(ev *schemas.Event) error {
		if ev.Type.Terminal() {
			r = &schemas.Result{}
			return ev.Decode(r)
		}
		return nil
	}
	testkit.Must(o.t, feed.CatchUp(o.ctx, look))
	for r == nil {
		testkit.Must(o.t, feed.Next(o.ctx, look))
	}
	return r
}

// Promises 15: a process outlives an outage of NATS that is longer than the worker's lease, with its output and its true end.
func TestProcessOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	w := o.worker("w1", o.connect(o))
	go1 := filepath.Join(t.TempDir(), "go1")
	x := o.begin("t1", "k", "echo ran >>runs; echo on; until [ -e "+go1+" ]; do echo tick; sleep 0.1; done; echo end; cat runs; exit 7")
	for round := range 2 {
		o.stop()
		w.await("lease lost", round+1)
		o.start()
		w.await("worker rejoined", round+1)
	}
	testkit.Must(t, os.WriteFile(go1, nil, 0o600))
	r := o.result("t1", x.Process())
	testkit.Equal(t, "end", []any{r.Reason, r.ExitCode, r.Error}, []any{schemas.ReasonExited, 7, (*schemas.Error)(nil)})
	var stored strings.Builder
	testkit.Must(t, o.client.Logs(o.ctx, client.LogQuery{Thread: "t1", Process: x.Process()}, func(k schemas.Chunk) error {
		stored.Write(k.Data)
		return nil
	}))
	ticks := strings.TrimSuffix(strings.TrimPrefix(stored.String(), "on\n"), "end\nran\n")
	if strings.ReplaceAll(ticks, "tick\n", "") != "" || int64(stored.Len()) != r.StdoutBytes || !strings.HasPrefix(stored.String(), r.Stdout) {
		t.Errorf("stored output = %q, want the %d bytes that were printed, once", stored.String(), r.StdoutBytes)
	}
	// The thread goes on in the same workspace.
	after, err := o.client.Exec(o.ctx, client.Request{Thread: "t1", Command: "cat", Args: []string{"runs"}})
	testkit.Must(t, err)
	testkit.Equal(t, "runs", after.Stdout, "ran\n")
}

// pid reads the process id that a script has written to a file.
func (o *outage) pid(file string) int {
	o.t.Helper()
	body, err := os.ReadFile(file)
	testkit.Must(o.t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(body)))
	testkit.Must(o.t, err)
	return pid
}

func wantGone(t *testing.T, pid int) {
	t.Helper()
	if testkit.Alive(pid) {
		t.Errorf("process %d is still there, want it ended", pid)
	}
}

// Promises 15: a shutdown does not wait for NATS, and leaves no process behind.
func TestShutdownDuringAnOutage(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		name string
		wait func(w *outageWorker)
	}{
		{"before the lease is lost", func(*outageWorker) {}},
		{"after the lease is lost", func(w *outageWorker) { w.await("lease lost", 1) }},
	} {
		t.Run(v.name, func(t *testing.T) {
			o := newOutage(t)
			w := o.worker("w1", o.connect(o))
			pid := filepath.Join(t.TempDir(), "pid")
			o.begin("t1", "k", "trap '' TERM; echo $$ >"+pid+"; echo on; while :; do sleep 0.1; done")
			o.stop()
			v.wait(w)
			w.end()
			select {
			case <-w.ended:
			case <-o.ctx.Done():
				t.Fatal("the worker still runs, want it to end")
			}
			testkit.Must(t, w.err)
			wantGone(t, o.pid(pid))
		})
	}
}

// Promises 15: a worker that is stopped when NATS is back, and that does not accept commands again yet, records how its processes end.
func TestShutdownRightAfterAnOutageRecordsTheEnds(t *testing.T) {
	t.Parallel()
	for _, v := range []struct{ name, at string }{
		{"before it has a lease", "lease lost"},
		{"while it recovers", "sandbox_reattached"},
	} {
		t.Run(v.name, func(t *testing.T) {
			o := newOutage(t)
			o.grace = time.Minute
			g := &gate{o: o}
			w := o.worker("w1", o.connect(g))
			pid := filepath.Join(t.TempDir(), "pid")
			x := o.begin("t1", "k", "echo $$ >"+pid+"; echo on; while :; do sleep 0.1; done")
			w.log.onLine(func(line string) {
				if strings.Contains(line, v.at) {
					w.end()
				}
				if strings.Contains(line, "lease lost") {
					g.set(false)
				}
			})
			g.set(true)
			<-w.ended
			testkit.Must(t, w.err)
			wantGone(t, o.pid(pid))
			r := o.result("t1", x.Process())
			testkit.Equal(t, "end", []any{r.Reason, r.ExitCode}, []any{schemas.ReasonKilled, 143})
		})
	}
}

// gate is a way to the server that a test closes.
type gate struct {
	o *outage

	mu     sync.Mutex
	closed bool
	conns  []net.Conn
}

// InProcessConn connects while the gate is open.
func (g *gate) InProcessConn() (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errors.New("the gate is closed")
	}
	c, err := g.o.InProcessConn()
	g.conns = append(g.conns, c)
	return c, err
}

func (g *gate) set(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = closed
	for _, c := range g.conns {
		_ = c.Close()
	}
	g.conns = nil
}

// Promises 18: a worker that has just started cannot know whether NATS was away. It declares no worker dead that is on its way back.
func TestFreshWorkerAwaitsTheReturnOfOthers(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	g := &gate{o: o}
	w1 := o.worker("w1", o.connect(g))
	go1 := filepath.Join(t.TempDir(), "go1")
	x := o.begin("t1", "k", "echo on; until [ -e "+go1+" ]; do sleep 0.1; done; exit 7")
	g.set(true)
	w1.await("lease lost", 1)
	o.worker("w2", o.connect(o))
	second := make(chan *schemas.Result, 1)
	go func() {
		r, err := o.client.Exec(o.ctx, client.Request{Thread: "t1", Command: "echo", Args: []string{"two"}})
		testkit.Must(t, err)
		second <- r
	}()
	g.set(false)
	w1.await("worker rejoined", 1)
	testkit.Must(t, os.WriteFile(go1, nil, 0o600))
	r := o.result("t1", x.Process())
	testkit.Equal(t, "end", []any{r.Reason, r.ExitCode}, []any{schemas.ReasonExited, 7})
	testkit.Equal(t, "worker of the second command", (<-second).Worker, "w1")
}

// Promises 15: a second outage, while the worker takes up what it had left at the first, ended its sandboxes.
func TestOutageDuringTheRecoveryEndsNothing(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	g := &gate{o: o}
	w := o.worker("w1", o.connect(g))
	go1 := filepath.Join(t.TempDir(), "go1")
	x := o.begin("t1", "k", "echo on; until [ -e "+go1+" ]; do sleep 0.1; done; exit 7")
	g.set(true)
	w.await("lease lost", 1)
	away := make(chan struct{})
	var once sync.Once
	w.log.onLine(func(line string) {
		if strings.Contains(line, "sandbox_reattached") {
			once.Do(func() {
				g.set(true)
				close(away)
			})
		}
	})
	g.set(false)
	<-away
	for alive := true; alive; {
		var err error
		alive, err = o.conn.Worker().Roster.LeaseAlive(o.ctx, "w1")
		testkit.Must(t, err)
	}
	g.set(false)
	w.await("lease lost", 2)
	w.await("worker rejoined", 1)
	testkit.Must(t, os.WriteFile(go1, nil, 0o600))
	r := o.result("t1", x.Process())
	testkit.Equal(t, "end", []any{r.Reason, r.ExitCode}, []any{schemas.ReasonExited, 7})
}

// Promises 15: a thread that another worker has claimed during the outage is given up: its sandbox ends, and nothing is published.
func TestThreadClaimedDuringAnOutageIsGivenUp(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	g := &gate{o: o}
	w1 := o.worker("w1", o.connect(g))
	pid := filepath.Join(t.TempDir(), "pid")
	x := o.begin("t1", "k", "echo $$ >"+pid+"; while :; do echo tick; sleep 0.1; done")
	g.set(true)
	w1.await("lease lost", 1)
	if err := syscall.Kill(o.pid(pid), 0); err != nil {
		t.Fatalf("the process ended with the lease: %v", err)
	}
	o.worker("w2", o.connect(o))
	r, err := o.client.Exec(o.ctx, client.Request{Thread: "t1", Command: "echo", Args: []string{"two"}})
	testkit.Must(t, err)
	testkit.Equal(t, "worker and epoch", []any{r.Worker, r.Epoch}, []any{"w2", uint64(2)})
	lost := o.result("t1", x.Process())
	testkit.Equal(t, "reason", lost.Reason, schemas.ReasonLost)
	last, err := o.conn.Caller().Last(o.ctx, schemas.DefaultTenant, "t1", x.Process())
	testkit.Must(t, err)

	g.set(false)
	w1.await("worker rejoined", 1)
	w1.await("sandbox_stale", 1)
	for syscall.Kill(o.pid(pid), 0) == nil && o.ctx.Err() == nil {
		runtime.Gosched()
	}
	wantGone(t, o.pid(pid))
	_, err = o.conn.Caller().ReadEvents(o.ctx, events.Filter{Thread: "t1"}, last.Seq+1, func(ev *schemas.Event) error {
		if ev.Source == "w1" && ev.Time.After(last.Time) { // what happened before may be reported late
			t.Errorf("the worker that lost the thread published %s: %s", ev.Type, ev.Data)
		}
		return nil
	})
	testkit.Must(t, err)
}
