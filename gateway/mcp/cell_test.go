package mcp_test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/gateway/mcp"
	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/internal/membership"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/internal/workspace"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/local"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

// cell runs a server and a worker until the end of the test, and returns a client of them.
func cell(t *testing.T) *client.Client {
	t.Helper()
	ctx, dir := testkit.Context(t), testkit.ShortDir(t)
	server, err := embedded.Start(embedded.Config{Dir: filepath.Join(dir, "nats"), StoreBytes: 16 << 30})
	testkit.Must(t, err)
	t.Cleanup(server.Close)
	conn, err := events.Connect(events.Options{InProcess: server})
	testkit.Must(t, err)
	t.Cleanup(conn.Close)
	testkit.Must(t, conn.Ensure(ctx, events.Topology{Partitions: 1, LeaseTTL: testkit.Timeout, Room: 4 << 30}))
	provider, err := local.New(local.Config{RunDir: filepath.Join(dir, "run"), Warn: func(string) {}})
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, provider.Close()) })
	folder := filepath.Join(dir, "templates")
	testkit.Must(t, os.Mkdir(folder, 0o700))
	stored := "name: stored\nsync:\n  location: file://" + dir + "/store/{tenant}/{thread}\n"
	testkit.Must(t, os.WriteFile(filepath.Join(folder, "stored.yaml"), []byte(stored), 0o600))
	templates, err := template.New(template.Config{Dir: folder})
	testkit.Must(t, err)
	chains, err := hooks.New(hooks.Config{
		Worker: "w1", Record: func(context.Context, *schemas.Event) {}, Messages: conn.Worker().Messages, Workspace: workspace.New(workspace.Config{}),
	})
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, chains.Close(context.WithoutCancel(ctx))) })
	member, err := membership.Join(ctx, conn, processor.Config{
		Worker: "w1", Providers: map[string]sandbox.Provider{"local": provider}, DefaultProvider: "local",
		Workspaces: filepath.Join(dir, "workspaces"), StopGrace: 200 * time.Millisecond, Templates: templates, Hooks: chains,
	}, nil, nil)
	testkit.Must(t, err)
	stop, err := member.Start(ctx)
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, stop()) })
	other, err := events.Connect(events.Options{InProcess: server})
	testkit.Must(t, err)
	t.Cleanup(other.Close)
	c, err := client.New(other)
	testkit.Must(t, err)
	return c
}

// agent is a client of MCP.
type agent struct {
	*sdk.ClientSession
	t        *testing.T
	ctx      context.Context
	progress chan *sdk.ProgressNotificationParams
	gone     func() error // leaves without a word
}

// connect connects an agent over a transport.
func connect(t *testing.T, transport sdk.Transport, version string) *agent {
	t.Helper()
	a := &agent{t: t, ctx: testkit.Context(t), progress: make(chan *sdk.ProgressNotificationParams, 1000)}
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) { a.progress <- req.Params },
	})
	var err error
	a.ClientSession, err = c.Connect(a.ctx, transport, &sdk.ClientSessionOptions{ProtocolVersion: version})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = a.Close() }) // some tests close it before
	return a
}

// serve serves an agent through pipes in this process. The server has ended when the test ends.
func serve(t *testing.T, cfg mcp.Config) *agent {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := mcp.Run(context.Background(), cfg, in, out)
		_ = out.Close()
		ended <- err
	}()
	t.Cleanup(func() {
		_ = toServer.Close()
		testkit.Must(t, <-ended)
	})
	a := connect(t, &sdk.IOTransport{Reader: fromServer, Writer: toServer}, "")
	a.gone = toServer.Close
	return a
}

// args are the arguments of a call.
type args map[string]any

// raw calls a tool.
func (a *agent) raw(ctx context.Context, tool string, in args, meta sdk.Meta) (*sdk.CallToolResult, error) {
	return a.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: in, Meta: meta})
}

// call calls a tool that must succeed, and decodes its result.
func (a *agent) call(tool string, in args, out any) {
	a.t.Helper()
	r, err := a.raw(a.ctx, tool, in, nil)
	testkit.Must(a.t, err)
	text := textOf(r)
	if r.IsError {
		a.t.Fatalf("%s: %s", tool, text)
	}
	body, err := json.Marshal(r.StructuredContent)
	testkit.Must(a.t, err)
	testkit.Must(a.t, json.Unmarshal(body, out))
	testkit.Must(a.t, json.Unmarshal([]byte(text), out))
}

// fails calls a tool that must fail with a code, and returns the text of its error.
func (a *agent) fails(want schemas.Code, tool string, in args) string {
	a.t.Helper()
	r, err := a.raw(a.ctx, tool, in, nil)
	testkit.Must(a.t, err)
	text := textOf(r)
	if !r.IsError {
		a.t.Fatalf("%s %v: no error, want %s; result %s", tool, in, want, text)
	}
	e, _ := r.Meta["sluice/error"].(map[string]any)
	testkit.Equal(a.t, "code of "+tool, e["code"], any(string(want)))
	testkit.Contains(a.t, "error", text, string(want)+": ")
	testkit.Contains(a.t, "error", text, "\nNext: ")
	if len(text) > 3000 {
		a.t.Errorf("%s: the error has %d bytes", tool, len(text))
	}
	return text
}

func textOf(r *sdk.CallToolResult) string {
	if len(r.Content) != 1 {
		return ""
	}
	c, ok := r.Content[0].(*sdk.TextContent)
	if !ok {
		return ""
	}
	return c.Text
}

// output is a part of a stream, or of a file, as a caller decodes it.
type output struct {
	Text, Encoding, Tail  string
	Offset                int64
	NextOffset            int64 `json:"next_offset"`
	TailOffset            int64 `json:"tail_offset"`
	Bytes, Size           int64
	More, Binary, Missing bool
}

// ran is a process as a caller decodes it.
type ran struct {
	Process, Thread, Status, Reason, Problem string
	ExitCode                                 *int `json:"exit_code"`
	Matched, Queued                          bool
	Stdout, Stderr                           output
}

// run runs a shell script.
func (a *agent) run(script string) ran {
	a.t.Helper()
	var r ran
	a.call("run_command", args{"command": script}, &r)
	return r
}
