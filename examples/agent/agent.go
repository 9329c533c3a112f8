package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// planner is where a model goes: the task and the steps so far are its prompt, and the step is its tool call. It returns nil when the task
// is solved, and an error when it gives up.
type planner interface {
	plan(ctx context.Context, task string, done []step) (*step, error)
}

// step is a shell script, and what came of it.
type step struct {
	goal   string
	script string
	result *schemas.Result
}

const (
	// maxSteps ends an agent that does not get on.
	maxSteps = 8
	// stepTimeout ends a step with all that it started.
	stepTimeout = time.Minute
)

// agent runs what its planner plans.
type agent struct {
	session *client.Session
	planner planner
	out     io.Writer
}

// solve runs steps until the planner has no more. A step that exits with another code than 0 is no error: the planner reads why.
func (a *agent) solve(ctx context.Context, task string) error {
	var done []step
	for len(done) < maxSteps {
		next, err := a.planner.plan(ctx, task, done)
		if err != nil || next == nil {
			return err
		}
		fmt.Fprintf(a.out, "\nstep %d: %s\n", len(done)+1, next.goal)
		next.result, err = a.session.Exec(ctx, client.Request{
			Command: "sh", Args: []string{"-c", next.script}, Timeout: stepTimeout,
			OnOutput: func(k schemas.Chunk) { _, _ = a.out.Write(k.Data) }, // while it runs; a reader that has left does not end the step
		})
		if err != nil {
			return err // Sluice failed, or ctx has ended
		}
		fmt.Fprintln(a.out, "exit code", next.result.ExitCode)
		done = append(done, *next)
	}
	return fmt.Errorf("the task is not solved after %d steps", maxSteps)
}
