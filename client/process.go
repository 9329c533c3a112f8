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

// ProcessQuery selects processes. Empty fields match all.
type ProcessQuery struct {
	// Thread is the thread of the processes.
	Thread string
	// All also lists processes that have ended, as far back as events are kept. Default: those that run.
	All bool
	// Usage measures what the processes that run use: see [schemas.ProcessInfo].
	Usage bool
	// Limit is the most ended processes to return. Default 100.
	Limit int
	// Before continues a list of ended processes: the Seq of the last one. Processes that run are not listed then. Default 0: begin with
	// those that run, and the last one that ended.
	Before uint64
}

// defaultEnded is the default Limit of a list of processes.
const defaultEnded = 100

// Processes lists the processes that run, the newest first, and with All those that have ended, the last one first. It reads as much as it
// returns, however many records there are. A process that ran more than once is listed by its last run, unless its runs are on different
// pages. Errors: invalid_argument, unavailable, deadline_exceeded.
func (c *Client) Processes(ctx context.Context, q ProcessQuery) ([]schemas.ProcessInfo, error) {
	if err := checkIDs(q.Thread, ""); err != nil {
		return nil, err
	}
	out, filter := []schemas.ProcessInfo{}, events.Filter{Tenant: c.tenant, Thread: q.Thread}
	if q.Before == 0 {
		running, err := c.caller.Running(ctx, filter, q.Usage)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(running, func(a, b schemas.ProcessInfo) int {
			return cmp.Or(b.Started.Compare(a.Started), strings.Compare(a.Process, b.Process))
		})
		out = append(out, running...)
	}
	if !q.All {
		return out, nil
	}
	return appendEnded(ctx, c, out, filter, q)
}

// appendEnded appends the processes that have ended to those that run.
func appendEnded(ctx context.Context, c *Client, out []schemas.ProcessInfo, filter events.Filter, q ProcessQuery) ([]schemas.ProcessInfo, error) {
	limit := q.Limit
	if limit <= 0 {
		limit = defaultEnded
	}
	limit += len(out)
	err := c.caller.Ended(ctx, filter, q.Before, out, func(p schemas.ProcessInfo) bool {
		out = append(out, p)
		return len(out) < limit
	})
	return out, err
}

// CleanProcesses cleans up the processes of a thread that have ended, and returns how many: lists leave them out from now on. Their
// records and output stay, so that a repeated command still gets its result. A process whose request has AutoCleanup needs none of it.
// Errors: invalid_argument, unavailable without a worker, deadline_exceeded.
func (c *Client) CleanProcesses(ctx context.Context, thread string) (int, error) {
	if err := schemas.CheckID("thread", thread); err != nil {
		return 0, err
	}
	return c.caller.Clean(ctx, c.tenant, schemas.CleanRequest{Thread: thread})
}

// ProcessInfo describes a process. thread may be empty: the process is then found by its id. Errors: not_found, invalid_argument,
// unavailable.
func (c *Client) ProcessInfo(ctx context.Context, thread, process string) (*schemas.ProcessInfo, error) {
	_, last, err := c.locate(ctx, thread, process)
	if err != nil {
		return nil, err
	}
	p := new(schemas.ProcessInfo)
	if last.Type.Terminal() {
		*p, err = schemas.EndedProcess(last)
		return p, err
	}
	running, err := c.caller.Running(ctx, events.Filter{Tenant: c.tenant, Thread: last.Thread}, true)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(running, func(p schemas.ProcessInfo) bool { return p.Process == process }); i >= 0 {
		return &running[i], nil
	}
	if _, last, err = c.locate(ctx, last.Thread, process); err != nil { // it has ended meanwhile
		return nil, err
	}
	if last.Type.Terminal() {
		*p, err = schemas.EndedProcess(last)
		return p, err
	}
	return p, p.Begin(last)
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
