package events

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/schemas"
)

// Worker is what a worker uses of a connection. Its parts hold no state and are safe for concurrent use.
type Worker struct {
	Records  *Records
	Logs     *Logs
	Sessions *SessionStore
	Roster   *Roster
	Owed     *OwedStore
	// Workspaces lists what workers keep after a session.
	Workspaces *WorkspaceStore
	Messages   *MessageStore
	// Services stores the services of threads.
	Services *ServiceStore
	// Sealing opens what callers seal for the workers of the cell.
	Sealing *Sealing

	conn *Conn
}

// Answer sends an event to the inbox of a caller. It returns once the event is handed to the connection. An inbox that no longer
// exists is not an error. Errors: permission_denied for a subject that is no inbox of the event's tenant, unavailable.
func (w *Worker) Answer(inbox string, ev *schemas.Event) error {
	body, err := ev.Encode()
	if err != nil || inbox == "" {
		return err
	}
	if !isReply(ev.Tenant, inbox) {
		return errNoInbox(ev.Tenant, inbox)
	}
	m := &nats.Msg{Subject: inbox, Data: body, Header: addTrace(nats.Header{headerType: {string(ev.Type)}}, ev.Origin)}
	return wrap(w.conn.nc.PublishMsg(m), "answer the caller")
}

// Locate returns the streams and subjects of the answer to a message: in the history, and as output. The sequences are 0.
func (w *Worker) Locate(p schemas.ProcessRef) (answer, output schemas.StreamRange) {
	c := w.conn
	return schemas.StreamRange{Stream: c.names.msg, Subject: c.subjects.Message(p.Tenant, p.Thread, p.Process, schemas.RoleAgent)},
		schemas.StreamRange{Stream: c.names.log, Subject: c.subjects.Log(p.Tenant, p.Thread, p.Process, schemas.Stdout)}
}

// Runner is a worker as an [Incarnation] runs it.
type Runner interface {
	Handler
	// Run works until ctx ends, and returns when its last record is written.
	Run(ctx context.Context) error
	// Register updates the worker's entry in the roster.
	Register(ctx context.Context) error
	// Fence stops all publishing and ends what runs: another incarnation has the lease.
	Fence()
	// Abandon stops all publishing and leaves what runs to the next incarnation: this one ends without a shutdown.
	Abandon()
}

// Incarnation is one run of a worker id, from the acquisition of its lease to the lease's release or loss.
type Incarnation struct {
	// ID is unique.
	ID       string
	Lease    *Lease
	Listener *Listener

	conn *Conn
}

// Lineage is what a worker keeps of its incarnations where it alone can: it shows that an earlier incarnation has ended.
type Lineage struct {
	// Begin records that an incarnation is about to acquire the lease, and returns earlier ones, which must have ended. Default: none
	// is known, and a lease that was not released has to expire.
	Begin func(incarnation string) (earlier []string, err error)
	// Waiting is called when the lease of another incarnation has to expire. Default: none.
	Waiting func(holder string)
}

// NewIncarnation acquires the lease of a worker id; see [Worker.AcquireLease]. Errors: those of AcquireLease and of Begin.
func (w *Worker) NewIncarnation(ctx context.Context, worker string, lineage Lineage) (*Incarnation, error) {
	id := ulid.Make().String()
	var earlier []string
	if lineage.Begin != nil {
		var err error
		if earlier, err = lineage.Begin(id); err != nil {
			return nil, err
		}
	}
	lease, err := w.AcquireLease(ctx, worker, id, earlier, lineage.Waiting)
	if err != nil {
		return nil, err
	}
	w.conn.room.reset()
	return &Incarnation{ID: id, Lease: lease, Listener: w.NewListener(worker), conn: w.conn}, nil
}

// Recover calls recover while the lease is renewed: it may take longer than the lease, and meanwhile no other worker may take over what it
// recovers. The lease is held after it, also when it fails: the next incarnation acquires it at once. Errors: lost when the lease is lost,
// which ends the context of recover; those of recover.
func (i *Incarnation) Recover(ctx context.Context, recover func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	keeping, recovered := context.WithCancel(ctx)
	group.Go(func() error { return i.Lease.keep(keeping, func(context.Context) {}) })
	group.Go(func() error {
		defer recovered()
		return recover(ctx)
	})
	return group.Wait()
}

// Run runs the lease, the listener and the worker until ctx ends or one of them fails. It calls ready when commands are accepted,
// and onRegister with the error of each update of the roster, nil included. The lease outlives the work: until the last record is
// written, no other worker may treat this one as dead. When the lease or the listener fails, what runs is left to the next
// incarnation, unless another one has the lease. Errors: lost when the lease is lost, those of the parts.
func (i *Incarnation) Run(ctx context.Context, r Runner, ready func(), onRegister func(error)) error {
	leaseCtx, endLease := context.WithCancel(context.WithoutCancel(ctx))
	defer endLease()
	group, ctx := errgroup.WithContext(ctx)
	failed := func(err error) error {
		switch {
		case err == nil:
		case errors.Is(err, schemas.ErrLost) && errors.Is(err, schemas.ErrConflict):
			r.Fence()
		default:
			i.Lease.expire()
			i.Listener.Threads.abandon()
			r.Abandon()
		}
		return err
	}
	group.Go(func() error {
		err := i.Lease.Run(leaseCtx, func(ctx context.Context) { onRegister(r.Register(ctx)) })
		if errors.Is(err, schemas.ErrLost) {
			return failed(err)
		}
		return err
	})
	group.Go(func() error {
		err := i.Listener.Run(ctx, r, ready)
		switch stopped := ctx.Err() != nil; {
		case !stopped:
			return failed(err)
		case errors.Is(err, context.Canceled):
			return nil // it was stopped before it listened
		}
		return err
	})
	group.Go(func() error {
		i.conn.watchRoom(leaseCtx, i.Lease.worker) // until the last record is written
		return nil
	})
	group.Go(func() error {
		(&tenantLogs{i.conn}).watch(leaseCtx, i.Lease.worker)
		return nil
	})
	group.Go(func() error {
		defer endLease()
		defer i.Listener.Threads.close()
		return r.Run(ctx)
	})
	return group.Wait()
}
