package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/gateway/mcp"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// caller is an agent that has MCP alone.
type caller struct {
	*sdk.ClientSession
	t *testing.T
}

// call calls a tool, and decodes its result.
func (c *caller) call(tool string, args map[string]any, out any) {
	c.t.Helper()
	r, err := c.CallTool(testkit.Context(c.t), &sdk.CallToolParams{Name: tool, Arguments: args})
	testkit.Must(c.t, err)
	body, err := json.Marshal(r.StructuredContent)
	testkit.Must(c.t, err)
	if r.IsError {
		c.t.Fatalf("%s: %+v", tool, r.Content[0])
	}
	testkit.Must(c.t, json.Unmarshal(body, out))
}

func TestTaskIsSolvedThroughMCPAlone(t *testing.T) {
	getenv := cell(t)
	ctx := testkit.Context(t)
	c, err := client.Discover(getenv)
	testkit.Must(t, err)
	defer c.Close()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- mcp.Run(context.WithoutCancel(ctx), mcp.Config{Client: c, Thread: "task"}, in, out)
	}()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, nil).Connect(ctx, &sdk.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	testkit.Must(t, err)
	defer func() {
		testkit.Must(t, session.Close())
		testkit.Must(t, <-ended)
	}()
	m := &caller{session, t}
	orders, err := os.ReadFile("orders.csv")
	testkit.Must(t, err)
	m.call("write_file", map[string]any{"path": input, "content": string(orders)}, &struct{}{})
	var done []step
	for len(done) < maxSteps {
		next, err := rules(repairs).plan(ctx, task, done)
		testkit.Must(t, err)
		if next == nil {
			break
		}
		var ran struct {
			ExitCode int `json:"exit_code"`
			Stderr   struct{ Text string }
		}
		m.call("run_command", map[string]any{"command": next.script, "timeout_seconds": 60}, &ran)
		next.result = &schemas.Result{ExitCode: ran.ExitCode, Stderr: ran.Stderr.Text}
		done = append(done, *next)
	}
	testkit.Equal(t, "steps", len(done), 4)
	var got struct{ Text string }
	m.call("read_file", map[string]any{"path": answer}, &got)
	testkit.Equal(t, "answer", got.Text, solution(t))
}
