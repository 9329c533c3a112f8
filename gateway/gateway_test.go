package gateway_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/gateway"
	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/internal/membership"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/internal/workspace"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/processor/policy"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/local"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

// machineToken is the machine's token of every gateway in these tests.
const machineToken = "FIRSTSTARTTOKENOFTHISMACHINE"

// smallTemplates has the template of the session API with limits that a test can reach.
const smallTemplates = `name: documents
limits: {workspace: 3MB, workspace_files: 5, file: 2MB}
policy: {name: documents}
`

// web is a gateway over a cell with one worker.
type web struct {
	*client.Client
	t    testing.TB
	ctx  context.Context
	conn *events.Conn
	http *http.Client
	url  string
	log  *logged
	stop func() // begins the gateway's end

	stopWorker func() error
}

// logged is what a gateway has logged.
type logged struct {
	mu    sync.Mutex
	text  strings.Builder
	grown chan struct{} // has one when a line was added
}

// Write adds a line.
func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.grown <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

// String returns all lines.
func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newWeb starts a gateway. change changes its configuration, and may be nil.
func newWeb(t *testing.T, change func(*gateway.Config)) *web {
	t.Helper()
	return newWebUntil(testkit.Context(t), t, events.Topology{Partitions: 1}, change)
}

// newWebOn is newWeb on streams of these sizes.
func newWebOn(t *testing.T, streams events.Topology, change func(*gateway.Config)) *web {
	t.Helper()
	return newWebUntil(testkit.Context(t), t, streams, change)
}

// newWebUntil starts a gateway on streams of these sizes, whose requests end with a context.
func newWebUntil(ctx context.Context, t testing.TB, streams events.Topology, change func(*gateway.Config)) *web {
	t.Helper()
	dir := testkit.ShortDir(t)
	w := &web{t: t, ctx: ctx, log: &logged{grown: make(chan struct{}, 1)}}
	w.conn, w.stopWorker = startCell(t, ctx, dir, streams)
	var err error
	w.Client, err = client.New(w.conn)
	testkit.Must(t, err)
	cfg := gateway.Config{Client: w.Client, MachineToken: machineToken, Log: zerolog.New(w.log)}
	if change != nil {
		change(&cfg)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	w.url = "http://" + l.Addr().String()
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	ended := make(chan error, 1)
	go func() { ended <- gateway.New(cfg).Run(running, l) }()
	transport := &http.Transport{}
	w.http = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
		testkit.Must(t, <-ended)
		if t.Failed() {
			t.Logf("the gateway logged:\n%s", w.log)
		}
	})
	return w
}

// waitForLog waits until the gateway has logged a line with a text.
func (w *web) waitForLog(text string) {
	w.t.Helper()
	for !strings.Contains(w.log.String(), text) {
		select {
		case <-w.log.grown:
		case <-w.ctx.Done():
			w.t.Fatalf("the gateway did not log %q", text)
		}
	}
}

// startCell starts a server and a worker, and returns a connection to them. stop stops the worker.
func startCell(t testing.TB, ctx context.Context, dir string, streams events.Topology) (conn *events.Conn, stop func() error) {
	t.Helper()
	streams.LeaseTTL = testkit.Timeout // a busy machine does not renew it in time
	server, err := embedded.Start(embedded.Config{Dir: filepath.Join(dir, "nats"), StoreBytes: 16 << 30})
	testkit.Must(t, err)
	t.Cleanup(server.Close)
	connect := func() *events.Conn {
		conn, err := events.Connect(events.Options{InProcess: server})
		testkit.Must(t, err)
		t.Cleanup(conn.Close)
		return conn
	}
	own := connect()
	conn = connect()
	streams.Room = 2 << 30
	testkit.Must(t, own.Ensure(ctx, streams))
	provider, err := local.New(local.Config{RunDir: filepath.Join(dir, "run"), Warn: func(string) {}})
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, provider.Close()) })
	folder := filepath.Join(dir, "templates")
	testkit.Must(t, os.Mkdir(folder, 0o700))
	testkit.Must(t, os.WriteFile(filepath.Join(folder, "documents.yaml"), []byte(smallTemplates), 0o600))
	stored := "name: stored\nsync:\n  location: file://" + dir + "/store/{tenant}/{thread}\n"
	testkit.Must(t, os.WriteFile(filepath.Join(folder, "stored.yaml"), []byte(stored), 0o600))
	templates, err := template.New(template.Config{Dir: folder})
	testkit.Must(t, err)
	testkit.Must(t, own.Worker().Roster.SaveTemplates(ctx, templates.List()))
	chains, err := hooks.New(hooks.Config{
		Worker: "w1", Record: func(context.Context, *schemas.Event) {}, Messages: own.Worker().Messages, Workspace: workspace.New(workspace.Config{}),
	})
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, chains.Close(context.WithoutCancel(ctx))) })
	member, err := membership.Join(ctx, own, processor.Config{
		Worker: "w1", Providers: map[string]sandbox.Provider{"local": provider}, DefaultProvider: "local", Policy: policy.New(),
		Workspaces: filepath.Join(dir, "workspaces"), StopGrace: 200 * time.Millisecond, Templates: templates, Hooks: chains,
	}, nil, nil)
	testkit.Must(t, err)
	stop, err = member.Start(ctx)
	testkit.Must(t, err)
	stop = sync.OnceValue(stop)
	t.Cleanup(func() { testkit.Must(t, stop()) })
	return conn, stop
}

// answer is a response, whose JSON is decoded.
type answer struct {
	t       testing.TB
	status  int
	header  http.Header
	trailer http.Header
	body    []byte
	json    map[string]any
}

// request makes a request with the machine's token and a JSON body, which change may replace.
func (w *web) request(method, path, body string, change ...func(*http.Request)) *answer {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.ctx, method, w.url+path, strings.NewReader(body))
	testkit.Must(w.t, err)
	req.Header.Set("Authorization", "Bearer "+machineToken)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, f := range change {
		f(req)
	}
	return w.do(req)
}

// do makes a request.
func (w *web) do(req *http.Request) *answer {
	w.t.Helper()
	resp, err := w.http.Do(req)
	testkit.Must(w.t, err)
	defer resp.Body.Close()
	a := &answer{t: w.t, status: resp.StatusCode, header: resp.Header}
	a.body, err = io.ReadAll(resp.Body)
	testkit.Must(w.t, err)
	a.trailer = resp.Trailer
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		testkit.Must(w.t, json.Unmarshal(a.body, &a.json))
	}
	return a
}

// is fails the test unless the response has this status.
func (a *answer) is(what string, status int) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: status = %d, want %d: %s", what, a.status, status, a.body)
	}
	return a
}

// text returns a field of the response, which must be a string.
func (a *answer) text(field string) string {
	a.t.Helper()
	s, ok := a.json[field].(string)
	if !ok {
		a.t.Fatalf("field %s = %v, want a string: %s", field, a.json[field], a.body)
	}
	return s
}

// number returns a field of the response, which must be a number.
func (a *answer) number(field string) float64 {
	a.t.Helper()
	n, ok := a.json[field].(float64)
	if !ok {
		a.t.Fatalf("field %s = %v, want a number: %s", field, a.json[field], a.body)
	}
	return n
}

// fields fails the test unless the response has exactly these fields.
func (a *answer) fields(want ...string) *answer {
	a.t.Helper()
	got := map[string]bool{}
	for name := range a.json {
		got[name] = true
	}
	wanted := map[string]bool{}
	for _, name := range want {
		wanted[name] = true
	}
	testkit.Equal(a.t, "fields", got, wanted)
	return a
}

// failed fails the test unless the response is an error of this status and code, whose further fields are these.
func (a *answer) failed(what string, status int, code schemas.Code, further ...string) *answer {
	a.t.Helper()
	a.is(what, status)
	testkit.Equal(a.t, what+": code", a.text("code"), string(code))
	testkit.Equal(a.t, what+": request", a.text("request_id"), a.header.Get("X-Request-Id"))
	if a.text("error") == "" {
		a.t.Errorf("%s: no text", what)
	}
	delete(a.json, "details")
	return a.fields(append([]string{"error", "code", "request_id"}, further...)...)
}
