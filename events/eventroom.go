package events

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// Room in EVT, which drops nothing before its age. See docs/adr/0023.
const (
	// reservedShare of EVT is for the records of processes that have been accepted, half of it also for other events.
	reservedShare = 8
	// endBytes bounds what the end of a process needs beside its command, which the first record has too.
	endBytes = 2*schemas.MaxRecordOutput + 8<<10
	// messageBytes bounds what EVT stores of an event beside its subject and body.
	messageBytes = 256
	// roomCheck is the least time between two reads of the state of EVT.
	roomCheck = time.Second
)

// eventRoom knows how full EVT is: by its state at the last read, and by what this connection has stored since. A process is
// accepted only if EVT has room for its end, and for those of all processes that this connection has accepted.
type eventRoom struct {
	wake  chan struct{} // a read of the state is due
	state sync.Mutex    // held from the request for the state until it is noted, so that no older state replaces a newer one

	mu       sync.Mutex
	max      int64 // 0 for no bound
	age      time.Duration
	used     int64            // at the last read
	since    int64            // stored since
	promised map[string]int64 // by process: what its further records may need
	sum      int64            // of promised
	shares   eventShares
}

func newEventRoom() *eventRoom {
	return &eventRoom{wake: make(chan struct{}, 1), promised: make(map[string]int64), shares: newEventShares()}
}

// acceptBytes is how much EVT may hold when a process is accepted, the ends of all processes included; 0 for no bound.
func acceptBytes(limit int64) int64 { return max(limit-limit/reservedShare, 0) }

// update notes the state of EVT. The lock of the state is held. since is what this connection had stored when the read began.
func (r *eventRoom) update(info *jetstream.StreamInfo, since int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.max, r.age, r.used = max(info.Config.MaxBytes, 0), info.Config.MaxAge, int64(info.State.Bytes)
	r.since -= since
	_, r.shares.most = budgetsOf(info.Config.Metadata)
	r.shares.own.set(Topology{LogTenantBytes: r.max})
}

// admit counts an event that is about to be stored. Errors: limit_exceeded when the event would take the room of those that EVT
// must be able to store.
func (r *eventRoom) admit(ev *schemas.Event, m *nats.Msg, first bool) error {
	select {
	case r.wake <- struct{}{}:
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	size := eventSize(ev, m)
	key := processKey(ev)
	var promise, reserved int64
	switch {
	case ev.Type == schemas.TypeProcessAccepted:
		promise, reserved = 2*size+endBytes, r.max/reservedShare
	case ev.Type == schemas.TypeProcessRejected && first: // of a process that was not accepted
		reserved = r.max / reservedShare
	case !ev.Type.OfProcess():
		reserved = r.max / reservedShare / 2
	}
	if r.max > 0 && reserved > 0 && r.used+r.since+r.sum+size+promise+reserved > r.max {
		return schemas.Errorf(schemas.CodeLimitExceeded, "the stream EVT holds %d of %d MiB, and the rest is for the ends of processes that run: wait until older records expire, after %s, or enlarge EVT by --event-bytes",
			(r.used+r.since)>>20, r.max>>20, r.age)
	}
	if promise > 0 || ev.Type == schemas.TypeProcessRejected && first {
		if err := r.share(ev.Tenant, size+promise, 0); err != nil {
			return err
		}
	}
	r.since += size
	if promise > 0 {
		r.promise(ev.Tenant, key, promise)
	}
	return nil
}

// promise sets what is promised to a process. mu is held.
func (r *eventRoom) promise(tenant, key string, bytes int64) {
	more := bytes - r.promised[key]
	r.sum += more
	addTo(r.shares.promised, tenant, more)
	if r.promised[key] = bytes; bytes == 0 {
		delete(r.promised, key)
	}
}

func addTo(sums map[string]int64, tenant string, n int64) {
	if sums[tenant] += n; sums[tenant] == 0 {
		delete(sums, tenant)
	}
}

// settle releases what was promised to a process that was not accepted, or whose end is on record.
func (r *eventRoom) settle(ev *schemas.Event, err error) {
	refused := ev.Type == schemas.TypeProcessAccepted && err != nil
	ended := ev.Type.Terminal() && (err == nil || errors.Is(err, schemas.ErrConflict))
	if !refused && !ended {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.promise(ev.Tenant, processKey(ev), 0)
}

// reset forgets the processes of an earlier incarnation of the worker. Those that go on have room in the reserve.
func (r *eventRoom) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.promised)
	clear(r.shares.promised)
	r.sum = 0
}

func processKey(ev *schemas.Event) string { return ev.Tenant + "." + ev.Thread + "." + ev.Process }

// watchRoom reads the state of EVT while this connection stores events, and what EVT holds of each tenant, until ctx ends. The state does
// not wait for the tenants: the ends of processes depend on it.
func (c *Conn) watchRoom(ctx context.Context, worker string) {
	states := make(chan *jetstream.StreamInfo, 1)
	load := true // what an earlier incarnation stored
	var shares sync.WaitGroup
	shares.Go(func() {
		for info := range states {
			if c.room.exchange(ctx, c, worker, info, load) == nil {
				load = false
			}
		}
	})
	for {
		if info := c.room.read(ctx, c); info != nil {
			select {
			case states <- info:
			default: // the one before is not read yet
			}
		}
		if sleep(ctx, roomCheck) != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-c.room.wake:
			continue
		}
		break
	}
	close(states)
	shares.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	if info := c.room.read(last, c); info != nil {
		_ = c.room.exchange(last, c, worker, info, load)
	}
}

// read returns the state of EVT, or nil if it cannot be read: the next read has it.
func (r *eventRoom) read(ctx context.Context, c *Conn) *jetstream.StreamInfo {
	r.state.Lock()
	defer r.state.Unlock()
	r.mu.Lock()
	since := r.since
	r.mu.Unlock()
	s, err := c.js.Stream(ctx, c.names.evt)
	if err != nil {
		return nil
	}
	r.update(s.CachedInfo(), since)
	return s.CachedInfo()
}
