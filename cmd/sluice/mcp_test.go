package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// mcpAgent is an agent that has started `sluice mcp` as its child.
type mcpAgent struct {
	*sdk.ClientSession
	*spawned
	printed chan string // messages of progress
}

// mcp starts `sluice mcp` in another process.
func (c *cli) mcp(flags ...string) *mcpAgent {
	c.t.Helper()
	a := &mcpAgent{spawned: c.spawn(append([]string{"mcp", "--provider", "local"}, flags...)...), printed: make(chan string, 1000)}
	agent := sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) { a.printed <- req.Params.Message },
	})
	var err error
	a.ClientSession, err = agent.Connect(testkit.Context(c.t), &sdk.IOTransport{Reader: a.read, Writer: a.stdin}, nil)
	if err != nil {
		c.t.Fatalf("%v; standard error: %s", err, a.stderr)
	}
	return a
}

// call calls a tool, and returns its structured result, or the text of its error.
func (a *mcpAgent) call(tool string, args map[string]any) (result map[string]any, failed string) {
	a.t.Helper()
	r, err := a.CallTool(testkit.Context(a.t), &sdk.CallToolParams{Name: tool, Arguments: args})
	testkit.Must(a.t, err)
	text, _ := r.Content[0].(*sdk.TextContent)
	if r.IsError {
		return nil, text.Text
	}
	testkit.Must(a.t, json.Unmarshal([]byte(text.Text), &result))
	return result, ""
}

// run runs a shell script, and returns what it prints.
func (a *mcpAgent) run(script string) string {
	a.t.Helper()
	r, failed := a.call("run_command", map[string]any{"command": script})
	if failed != "" {
		a.t.Fatal(failed)
	}
	stdout, _ := r["stdout"].(map[string]any)
	text, _ := stdout["text"].(string)
	return text
}

// sleeping runs a script that waits, until it has printed.
func (a *mcpAgent) sleeping() {
	a.t.Helper()
	ctx := testkit.Context(a.t)
	go func() {
		_, _ = a.CallTool(ctx, &sdk.CallToolParams{ // it fails with its server
			Name: "run_command", Arguments: map[string]any{"command": "echo waiting; sleep 300"}, Meta: sdk.Meta{"progressToken": "p"},
		})
	}()
	for message := range a.printed {
		if strings.Contains(message, "waiting") {
			return
		}
	}
}

func TestMCPUsesTheServerOfTheDataFolder(t *testing.T) {
	c := newUp(t)
	a := c.mcp("--thread", "t1", "-v")
	testkit.Equal(t, "output", a.run("echo from mcp | tee file"), "from mcp\n")
	c.exec("--", "cat", "file").check(t).exits(0).prints("from mcp\n")
	_, failed := a.call("read_file", map[string]any{"path": "../../etc/passwd"})
	testkit.Contains(t, "error", failed, "invalid_argument: ")
	p, failed := a.call("start_process", map[string]any{"command": "echo up; sleep 300"})
	testkit.Equal(t, "error", failed, "")
	a.sleeping()
	testkit.Must(t, a.stdin.Close())
	a.wantExit(0)
	testkit.Contains(t, "log", a.stderr.String(), `"tool":"run_command"`)
	// The command in the foreground has ended with the agent, the process in the background goes on.
	testkit.Equal(t, "process that runs", any(c.awaitRunning(1)[0].Process), p["process"])
}

func TestMCPRunsItsOwnServer(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	a := c.mcp("--any-thread")
	r, failed := a.call("run_command", map[string]any{"thread": "t1", "command": "echo kept >file; exit 3"})
	testkit.Equal(t, "error", failed, "")
	testkit.Equal(t, "exit code", r["exit_code"], any(3.0))
	_, failed = a.call("run_command", map[string]any{"command": "true"})
	testkit.Contains(t, "error", failed, "thread")
	testkit.Must(t, a.stdin.Close())
	a.wantExit(0)
	c.exec("--", "cat", "file").check(t).exits(0).prints("kept\n")
}

func TestInterruptEndsMCP(t *testing.T) {
	c := newUp(t)
	a := c.mcp("--thread", "t1")
	a.sleeping()
	a.signal(syscall.SIGINT)
	a.wantExit(0)
	c.awaitRunning(0)
}

// awaitRunning waits until n processes of thread t1 run and none starts, and returns them: a cancel is stored before its process has
// ended.
func (c *cli) awaitRunning(n int) []schemas.ProcessInfo {
	c.t.Helper()
	var list []schemas.ProcessInfo
	for ctx := testkit.Context(c.t); ctx.Err() == nil; {
		list = decode[[]schemas.ProcessInfo](c.t, c.run("process", "list", "--thread", "t1", "--json").stdout)
		if len(list) == n && !slices.ContainsFunc(list, func(p schemas.ProcessInfo) bool { return p.PID == 0 }) {
			return list
		}
	}
	c.t.Fatalf("running processes = %+v, want %d", list, n)
	return nil
}

func TestInvalidMCP(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("mcp", "--thread", "a b").wantError(t, schemas.CodeInvalidArgument, "thread")
	c.run("mcp", "--thread", "t", "--any-thread").wantError(t, schemas.CodeInvalidArgument, "--any-thread")
	c.run("mcp", "extra").wantError(t, schemas.CodeInvalidArgument, `"extra"`)
	c.run("mcp", "--provider", "moon").wantError(t, schemas.CodeInvalidArgument, "moon")
	// What is no message is answered, and ends nothing.
	s := c.spawn("mcp", "--provider", "local")
	s.write("hello\n")
	testkit.Contains(t, "the answer", s.line(), "-32700")
	testkit.Must(t, s.stdin.Close())
	s.wantExit(0)
}
