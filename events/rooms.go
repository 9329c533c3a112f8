package events

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// fullTime is how long a full worker is not asked again, and a command waits for room, if no report of room arrives: a report is sent
// once, and a worker may die.
const fullTime = 5 * time.Second

// rooms are the queues whose first command waits for a worker with room. Room goes to the tenants in turn, and to the threads of each in
// turn.
type rooms struct {
	changes  uint64 // the reports of room in other workers so far
	granted  grants // queues whose first command is to have room in this worker, and is not decided on yet
	full     map[tenantAt]time.Time
	tenants  map[string]*tenantRooms
	order    []string       // of the tenants, the next one first
	byWorker map[string]int // how many queues wait for a worker; those of threads without an owner under ""
}

// tenantAt is a tenant at a worker.
type tenantAt struct{ tenant, worker string }

// grants count queues, by tenant.
type grants struct {
	sum      int
	byTenant map[string]int
}

func (g *grants) add(tenant string, n int) {
	g.sum += n
	if g.byTenant[tenant] += n; g.byTenant[tenant] == 0 {
		delete(g.byTenant, tenant)
	}
}

// tenantRooms are the queues of a tenant. What begins to wait is in the round after the present one: each thread has one command in a round.
type tenantRooms struct {
	round   uint64
	waiting map[string][]waiter // by the worker that owns the thread; in order
}

type waiter struct {
	queue *threadQueue
	round uint64
	seq   uint64 // of its first command: in a round the oldest goes first
	since time.Time
}

func (w waiter) compare(to waiter) int {
	return cmp.Or(cmp.Compare(w.round, to.round), cmp.Compare(w.seq, to.seq))
}

func newRooms() rooms {
	return rooms{
		granted: grants{byTenant: make(map[string]int)}, full: make(map[tenantAt]time.Time), tenants: make(map[string]*tenantRooms),
		byWorker: make(map[string]int),
	}
}

// add lets the first command of a queue wait for a worker. One that had its turn, and still found no room, keeps it.
func (r *rooms) add(worker string, q *threadQueue, since time.Time) {
	t := r.tenants[q.name.tenant]
	if t == nil {
		t = &tenantRooms{waiting: make(map[string][]waiter)}
		r.tenants[q.name.tenant] = t
		r.order = append(r.order, q.name.tenant)
	}
	h := q.items[0]
	h.round = cmp.Or(h.round, t.round+1)
	w := waiter{queue: q, round: h.round, seq: h.seq, since: since}
	list := t.waiting[worker]
	i, _ := slices.BinarySearchFunc(list, w, waiter.compare)
	t.waiting[worker] = slices.Insert(list, i, w)
	r.byWorker[worker]++
}

// take removes the next queue that a worker with room may help; nil for none. room reports whether it has some for a thread, and for a
// tenant when the thread is empty.
func (r *rooms) take(worker string, room func(tenant, thread string) bool) *threadQueue {
	for i := 0; i < len(r.order); {
		tenant := r.order[i]
		t := r.tenants[tenant]
		var q *threadQueue
		if room(tenant, "") {
			q = r.takeOf(t, worker, func(thread string) bool { return room(tenant, thread) })
		}
		if q == nil && len(t.waiting) > 0 {
			i++
			continue
		}
		r.order = slices.Delete(r.order, i, i+1)
		if len(t.waiting) == 0 {
			delete(r.tenants, tenant)
		} else {
			r.order = append(r.order, tenant)
		}
		if q != nil {
			return q
		}
	}
	return nil
}

// takeOf is take for one tenant.
func (r *rooms) takeOf(t *tenantRooms, worker string, room func(thread string) bool) *threadQueue {
	best, from, at := waiter{}, "", -1
	for _, of := range []string{worker, ""} {
		for len(t.waiting[of]) > 0 && len(t.waiting[of][0].queue.items) == 0 { // given up since
			r.remove(t, of, 0)
		}
		i := slices.IndexFunc(t.waiting[of], func(w waiter) bool { return len(w.queue.items) > 0 && room(w.queue.name.thread) })
		if i >= 0 && (at < 0 || t.waiting[of][i].compare(best) < 0) {
			best, from, at = t.waiting[of][i], of, i
		}
	}
	if at < 0 {
		return nil
	}
	r.remove(t, from, at)
	t.round = max(t.round, best.round)
	return best.queue
}

func (r *rooms) remove(t *tenantRooms, worker string, i int) {
	if t.waiting[worker] = slices.Delete(t.waiting[worker], i, i+1); len(t.waiting[worker]) == 0 {
		delete(t.waiting, worker)
	}
	if r.byWorker[worker]--; r.byWorker[worker] == 0 {
		delete(r.byWorker, worker)
	}
}

// awaitRoom lets a queue wait for room in a worker, or in any. known is the number of changes that its dispatch knew of. mu is held.
func (d *dispatcher) awaitRoom(q *threadQueue, worker string, known uint64) {
	self := d.listener.worker
	if d.rooms.changes != known && worker != self {
		d.enqueue(q) // another worker reported room meanwhile
		return
	}
	d.rooms.add(worker, q, time.Now())
	if worker != "" && worker != self {
		return
	}
	d.listener.room.wanted.Store(true)
	d.fill() // it may have got room before it could know that this command waits
}

// fill dispatches commands that waited for room in this worker. Room that an older command is on its way to is not offered again: a
// younger one could get there first. mu is held.
func (d *dispatcher) fill() {
	room := d.listener.room
	for n := room.free() - d.rooms.granted.sum; n > 0; n-- {
		q := d.rooms.take(d.listener.worker, func(tenant, thread string) bool {
			return room.freeFor(tenant, thread) > d.rooms.granted.byTenant[tenant]
		})
		if q == nil {
			break
		}
		q.room = true
		d.rooms.granted.add(q.name.tenant, 1)
		d.enqueue(q)
	}
	room.wanted.Store(d.rooms.byWorker[d.listener.worker]+d.rooms.byWorker[""] > 0)
}

// spend ends the claim of a queue to room in this worker, once that has decided on its first command. mu is held.
func (d *dispatcher) spend(q *threadQueue) {
	if !q.room {
		return
	}
	q.room = false
	d.rooms.granted.add(q.name.tenant, -1)
	if d.listener.room.wanted.Load() {
		d.fill()
	}
}

// hasRoom dispatches commands that waited for room: another worker has room for n, of these tenants alone unless there are none.
func (d *dispatcher) hasRoom(worker string, n int, tenants []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	of := func(tenant, _ string) bool { return len(tenants) == 0 || slices.Contains(tenants, tenant) }
	d.rooms.changes++
	maps.DeleteFunc(d.rooms.full, func(at tenantAt, _ time.Time) bool { return at.worker == worker && of(at.tenant, "") })
	for ; n > 0; n-- {
		q := d.rooms.take(worker, of)
		if q == nil {
			return
		}
		d.enqueue(q)
	}
}

// retryRooms dispatches again what has waited long for the room of another worker. mu is held.
func (d *dispatcher) retryRooms(now time.Time) {
	maps.DeleteFunc(d.rooms.full, func(_ tenantAt, since time.Time) bool { return now.Sub(since) >= fullTime })
	for _, q := range d.rooms.overdue(d.listener.worker, now) {
		d.enqueue(q)
	}
}

// overdue removes what has waited long for the room of another worker than this.
func (r *rooms) overdue(self string, now time.Time) (out []*threadQueue) {
	for _, t := range r.tenants {
		for worker, list := range t.waiting {
			if worker == self {
				continue
			}
			rest := slices.DeleteFunc(list, func(w waiter) bool {
				if now.Sub(w.since) < fullTime {
					return false
				}
				out = append(out, w.queue)
				return true
			})
			if r.byWorker[worker] -= len(list) - len(rest); len(rest) == 0 {
				delete(t.waiting, worker)
			} else {
				t.waiting[worker] = rest
			}
		}
	}
	return out
}

// isFull reports whether a worker had no room for a tenant, and has not reported any since. changes is for setFull.
func (d *dispatcher) isFull(worker, tenant string) (is bool, changes uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.rooms.full[tenantAt{tenant, worker}]) < fullTime, d.rooms.changes
}

// setFull notes that a worker has no room for a tenant, unless room was reported since isFull.
func (d *dispatcher) setFull(worker, tenant string, changes uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rooms.changes == changes {
		d.rooms.full[tenantAt{tenant, worker}] = time.Now()
	}
}

// handleRoom handles a report of room in another worker.
func (d *dispatcher) handleRoom(m *nats.Msg) {
	_, rest, ok := d.listener.conn.subjects.tokens(m.Subject)
	n, err := strconv.Atoi(string(m.Data))
	if ok && err == nil && n > 0 && rest[0] != d.listener.worker {
		d.roster.stale.Store(true)
		d.hasRoom(rest[0], n, m.Header[headerTenant])
	}
}

// maxOwed bounds the threads that a worker owes a report of room. Of further ones it knows the tenant: they count as a new thread.
const (
	maxOwed   = 1024
	newThread = "*" // no thread's name
)

// ownRoom is the room for commands in this worker, and what waits for it.
type ownRoom struct {
	conn    *Conn
	worker  string
	free    func() int                      // how many more commands there is room for
	freeFor func(tenant, thread string) int // the same for a thread, or for a tenant when the thread is empty
	wanted  atomic.Bool                     // a command waits for it here

	mu    sync.Mutex
	owed  map[threadName]bool // other workers wait for a report of room for these
	owing atomic.Bool         // there are some
}

// owe notes that another worker has a command of a thread for which this one had no room, and wants a report.
func (r *ownRoom) owe(name threadName) {
	r.mu.Lock()
	if len(r.owed) >= maxOwed {
		name.thread = newThread
	}
	r.owed[name] = true
	r.owing.Store(true)
	r.mu.Unlock()
	r.report() // it may have got room meanwhile
}

// report reports to all workers how many more commands this one has room for, if one of them waits for that.
func (r *ownRoom) report() {
	n := r.free()
	if n <= 0 || !r.owing.Load() {
		return
	}
	var tenants []string
	r.mu.Lock()
	maps.DeleteFunc(r.owed, func(name threadName, _ bool) bool {
		has := r.freeFor(name.tenant, name.thread) > 0
		if has && !slices.Contains(tenants, name.tenant) {
			tenants = append(tenants, name.tenant)
		}
		return has
	})
	r.owing.Store(len(r.owed) > 0)
	r.mu.Unlock()
	if len(tenants) > 0 {
		r.publish(n, tenants)
	}
}

// announce reports the room of a worker that has started, to all tenants.
func (r *ownRoom) announce() {
	if n := r.free(); n > 0 {
		r.publish(n, nil)
	}
}

func (r *ownRoom) publish(n int, tenants []string) {
	m := &nats.Msg{Subject: r.conn.subjects.Room(r.worker), Data: []byte(strconv.Itoa(n))}
	if len(tenants) > 0 {
		m.Header = nats.Header{headerTenant: tenants}
	}
	_ = r.conn.nc.PublishMsg(m)
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
