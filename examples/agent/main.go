// Command agent solves a task on a data file by itself: it plans a command, runs it in a sandbox, reads what came of it, repairs its plan
// and runs again. It needs no model: rules plan. Put a model behind planner to make it yours.
//
//	agent.solve ──► planner.plan ──► step ──► Session.Exec ──► exit code, output
//	     ▲                                                          │
//	     └──────────────────── the steps so far ◄───────────────────┘
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sluice-dev/sluice/client"
)

const (
	task   = "How many orders are there in each month of orders.csv, and what do they amount to? Write revenue.csv."
	input  = "orders.csv"
	answer = "revenue.csv"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: agent FILE, such as examples/agent/orders.csv")
		os.Exit(2)
	}
	if err := run(ctx, os.Getenv, os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

// run solves the task on a file in a session of its own, and ends the session, also after Ctrl+C.
func run(ctx context.Context, getenv func(string) string, file string, out io.Writer) (err error) {
	c, err := client.Discover(getenv) // as the command line: `sluice up` on this machine, or SLUICE_NATS_URL
	if err != nil {
		return err
	}
	defer c.Close()
	session, _, err := c.CreateSession(ctx, client.SessionRequest{Thread: "agent-" + strings.ToLower(rand.Text()[:8])})
	if err != nil {
		return err
	}
	defer func() {
		_, end := session.Delete(context.WithoutCancel(ctx)) // the workspace with it: nothing stays
		err = errors.Join(err, end)
	}()
	from, err := os.Open(file)
	if err != nil {
		return err
	}
	defer from.Close()
	if _, err := session.Files().Write(ctx, input, from); err != nil {
		return err
	}
	fmt.Fprintf(out, "thread %s\ntask: %s\n", session.Thread(), task)
	a := agent{session: session, planner: rules(repairs), out: out}
	if err := a.solve(ctx, task); err != nil {
		return err
	}
	content, err := session.Files().ReadFile(ctx, answer)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\n%s\n%s", answer, content)
	return err
}
