package events

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/schemas"
)

const (
	// maxLists is how many requests for its processes a worker answers at a time.
	maxLists = 64
	// listTimeout is how long a worker may take to answer: one that is frozen does not.
	listTimeout = 2 * time.Second
)

// subscribeProcesses receives requests for the processes of this worker until end is called.
func subscribeProcesses(l *Listener) (end func(), err error) {
	return answerRequests(l, l.conn.subjects.Processes("*", l.worker), "", maxLists, func(m *nats.Msg, refused error) []byte {
		reply := schemas.ProcessesReply{Error: schemas.AsError(refused)}
		if refused == nil {
			reply = l.handleProcesses(m)
		}
		body, _ := json.Marshal(reply) // it holds only strings, numbers and times
		return body
	})
}

func (l *Listener) handleProcesses(m *nats.Msg) schemas.ProcessesReply {
	tenant, _, _ := l.conn.subjects.tokens(m.Subject)
	req, err := schemas.DecodeProcessesRequest(m.Data)
	if err := errors.Join(err, schemas.CheckID("tenant", tenant), l.conn.leased()); err != nil {
		return schemas.ProcessesReply{Error: schemas.AsError(err)}
	}
	handler, ctx := l.target()
	return handler.HandleProcesses(ctx, tenant, *req)
}

// Running lists the processes that have not ended. A worker that answers knows its own. What another one left is on record, at or after
// the sequence in its entry, and is read from there, without what it uses. Errors: unavailable, deadline_exceeded, permission_denied.
func (r *Reader) Running(ctx context.Context, f Filter, usage bool) ([]schemas.ProcessInfo, error) {
	workers, err := r.Workers(ctx)
	if err != nil {
		return nil, err
	}
	list, _, err := r.runningOnAll(ctx, workers, f, usage)
	return list, err
}

// runningOnAll is [Reader.Running] for these workers. counts is what each of them runs of all tenants, nil where it does not say so.
func (r *Reader) runningOnAll(ctx context.Context, workers []schemas.WorkerInfo, f Filter, usage bool) (list []schemas.ProcessInfo, counts []*int, err error) {
	counts = make([]*int, len(workers))
	lists, away := make([][]schemas.ProcessInfo, len(workers)+1), make([]bool, len(workers))
	group, groupCtx := errgroup.WithContext(ctx)
	for i, w := range workers {
		group.Go(func() (err error) {
			lists[i], counts[i], err = r.runningOn(groupCtx, w.ID, f, usage)
			if away[i] = isAway(err); away[i] {
				err = nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, wrap(err, "list the processes that run")
	}
	left, from := make(map[string]bool), uint64(0)
	for i, w := range workers {
		if away[i] {
			if left[w.ID] = true; from == 0 || w.LowSeq < from {
				from = w.LowSeq
			}
		}
	}
	if len(left) > 0 {
		if lists[len(workers)], err = r.unfinished(ctx, f, left, from); err != nil {
			return nil, nil, err
		}
	}
	return mergeRunning(lists), counts, nil
}

// mergeRunning keeps one entry a process: a worker that answers late, or has just died, may be read from the records as well.
func mergeRunning(lists [][]schemas.ProcessInfo) (out []schemas.ProcessInfo) {
	seen := make(map[string]bool)
	for _, list := range lists {
		for _, p := range list {
			if !seen[p.Process] {
				seen[p.Process] = true
				out = append(out, p)
			}
		}
	}
	return out
}

// isAway reports whether a worker does not answer for its processes.
func isAway(err error) bool {
	return errors.Is(err, schemas.ErrUnavailable) || errors.Is(err, schemas.ErrDeadlineExceeded) || errors.Is(err, schemas.ErrLost)
}

// runningOn asks a worker for its processes, and for how many it runs of all tenants. Errors: unavailable when it does not run or is shutting down, deadline_exceeded.
func (r *Reader) runningOn(ctx context.Context, worker string, f Filter, usage bool) (out []schemas.ProcessInfo, count *int, err error) {
	for req := (schemas.ProcessesRequest{Thread: f.Thread, Usage: usage}); ; {
		reply, err := r.askProcesses(ctx, f.tenant(), worker, req)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, reply.Processes...)
		if !reply.More || len(reply.Processes) == 0 {
			return out, reply.Running, nil
		}
		req.After = reply.Processes[len(reply.Processes)-1].Process
	}
}

func (r *Reader) askProcesses(ctx context.Context, tenant, worker string, req schemas.ProcessesRequest) (*schemas.ProcessesReply, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "encode a request for processes: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	m, err := r.conn.request(ctx, &nats.Msg{Subject: r.conn.subjects.Processes(tenant, worker), Data: body})
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "worker %s is not running", worker)
	}
	if err != nil {
		return nil, wrap(err, "ask worker "+worker+" for its processes")
	}
	reply := new(schemas.ProcessesReply)
	if err := json.Unmarshal(m.Data, reply); err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "ask worker %s for its processes: decode the answer: %w", worker, err)
	}
	if reply.Error != nil {
		return nil, reply.Error
	}
	return reply, nil
}

// unfinished reads the processes that these workers accepted at or after a sequence of EVT and that have no end on record.
func (r *Reader) unfinished(ctx context.Context, f Filter, workers map[string]bool, from uint64) ([]schemas.ProcessInfo, error) {
	open := make(map[string]*schemas.ProcessInfo)
	err := r.Records(ctx, f, from, func(ev *schemas.Event) error {
		switch {
		case ev.Type.Terminal():
			delete(open, ev.Process)
		case workers[ev.Source]:
			p := open[ev.Process]
			if p == nil {
				p = &schemas.ProcessInfo{Process: ev.Process, Thread: ev.Thread}
				open[ev.Process] = p
			}
			return p.Begin(ev)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := make([]schemas.ProcessInfo, 0, len(open))
	for _, p := range open {
		out = append(out, *p)
	}
	return out, nil
}

// Windows of EVT, in sequences, that a backward read looks at: wider ones where less matches.
const (
	minWindow = 128
	// unselected is how many of the newest sequences are read whole: to select those of a thread costs the server more than to send all.
	unselected = 1024
	// maxMatches is how many messages of a window are read: with more of them, the window is made smaller.
	maxMatches = 1024
)

// RecordsBefore passes the process records that match and lie before a sequence of EVT to fn, newest first, until fn reports false; 0 is
// after the last. Without a thread it also passes the marks of what is cleaned up. It reads as much as fn takes, however many records there
// are. Errors: unavailable, deadline_exceeded.
func (r *Reader) RecordsBefore(ctx context.Context, f Filter, before uint64, fn func(*schemas.Event) (more bool)) error {
	c := r.conn
	if before == 0 {
		last, err := lastEvent(ctx, c)
		if err != nil {
			return err
		}
		before = last + 1
	}
	subject, newest := ">", before // without a thread nearly every message is a record
	for width := uint64(minWindow); before > 1; {
		if f.Thread != "" && newest-before >= unselected {
			subject = c.subjects.Record(f.tenant(), f.Thread, orAny(f.Process))
		}
		from := before - min(width, before-1)
		window, whole, err := r.readWindow(ctx, subject, from, before)
		if err != nil {
			return err
		}
		if !whole && width > minWindow {
			width /= 2
			continue
		}
		for i := len(window) - 1; i >= 0; i-- {
			if !isRecord(c.subjects, window[i].subject, f) {
				continue
			}
			if ev, ok := decodeEvent(window[i].seq, window[i].data); ok && !fn(ev) {
				return nil
			}
		}
		before = from
		if len(window) < maxMatches/2 {
			width *= 2
		}
	}
	return nil
}

// isRecord reports whether a subject is that of a process record that matches, or of a mark that hides records.
func isRecord(s Subjects, subject string, f Filter) bool {
	tenant, t, ok := s.tokens(subject)
	return ok && len(t) == 4 && (t[2] == "process" || t[2] == "processes") && tenant == f.tenant() &&
		(f.Thread == "" || t[0] == f.Thread) && (f.Process == "" || t[1] == f.Process)
}

// readWindow reads the messages from one sequence of EVT to before another. whole is false when there are too many.
func (r *Reader) readWindow(ctx context.Context, subject string, from, before uint64) (window []storedMsg, whole bool, err error) {
	c, next, whole := r.conn, from, true
	err = c.readUntil(ctx, c.names.evt, subject, before-1, func() (uint64, error) {
		for next < before {
			msgs, more, err := c.directGet(ctx, c.names.evt, directRequest{Seq: next, NextBy: subject, Batch: int(min(4*minWindow, before-next)), MaxBytes: readBatchBytes})
			for i := range msgs {
				if next = msgs[i].seq + 1; msgs[i].seq >= before {
					return next, err
				}
				window = append(window, msgs[i])
			}
			if len(window) > maxMatches && next < before {
				whole = false
				return before, nil
			}
			if err != nil || !more {
				return next, err
			}
		}
		return next, nil
	})
	return window, whole, err
}
