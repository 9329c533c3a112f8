package client

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

// ProcessInfo is the recorded state of a process.
type ProcessInfo struct {
	// ID is the process id, Thread its thread.
	ID     string `json:"process"`
	Thread string `json:"thread"`
	// State is accepted, started, or the reason of its end; see [schemas.Reason].
	State string `json:"state"`
	// Command and Args are the program and its arguments, cut as in [schemas.Accepted].
	Command string   `json:"command"`
	Args    []string `json:"args,omitempty"`
	// Worker is the worker that runs or ran it.
	Worker string `json:"worker"`
	// Accepted is when it was accepted; Ended when it ended, nil while it runs.
	Accepted time.Time  `json:"accepted"`
	Ended    *time.Time `json:"ended,omitempty"`
	// ExitCode is set once it has ended.
	ExitCode *int `json:"exit_code,omitempty"`
}

// Processes lists the processes of a thread, or of all threads when it is empty, oldest first and as far back as events are kept.
// Errors: invalid_argument, unavailable.
func (c *Client) Processes(ctx context.Context, thread string) ([]ProcessInfo, error) {
	if err := checkIDs(thread, ""); err != nil {
		return nil, err
	}
	byID := make(map[string]*ProcessInfo)
	err := c.caller.Processes(ctx, events.Filter{Tenant: c.tenant, Thread: thread}, func(ev *schemas.Event) error {
		p := byID[ev.Process]
		if p == nil {
			p = &ProcessInfo{ID: ev.Process, Thread: ev.Thread, Accepted: ev.Time}
			byID[ev.Process] = p
		}
		p.Worker = ev.Source
		return p.apply(ev)
	})
	if err != nil {
		return nil, err
	}
	out := make([]ProcessInfo, 0, len(byID))
	for _, p := range byID {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b ProcessInfo) int {
		return cmp.Or(a.Accepted.Compare(b.Accepted), strings.Compare(a.ID, b.ID))
	})
	return out, nil
}

func (p *ProcessInfo) apply(ev *schemas.Event) error {
	switch ev.Type {
	case schemas.TypeProcessAccepted:
		var a schemas.Accepted
		if err := ev.Decode(&a); err != nil {
			return err
		}
		p.State, p.Command, p.Args, p.Ended, p.ExitCode = "accepted", a.Command, a.Args, nil, nil
	case schemas.TypeProcessStarted:
		p.State = "started"
	default:
		r, err := resultOf(ev)
		if err != nil {
			return err
		}
		p.State, p.Ended, p.ExitCode = string(r.Reason), &ev.Time, &r.ExitCode
		if r.Worker != "" {
			p.Worker = r.Worker // another worker records a lost process
		}
		if p.Command == "" {
			p.Command, p.Args = r.Command, r.Args
		}
	}
	return nil
}

// Result reads the result of a process. thread may be empty: the process is then found by its id. Errors: not_found, unavailable
// while the process runs, invalid_argument.
func (c *Client) Result(ctx context.Context, thread, process string) (*schemas.Result, error) {
	ref, last, err := c.locate(ctx, thread, process)
	if err != nil {
		return nil, err
	}
	if !last.Type.Terminal() {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "process %s is still running: follow it with `sluice logs -f %s`", process, process)
	}
	r, err := resultOf(last)
	if err != nil {
		return nil, err
	}
	return r, c.complete(ctx, ref, r, schemas.DefaultOutputLimit)
}

// Kill ends the whole tree of a process: SIGTERM, the grace, SIGKILL. thread may be empty. Errors: not_found when the process does
// not exist or has ended, deadline_exceeded when its worker does not answer within 10 s.
func (c *Client) Kill(ctx context.Context, thread, process string, grace time.Duration) error {
	ref, _, err := c.locate(ctx, thread, process)
	if err != nil {
		return err
	}
	return c.caller.Kill(ctx, ref, schemas.KillRequest{GraceMS: ceilMillis(grace)})
}

// Cancel keeps a command that is queued from running, also when no worker lives now, and kills its process if it runs. thread may be
// empty for a process that has a record. When it returns nil, the cancel is stored. Errors: not_found when there is no record and no
// thread; unavailable, deadline_exceeded and limit_exceeded when the outcome is unknown.
func (c *Client) Cancel(ctx context.Context, thread, process string) error {
	ref, _, err := c.locate(ctx, thread, process)
	if errors.Is(err, schemas.ErrNotFound) && thread != "" {
		ref, err = schemas.ProcessRef{Tenant: c.tenant, Thread: thread, Process: process}, nil
	}
	if err != nil {
		return err
	}
	return c.caller.Cancel(ctx, ref, "")
}

// Signal sends a signal, such as "SIGINT", to the group of a process. thread may be empty. Errors: those of Kill, invalid_argument
// for an unknown signal.
func (c *Client) Signal(ctx context.Context, thread, process, signal string) error {
	ref, _, err := c.locate(ctx, thread, process)
	if err != nil {
		return err
	}
	return c.caller.Signal(ctx, ref, schemas.SignalRequest{Signal: signal})
}
