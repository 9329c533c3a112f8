package events

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// Bounds of a dispatcher.
const (
	maxDispatch = 256      // commands that this worker decides on at a time
	maxBodies   = 64 << 20 // bytes of waiting commands in memory; those above are read from CMD again
	retryDelay  = 500 * time.Millisecond
)

// dispatcher dispatches the commands of the partitions that this worker is pinned to. It has a queue for each thread, and dispatches
// the first command of each. A thread never waits for another one: what waits costs memory alone.
type dispatcher struct {
	listener   *Listener
	partitions []*partition
	roster     *liveRoster
	ctx        context.Context // of forwarding; it ends when the shutdown begins
	running    sync.WaitGroup

	mu      sync.Mutex
	queues  map[threadName]*threadQueue
	ready   turns // their first command can be dispatched
	local   int   // commands that this worker decides on
	bodies  int   // bytes of held commands
	rooms   rooms
	lacking map[*threadQueue]time.Time // no live worker serves their first command, since
	limited limited
	closed  bool
}

// threadQueue holds the commands of a thread, in order.
type threadQueue struct {
	name  threadName
	items []*unacked
	busy  bool // the first one is being dispatched, or waits for something
	room  bool // the first one is to have the room that this worker has got for it

	// declined are the workers that declined the first command, with what they offered. Only its dispatch uses it.
	declined map[string]string
}

func newDispatcher(ctx context.Context, l *Listener) *dispatcher {
	d := &dispatcher{
		listener: l, ctx: ctx, roster: &liveRoster{conn: l.conn},
		queues: make(map[threadName]*threadQueue), ready: newTurns(), rooms: newRooms(), lacking: make(map[*threadQueue]time.Time),
	}
	for n := range l.conn.topology.Partitions {
		d.partitions = append(d.partitions, &partition{listener: l, number: n, holds: holds{conn: l.conn, all: make(map[uint64]*unacked)}})
	}
	return d
}

// add takes a command that the consumer of a partition has delivered.
func (d *dispatcher) add(p *partition, h *unacked, m *stored) {
	tenant, thread, op, _ := d.listener.conn.subjects.ParseCommand(m.subject)
	name := threadName{tenant, thread}
	if op == schemas.OpCancel { // it waits for no command of its thread, and for no other cancel
		name.thread += "." + strconv.FormatUint(h.seq, 10)
	}
	h.at = p
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		p.acknowledge(h, ackNak)
		return
	}
	if known := p.all[h.seq]; known != nil { // delivered again
		known.ack, known.lost = h.ack, false
		p.fresh = append(p.fresh, known)
		return
	}
	if n := len(m.body); d.bodies+n <= maxBodies {
		h.msg = m
		d.bodies += n
	}
	p.add(h)
	q := d.queues[name]
	if q == nil {
		q = &threadQueue{name: name}
		d.queues[name] = q
	}
	h.queue = q
	q.insert(h)
	d.wake(q)
}

// insert keeps the order in which CMD stored the commands. The first one stays the first while it is dispatched.
func (q *threadQueue) insert(h *unacked) {
	i := len(q.items)
	for i > 0 && q.items[i-1].seq > h.seq && (i > 1 || !q.busy) {
		i--
	}
	q.items = slices.Insert(q.items, i, h)
}

// wake dispatches the first command of a queue, unless that one waits for something. mu is held.
func (d *dispatcher) wake(q *threadQueue) {
	if q.busy {
		return
	}
	q.busy = true
	d.enqueue(q)
}

// enqueue dispatches the first command of a queue as soon as there is capacity. mu is held.
func (d *dispatcher) enqueue(q *threadQueue) {
	d.ready.push(q)
	d.start()
}

func (d *dispatcher) start() {
	for !d.closed && d.local < maxDispatch {
		q := d.ready.pop()
		if q == nil {
			return
		}
		if len(q.items) == 0 { // given up since
			d.spend(q)
			continue
		}
		d.local++
		h, room := q.items[0], d.rooms.changes
		h.running = true
		d.running.Go(func() { d.settle(h, d.dispatch(h), room) })
	}
}

// outcome is what became of the first command of a queue.
type outcome struct {
	schemas.Verdict
	wait waitFor
	room string // the worker whose room it waits for; empty: that of any
}

// waitFor is what a command waits for.
type waitFor int

const (
	waitNothing waitFor = iota
	waitRoom            // a worker has room
	waitServer          // a worker serves it
	waitLimit           // a limit of the cell has room for it
)

// dispatch has this worker decide on a command, and passes it on to other workers if need be.
func (d *dispatcher) dispatch(h *unacked) outcome {
	_, ctx := d.listener.target()
	m, err := d.load(ctx, h)
	var body []byte
	var sealed error
	if err == nil {
		body, sealed = d.listener.conn.sealing.open(m)
	}
	var delivery schemas.Delivery
	out := outcome{Verdict: schemas.Verdict{Action: schemas.ActionRetry}}
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound): // it is too old, or was removed
		out.Action = schemas.ActionDone
	case errors.Is(sealed, schemas.ErrNotFound): // it waits for a worker that has the key
		out.wait = waitServer
	case sealed != nil:
		out.Verdict = schemas.Verdict{Action: schemas.ActionDead, Reason: schemas.AsError(sealed)}
		delivery = d.listener.decode(m.subject, nil, m.header)
	case err == nil:
		delivery = d.listener.decode(m.subject, body, m.header)
		delivery.Durable, delivery.Attempt, delivery.Sent = true, h.failures+1, h.sent
		out.Verdict = d.decide(ctx, h, delivery, m)
	}
	d.mu.Lock()
	d.local--
	d.start()
	d.spend(h.queue)
	d.mu.Unlock()
	switch out.Action {
	case schemas.ActionForward:
		out = d.forward(out.To, delivery, body)
	case schemas.ActionFull, schemas.ActionDecline:
		out = d.offer(h, out.Verdict, delivery, body)
	case schemas.ActionLimit:
		out.wait = waitLimit
	}
	if out.Action == schemas.ActionDead {
		out.Reason = shorten(cmp.Or(out.Reason, schemas.Errorf(schemas.CodeInternal, "the worker gave no reason")))
		if d.deadLetter(ctx, h, delivery, m, out.Reason) != nil {
			return outcome{Verdict: schemas.Verdict{Action: schemas.ActionRetry}}
		}
	}
	d.reportWaiting(h, delivery, out)
	return out
}

// load returns a command. One that is older than CMD keeps commands may be gone. Errors: jetstream.ErrMsgNotFound, those of nats.go.
func (d *dispatcher) load(ctx context.Context, h *unacked) (*stored, error) {
	conn := d.listener.conn
	if h.msg != nil && time.Since(h.sent) < conn.topology.CommandAge {
		return h.msg, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	s, err := conn.commands(ctx)
	if err != nil {
		return nil, err
	}
	m, err := s.GetMsg(ctx, h.seq)
	if err != nil {
		return nil, err
	}
	return &stored{m.Subject, m.Header, m.Data}, nil
}

// settle ends the dispatch of a command, or lets it wait. room is the number of changes of room that were known at its start.
func (d *dispatcher) settle(h *unacked, out outcome, room uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := h.queue
	h.running = false
	switch {
	case out.wait == waitNothing && out.Action == schemas.ActionDone:
		d.remove(h, ackDone)
	case out.wait == waitNothing && out.Action == schemas.ActionDead:
		d.remove(h, ackTerm+out.Reason.Message)
	case h.lost:
		d.remove(h, "")
	case d.closed:
	case out.wait == waitRoom:
		d.awaitRoom(q, out.room, room)
	case out.wait == waitServer:
		d.lacking[q] = time.Now()
	case out.wait == waitLimit:
		d.limited.add(q)
	default:
		h.failures++
		time.AfterFunc(retryDelay, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.again(h)
		})
	}
}

// again dispatches a command that has waited, unless it was given up since. mu is held.
func (d *dispatcher) again(h *unacked) {
	if !d.closed && h.at.all[h.seq] == h {
		d.enqueue(h.queue)
	}
}

// remove ends the work on the first command of a queue. mu is held.
func (d *dispatcher) remove(h *unacked, ack string) {
	if h.at.all[h.seq] == h {
		h.at.remove(h, ack)
	}
	d.drop(h)
	q := h.queue
	q.busy, q.declined = false, nil
	if len(q.items) > 0 {
		d.wake(q)
	}
}

// drop removes the first command of a queue. mu is held.
func (d *dispatcher) drop(h *unacked) {
	q := h.queue
	q.items = q.items[1:]
	if h.msg != nil {
		d.bodies -= len(h.msg.body)
	}
	if len(q.items) == 0 {
		delete(d.queues, q.name)
	}
}

// forget gives up the commands of a partition that another worker is pinned to, except those that are being dispatched.
func (d *dispatcher) forget(p *partition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, q := range d.queues {
		if q.items[0].at != p {
			continue
		}
		keep := 0
		if q.items[0].running {
			q.items[0].lost, keep = true, 1
		} else {
			delete(d.queues, name)
		}
		for _, h := range q.items[keep:] {
			delete(p.all, h.seq)
			if h.msg != nil {
				d.bodies -= len(h.msg.body)
			}
		}
		q.items = q.items[:keep]
	}
	p.sentinel, p.decided, p.fresh = nil, "", nil
}

// setUnread is that of a partition's holds.
func (d *dispatcher) setUnread(p *partition, on, all bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.setUnread(on, all)
}

// run holds what waits, and looks for workers that serve what no worker served before, until ctx ends.
func (d *dispatcher) run(ctx context.Context) error {
	var looking sync.WaitGroup
	defer looking.Wait()
	looking.Go(func() { d.lookForServers(ctx) })
	tick := time.NewTicker(holdTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			d.mu.Lock()
			for _, p := range d.partitions {
				p.keep(now)
			}
			d.retryRooms(now)
			for _, q := range d.limited.take() {
				d.enqueue(q)
			}
			d.mu.Unlock()
		}
	}
}

// close returns everything to CMD for another worker to take at once, and waits for what is being dispatched.
func (d *dispatcher) close(ctx context.Context) {
	d.mu.Lock()
	d.closed = true
	d.giveBack()
	d.mu.Unlock()
	d.running.Wait()
	d.mu.Lock()
	d.giveBack()
	d.mu.Unlock()
	if d.listener.conn.leased() != nil {
		return // NATS may be away, and the pins expire soon
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	for _, p := range d.partitions {
		p.unpin(ctx)
	}
}

// giveBack returns what is not being dispatched, in order. mu is held.
func (d *dispatcher) giveBack() {
	for _, p := range d.partitions {
		seqs := make([]uint64, 0, len(p.all))
		for seq, h := range p.all {
			if !h.running {
				seqs = append(seqs, seq)
			}
		}
		slices.Sort(seqs)
		for _, seq := range seqs {
			p.acknowledge(p.all[seq], ackNak)
			delete(p.all, seq)
		}
	}
}
