package events

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

const (
	// rosterTime is how long the list of live workers is used.
	rosterTime = time.Second
	// serverLook is the interval between two looks for a worker that serves what no worker served before.
	serverLook = 2 * time.Second
	// serverRetry is the time after which such a command is offered again although the workers did not change.
	serverRetry = 30 * time.Second
)

// forward passes a command on to the worker that owns its thread.
func (d *dispatcher) forward(owner string, c schemas.Delivery, body []byte) outcome {
	v, _ := d.listener.forward(d.ctx, owner, c, body)
	switch v.Action {
	case schemas.ActionFull:
		return outcome{Verdict: v, wait: waitRoom, room: owner}
	case schemas.ActionDecline:
		return outcome{Verdict: v, wait: waitServer}
	case schemas.ActionLimit:
		return outcome{Verdict: v, wait: waitLimit}
	default:
		return outcome{Verdict: v}
	}
}

// offer passes a command of a thread without an owner on to the live workers, one after the other, until one takes it. own is what this
// worker made of it: it is full, or does not serve it.
func (d *dispatcher) offer(h *unacked, own schemas.Verdict, c schemas.Delivery, body []byte) outcome {
	if own.Action == schemas.ActionFull && own.To != "" { // the owner itself: no other worker may take the thread
		return outcome{Verdict: own, wait: waitRoom, room: own.To}
	}
	workers, err := d.roster.live(d.ctx)
	if err != nil {
		return outcome{Verdict: schemas.Verdict{Action: schemas.ActionRetry}}
	}
	q, full := h.queue, own.Action == schemas.ActionFull
	for _, w := range workers {
		if w.ID == d.listener.worker || q.declined[w.ID] == offers(&w) || !mayServe(&w, c.Command) {
			continue
		}
		known, changes := d.isFull(w.ID, c.Tenant)
		if known {
			full = true
			continue
		}
		v, err := d.listener.forward(d.ctx, w.ID, c, body)
		switch v.Action {
		case schemas.ActionDone, schemas.ActionDead:
			return outcome{Verdict: v}
		case schemas.ActionLimit:
			return outcome{Verdict: v, wait: waitLimit}
		case schemas.ActionFull:
			d.setFull(w.ID, c.Tenant, changes)
			full = true
		case schemas.ActionDecline:
			if q.declined == nil {
				q.declined = make(map[string]string)
			}
			q.declined[w.ID] = offers(&w)
		default:
			if err == nil { // it may have taken the thread
				return outcome{Verdict: v}
			}
			d.setFull(w.ID, c.Tenant, changes) // it is starting, ending or frozen: do not wait for it again soon
			full = true
		}
	}
	if full {
		return outcome{Verdict: own, wait: waitRoom}
	}
	return outcome{Verdict: own, wait: waitServer}
}

// mayServe reports whether a worker offers the provider and has the template that a command names. The worker itself decides.
func mayServe(w *schemas.WorkerInfo, c *schemas.Command) bool {
	provider := c.Provider == "" || c.Provider == schemas.ProviderAuto || slices.Contains(w.Providers, c.Provider)
	return provider && (c.Template == "" || len(w.Templates) == 0 || slices.Contains(w.Templates, c.Template))
}

// offers describes what an incarnation of a worker serves: as long as it is the same, the worker decides the same.
func offers(w *schemas.WorkerInfo) string {
	providers, templates := slices.Sorted(slices.Values(w.Providers)), slices.Sorted(slices.Values(w.Templates))
	return fmt.Sprint(w.ID, " ", w.Incarnation, " ", strings.Join(providers, ","), " ", strings.Join(templates, ","))
}

// liveRoster lists the workers whose lease has not expired.
type liveRoster struct {
	conn *Conn

	stale   atomic.Bool // a worker may be new
	mu      sync.Mutex
	workers []schemas.WorkerInfo
	read    time.Time
}

// live returns the live workers, in any order.
func (r *liveRoster) live(ctx context.Context) ([]schemas.WorkerInfo, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stale.Swap(false) || time.Since(r.read) >= rosterTime {
		leases, err := r.conn.liveLeases(ctx)
		if err != nil {
			return nil, err
		}
		workers, err := r.conn.listWorkers(ctx)
		if err != nil {
			return nil, err
		}
		r.workers = slices.DeleteFunc(workers, func(w schemas.WorkerInfo) bool { return !leases[w.ID] || !schemas.ValidID(w.ID) })
		r.read = time.Now()
	}
	workers := slices.Clone(r.workers)
	rand.Shuffle(len(workers), func(i, j int) { workers[i], workers[j] = workers[j], workers[i] })
	return workers, nil
}

// lookForServers dispatches again what no live worker served, each time that the workers change.
func (d *dispatcher) lookForServers(ctx context.Context) {
	known := ""
	tick := time.NewTicker(serverLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		d.mu.Lock()
		n := len(d.lacking)
		d.mu.Unlock()
		if n == 0 {
			continue
		}
		workers, err := d.roster.live(ctx)
		if err != nil {
			continue
		}
		var all []string
		for i := range workers {
			all = append(all, offers(&workers[i]))
		}
		slices.Sort(all)
		now := strings.Join(all, "\n")
		d.mu.Lock()
		for q, since := range d.lacking {
			if now != known || time.Since(since) >= serverRetry {
				delete(d.lacking, q)
				d.enqueue(q)
			}
		}
		d.mu.Unlock()
		known = now
	}
}

// encodeVerdict returns the reason of a verdict as another worker gets it.
func encodeVerdict(v schemas.Verdict) []byte {
	if v.Reason == nil {
		return nil
	}
	body, _ := json.Marshal(shorten(v.Reason)) // it holds only strings
	return body
}
