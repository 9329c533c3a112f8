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

// DeleteOutput deletes the output of the process, which must have ended, from the log: readers find a gap. Its record stays, and with it what the
// result of a command repeats of the output. Errors: not_found, conflict while it runs, unavailable without a worker, deadline_exceeded.
func (p *Process) DeleteOutput(ctx context.Context) error {
	_, err := p.client.caller.Clean(ctx, p.ref.Tenant, schemas.CleanRequest{Thread: p.ref.Thread, Process: p.ref.Process})
	return err
}

// Info describes the process. Errors: not_found, unavailable.
func (p *Process) Info(ctx context.Context) (*schemas.ProcessInfo, error) {
	info := new(schemas.ProcessInfo)
	last, err := p.last(ctx)
	if err == nil && last.Type.Terminal() {
		*info, err = schemas.EndedProcess(last)
		return info, err
	}
	if err != nil {
		return nil, err
	}
	running, err := p.client.caller.Running(ctx, events.Filter{Tenant: p.ref.Tenant, Thread: p.ref.Thread}, true)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(running, func(r schemas.ProcessInfo) bool { return r.Process == p.ref.Process }); i >= 0 {
		return &running[i], nil
	}
	if last, err = p.last(ctx); err != nil { // it has ended meanwhile
		return nil, err
	}
	if last.Type.Terminal() {
		*info, err = schemas.EndedProcess(last)
		return info, err
	}
	return info, info.Begin(last)
}

// Result reads the result of the process. Errors: not_found, unavailable while the process runs.
func (p *Process) Result(ctx context.Context) (*schemas.Result, error) {
	r, err := p.Exit(ctx)
	if err != nil {
		return nil, err
	}
	return r, complete(ctx, p.client.caller, p.ref, r, schemas.DefaultOutputLimit)
}

// Exit is Result for callers that have the output: of that, it has only the beginning. Errors: those of Result.
func (p *Process) Exit(ctx context.Context) (*schemas.Result, error) {
	last, err := p.last(ctx)
	if err != nil {
		return nil, err
	}
	if !last.Type.Terminal() {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "process %s is still running: follow it with `sluice logs -f %[1]s`", p.ref.Process)
	}
	return resultOf(last)
}

// LogBytes returns how many bytes of its output LOG holds. Errors: unavailable.
func (p *Process) LogBytes(ctx context.Context) (int64, error) {
	return p.client.caller.LogBytes(ctx, p.ref)
}

// Kill ends the whole tree of the process: SIGTERM, the grace, SIGKILL. Errors: not_found when no worker has accepted the process, or it has
// ended; deadline_exceeded when its worker does not answer within 10 s.
func (p *Process) Kill(ctx context.Context, grace time.Duration) error {
	return p.client.caller.Kill(ctx, p.ref, schemas.KillRequest{GraceMS: ceilMillis(grace)})
}

// Signal sends a signal, such as "SIGINT", to the group of the process. Errors: those of Kill, invalid_argument for an unknown signal.
func (p *Process) Signal(ctx context.Context, signal string) error {
	return p.client.caller.Signal(ctx, p.ref, schemas.SignalRequest{Signal: signal})
}

func (p *Process) last(ctx context.Context) (*schemas.Event, error) {
	return p.client.caller.Last(ctx, p.ref.Tenant, p.ref.Thread, p.ref.Process)
}

func (p *Process) hasEnded(ctx context.Context) bool {
	last, err := p.last(ctx)
	return err == nil && last.Type.Terminal()
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
