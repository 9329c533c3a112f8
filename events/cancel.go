package events

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// killTry is how long the kill of a canceled process may take before the cancel is stored instead: its worker may be away.
const killTry = 2 * time.Second

// Cancel cancels the call's command. When it returns nil, the process that ran is being killed, or the cancel is stored in CMD: a
// command that waits does not run, and one that was accepted is killed. Errors: conflict when the key belongs to another command;
// unavailable, deadline_exceeded and limit_exceeded when the cancel may not be stored, so that the command may still run.
func (k *Call) Cancel(ctx context.Context) error {
	try, cancel := context.WithTimeout(ctx, killTry)
	defer cancel()
	err := k.Verify(try)
	if err == nil {
		err = k.caller.Kill(try, k.ref, schemas.KillRequest{})
	}
	if err == nil || schemas.CodeOf(err) == schemas.CodeConflict {
		return err
	}
	cmd, err := schemas.DecodeCommand(k.body) // the caller may have changed its own
	if err != nil {
		return err
	}
	return k.caller.Cancel(ctx, k.ref, cmd.Fingerprint())
}

// Cancel stores the cancel of a command in CMD: the command does not run, and is killed if it runs. Without a fingerprint, the command
// must be in CMD or on record. Errors: unavailable, deadline_exceeded and limit_exceeded when it may not be stored.
func (c *Caller) Cancel(ctx context.Context, ref schemas.ProcessRef, fingerprint string) error {
	body, err := json.Marshal(schemas.CancelRequest{Process: ref.Process, Fingerprint: fingerprint})
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "encode a cancel: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	err = c.store(ctx, &nats.Msg{Subject: c.conn.subjects.Command(ref.Tenant, ref.Thread, schemas.OpCancel), Data: body})
	return wrap(err, "store the cancel of process "+ref.Process)
}

// cancelsTime is how old a dispatcher's knowledge of the cancels may be when it dispatches a command.
const cancelsTime = time.Second

// cancels are the cancels of a partition. CMD delivers a cancel after its command: a worker that starts, or comes back, reads what is
// canceled before it dispatches anything. While it is connected, CMD delivers a cancel at once.
type cancels struct {
	mu    sync.Mutex
	next  uint64          // the sequence after the last cancel that was applied
	read  time.Time       // there was no other one
	named map[string]bool // canceled processes whose commands are not known
}

func (c *cancels) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next, c.read, c.named = 0, time.Time{}, make(map[string]bool)
}

// settle ends the cancel of a process.
func (c *cancels) settle(process string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.named, process)
}

// applyCancels returns when every cancel of the partition that CMD held cancelsTime ago is applied, and reports whether the process is
// one that was canceled by its name alone. Errors: those of leaderGet and of the handler.
func (p *partition) applyCancels(ctx context.Context, process string) (canceled bool, err error) {
	c, conn := &p.cancels, p.listener.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for time.Since(c.read) >= cancelsTime {
		began := time.Now()
		next := directRequest{Seq: max(c.next, 1), NextBy: conn.subjects.Streams().PartitionCancels(p.number)}
		m, err := conn.leaderGet(ctx, conn.names.cmd, next)
		if err != nil {
			return false, err
		}
		if m == nil {
			c.read = began
			break
		}
		req, err := decodeCancel(conn.subjects, m.subject, m.data)
		switch {
		case err != nil: // its delivery ends as a dead letter
		case req.Fingerprint == "":
			c.named[req.Process] = true
		default:
			handler, ctx := p.listener.target()
			if _, err := handler.HandleCancel(ctx, req); err != nil {
				return false, err
			}
		}
		c.next = m.seq + 1
	}
	return c.named[process], nil
}

// decodeCancel decodes and validates a cancel. Errors: invalid_argument, too_large.
func decodeCancel(s Subjects, subject string, body []byte) (schemas.Cancel, error) {
	tenant, thread, _, _ := s.ParseCommand(subject)
	req, err := schemas.DecodeCancelRequest(body)
	if err == nil {
		err = errors.Join(schemas.CheckID("tenant", tenant), schemas.CheckID("thread", thread))
	}
	if err != nil {
		return schemas.Cancel{}, err
	}
	return schemas.Cancel{Tenant: tenant, Thread: thread, CancelRequest: *req}, nil
}

// decide has this worker decide on a command, once it knows what is canceled.
func (d *dispatcher) decide(ctx context.Context, h *unacked, c schemas.Delivery, m *stored) schemas.Verdict {
	handler, _ := d.listener.target()
	if c.Op == schemas.OpCancel {
		return d.decideCancel(ctx, h, m)
	}
	canceled, err := h.at.applyCancels(ctx, c.Process)
	if err == nil && canceled {
		req := schemas.CancelRequest{Process: c.Process, Fingerprint: c.Fingerprint}
		_, err = handler.HandleCancel(ctx, schemas.Cancel{Tenant: c.Tenant, Thread: c.Thread, CancelRequest: req})
	}
	if err != nil {
		return schemas.Verdict{Action: schemas.ActionRetry}
	}
	return handler.HandleCommand(ctx, c)
}

// decideCancel is decide for a cancel. While its process runs, the process is killed, and the cancel comes again.
func (d *dispatcher) decideCancel(ctx context.Context, h *unacked, m *stored) schemas.Verdict {
	req, err := decodeCancel(d.listener.conn.subjects, m.subject, m.body)
	if err != nil {
		return schemas.Verdict{Action: schemas.ActionDead, Reason: schemas.AsError(err)}
	}
	name := threadName{req.Tenant, req.Thread}
	if req.Fingerprint == "" {
		req.Fingerprint, err = d.fingerprint(ctx, name, req.Process)
	}
	runs := false
	if err == nil {
		handler, _ := d.listener.target()
		runs, err = handler.HandleCancel(ctx, req)
	}
	if runs {
		try, cancel := context.WithTimeout(ctx, killTry)
		defer cancel()
		ref := schemas.ProcessRef{Tenant: req.Tenant, Thread: req.Thread, Process: req.Process}
		_ = d.listener.conn.Caller().Kill(try, ref, schemas.KillRequest{}) // its worker may be away, or it has ended since
	}
	if err != nil || runs {
		return schemas.Verdict{Action: schemas.ActionRetry}
	}
	h.at.cancels.settle(req.Process)
	// The canceled command may wait for a worker that serves it, at the head of its thread.
	d.mu.Lock()
	defer d.mu.Unlock()
	if q := d.queues[name]; q != nil {
		if _, waits := d.lacking[q]; waits {
			delete(d.lacking, q)
			d.enqueue(q)
		}
	}
	return schemas.Verdict{}
}

// fingerprint returns the fingerprint of the queued command with this process, empty when there is none: what CMD stored before a cancel
// is here before it.
func (d *dispatcher) fingerprint(ctx context.Context, name threadName, process string) (string, error) {
	d.mu.Lock()
	var items []*unacked
	if q := d.queues[name]; q != nil {
		items = slices.Clone(q.items)
	}
	d.mu.Unlock()
	for _, h := range items {
		m, err := d.load(ctx, h)
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return "", err
		}
		if err != nil {
			continue
		}
		body, err := d.listener.conn.sealing.open(m)
		if errors.Is(err, schemas.ErrNotFound) {
			return "", err // it may be the one
		}
		if c := d.listener.decode(m.subject, body, m.header); c.Process == process {
			return c.Fingerprint, nil
		}
	}
	return "", nil
}
