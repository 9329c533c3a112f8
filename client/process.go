package client

import (
	"context"
	"sort"
	"time"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

// ProcessInfo is what the record says of a process.
type ProcessInfo struct {
	// ID and Thread name it.
	ID     string `json:"process"`
	Thread string `json:"thread"`
	// State is accepted, started, or how it ended: see [schemas.Reason].
	State string `json:"state"`
	// Command and Args are what runs, cut as in [schemas.Accepted].
	Command string   `json:"command"`
	Args    []string `json:"args,omitempty"`
	// Worker runs it, or ran it.
	Worker string `json:"worker"`
	// Accepted is when its key was taken; Ended when it ended, nil while it runs.
	Accepted time.Time  `json:"accepted"`
	Ended    *time.Time `json:"ended,omitempty"`
	// ExitCode is set once it has ended.
	ExitCode *int `json:"exit_code,omitempty"`
}

// Processes lists the processes of a thread, or of all threads when it is empty, as far back as events are kept: oldest
// first. Errors: invalid_argument, unavailable.
func (c *Client) Processes(ctx context.Context, thread string) ([]ProcessInfo, error) {
	if thread != "" {
		if err := schemas.CheckID("thread", thread); err != nil {
			return nil, err
		}
	}
	byID := make(map[string]*ProcessInfo)
	err := c.conn.Processes(ctx, events.Filter{Tenant: c.tenant, Thread: thread}, func(ev *schemas.Event) error {
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
	sort.Slice(out, func(i, j int) bool {
		if !out[i].Accepted.Equal(out[j].Accepted) {
			return out[i].Accepted.Before(out[j].Accepted)
		}
		return out[i].ID < out[j].ID
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
		var r schemas.Result
		if err := ev.Decode(&r); err != nil {
			return err
		}
		p.State, p.Ended, p.ExitCode = string(r.Reason), &ev.Time, &r.ExitCode
		if r.Worker != "" {
			p.Worker = r.Worker // the record of a lost process is another worker's
		}
		if p.Command == "" {
			p.Command, p.Args = r.Command, r.Args
		}
	}
	return nil
}

// Result reads how a process ended. thread may be empty: the process is then found by its id. Errors: not_found,
// unavailable where it has not ended yet, invalid_argument.
func (c *Client) Result(ctx context.Context, thread, process string) (*schemas.Result, error) {
	ref, last, err := c.locate(ctx, thread, process)
	if err != nil {
		return nil, err
	}
	if !last.Type.Terminal() {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "process %s has not ended yet: follow it with `sluice logs -f %s`", process, process)
	}
	var r schemas.Result
	if err := last.Decode(&r); err != nil {
		return nil, err
	}
	return &r, c.complete(ctx, ref, &r, schemas.DefaultOutputLimit)
}

// controlPatience bounds the wait for a worker's answer: one that was on its way when a connection broke never comes.
const controlPatience = 10 * time.Second

// Kill ends a process's whole tree: SIGTERM, the grace, SIGKILL. thread may be empty. Errors: not_found when it never was,
// or has ended; deadline_exceeded when its worker does not answer.
func (c *Client) Kill(ctx context.Context, thread, process string, grace time.Duration) error {
	ref, _, err := c.locate(ctx, thread, process)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, controlPatience)
	defer cancel()
	return c.conn.Kill(ctx, ref, schemas.KillRequest{GraceMS: ceilMillis(grace)})
}

// Signal sends a signal, such as "SIGINT", to a process's group. thread may be empty. Errors are those of Kill, and
// invalid_argument for a name that is no signal's.
func (c *Client) Signal(ctx context.Context, thread, process, signal string) error {
	ref, _, err := c.locate(ctx, thread, process)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, controlPatience)
	defer cancel()
	return c.conn.Signal(ctx, ref, schemas.SignalRequest{Signal: signal})
}
