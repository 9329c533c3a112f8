package events

import (
	"cmp"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// fullTime is how long a full worker is not asked again, and a command waits for room, if no report of room arrives: a report is sent
// once, and a worker may die.
const fullTime = 5 * time.Second

// rooms are the queues whose first command waits for a worker with room.
type rooms struct {
	changes uint64 // the reports of room in other workers so far
	granted int    // queues whose first command is to have room in this worker, and is not decided on yet
	full    map[string]time.Time
	waiting map[string][]waiter // by the worker that owns the thread; those without an owner under ""
}

type waiter struct {
	queue *threadQueue
	seq   uint64 // of its first command: the oldest goes first
	since time.Time
}

func newRooms() rooms {
	return rooms{full: make(map[string]time.Time), waiting: make(map[string][]waiter)}
}

// take removes at most n queues that a worker with room may help, the oldest command first.
func (r *rooms) take(worker string, n int) (out []*threadQueue) {
	for n > 0 {
		from := worker
		own, others := r.waiting[worker], r.waiting[""]
		if len(own) == 0 && len(others) == 0 {
			break
		}
		if len(own) == 0 || len(others) > 0 && others[0].seq < own[0].seq {
			from = ""
		}
		if q := r.waiting[from][0].queue; len(q.items) > 0 { // else given up since
			out = append(out, q)
			n--
		}
		if r.waiting[from] = r.waiting[from][1:]; len(r.waiting[from]) == 0 {
			delete(r.waiting, from)
		}
	}
	return out
}

// awaitRoom lets a queue wait for room in a worker, or in any. known is the number of changes that its dispatch knew of. mu is held.
func (d *dispatcher) awaitRoom(q *threadQueue, worker string, known uint64) {
	self := d.listener.worker
	if d.rooms.changes != known && worker != self {
		d.enqueue(q) // another worker reported room meanwhile
		return
	}
	w := waiter{queue: q, seq: q.items[0].seq, since: time.Now()}
	list := d.rooms.waiting[worker]
	i, _ := slices.BinarySearchFunc(list, w.seq, func(w waiter, seq uint64) int { return cmp.Compare(w.seq, seq) })
	d.rooms.waiting[worker] = slices.Insert(list, i, w)
	if worker != "" && worker != self {
		return
	}
	d.listener.room.wanted.Store(true)
	d.fill() // it may have got room before it could know that this command waits
}

// fill dispatches commands that waited for room in this worker. Room that an older command is on its way to is not offered again: a
// younger one could get there first. mu is held.
func (d *dispatcher) fill() {
	if n := d.listener.room.free() - d.rooms.granted; n > 0 {
		d.hasRoomLocked(d.listener.worker, n)
	}
}

// spend ends the claim of a queue to room in this worker, once that has decided on its first command. mu is held.
func (d *dispatcher) spend(q *threadQueue) {
	if !q.room {
		return
	}
	q.room = false
	d.rooms.granted--
	if d.listener.room.wanted.Load() {
		d.fill()
	}
}

// hasRoom dispatches commands that waited for room: a worker has room for n.
func (d *dispatcher) hasRoom(worker string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hasRoomLocked(worker, n)
}

func (d *dispatcher) hasRoomLocked(worker string, n int) {
	own := worker == d.listener.worker
	if !own { // awaitRoom looks for its own room itself
		d.rooms.changes++
		delete(d.rooms.full, worker)
	}
	for _, q := range d.rooms.take(worker, n) {
		if q.room = own; own {
			d.rooms.granted++
		}
		d.enqueue(q)
	}
	if own {
		d.listener.room.wanted.Store(len(d.rooms.waiting[worker])+len(d.rooms.waiting[""]) > 0)
	}
}

// retryRooms dispatches again what has waited long for the room of another worker. mu is held.
func (d *dispatcher) retryRooms(now time.Time) {
	for worker, list := range d.rooms.waiting {
		if worker == d.listener.worker {
			continue
		}
		d.rooms.waiting[worker] = slices.DeleteFunc(list, func(w waiter) bool {
			if now.Sub(w.since) < fullTime {
				return false
			}
			d.enqueue(w.queue)
			return true
		})
	}
}

// isFull reports whether a worker had no room, and has not reported any since. changes is for setFull.
func (d *dispatcher) isFull(worker string) (is bool, changes uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.rooms.full[worker]) < fullTime, d.rooms.changes
}

// setFull notes that a worker has no room, unless room was reported since isFull.
func (d *dispatcher) setFull(worker string, changes uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rooms.changes == changes {
		d.rooms.full[worker] = time.Now()
	}
}

// handleRoom handles a report of room in another worker.
func (d *dispatcher) handleRoom(m *nats.Msg) {
	_, rest, ok := d.listener.conn.subjects.tokens(m.Subject)
	n, err := strconv.Atoi(string(m.Data))
	if ok && err == nil && n > 0 && rest[0] != d.listener.worker {
		d.roster.stale.Store(true)
		d.hasRoom(rest[0], n)
	}
}

// ownRoom is the room for commands in this worker, and what waits for it.
type ownRoom struct {
	conn   *Conn
	worker string
	free   func() int  // how many more commands there is room for
	wanted atomic.Bool // a command waits for it here
	owing  atomic.Bool // another worker waits for a report of it
}

// owe notes that another worker has a command for which this one had no room, and wants a report.
func (r *ownRoom) owe() {
	r.owing.Store(true)
	r.report() // it may have got room meanwhile
}

// report reports to all workers how many more commands this one has room for, if one of them waits for that.
func (r *ownRoom) report() {
	if n := r.free(); n > 0 && r.owing.Swap(false) {
		_ = r.conn.nc.Publish(r.conn.subjects.Room(r.worker), []byte(strconv.Itoa(n)))
	}
}

// Freed is called by the worker each time when it has room for one more command. It costs nothing while no command waits for that.
func (l *Listener) Freed() {
	if l.room.owing.Load() {
		l.room.report()
	}
	if !l.room.wanted.Load() {
		return
	}
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	l.dispatcher.fill()
}
