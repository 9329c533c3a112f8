package hooks

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/sync/errgroup"
)

// retriesAtOnce is how many failed hooks are tried again at the same time.
const retriesAtOnce = 4

// Retry tries failed pushes again, each after a growing wait, until ctx ends; it waits for those it has begun. What it has not
// got to by then is not lost: the next occasion of the thread pushes the whole workspace.
func (c *Chains) Retry(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(retriesAtOnce)
	for {
		r, err := c.retries.next(ctx)
		if err != nil {
			_ = group.Wait() // its functions return no error
			return err
		}
		group.Go(func() error {
			c.again(ctx, r)
			return nil
		})
	}
}

// again is one more try.
func (c *Chains) again(ctx context.Context, r *retry) {
	r.attempt++
	err := c.attempt(ctx, r.link, r.call, r.attempt)
	repeater, ok := r.link.hook.(Repeater)
	c.retries.tried(r, err != nil && ok && repeater.Again(err))
}

// retry is a hook that is to be tried again. A thread has one for each hook: the newest call stands for those before it.
type retry struct {
	key     retryKey
	link    *link
	call    *Call
	attempt int
	due     time.Time
	wait    *backoff.ExponentialBackOff
	busy    bool
}

type retryKey struct{ tenant, thread, hook string }

func keyOf(l *link, call *Call) retryKey {
	return retryKey{call.Conversation.Tenant, call.Conversation.Thread, l.name}
}

// retries are what is to be tried again, at most one for each thread and hook of this worker.
type retries struct {
	first, longest time.Duration

	mu   sync.Mutex
	all  map[retryKey]*retry
	wake chan struct{}
}

func newRetries(first, longest time.Duration) *retries {
	return &retries{first: first, longest: longest, all: make(map[retryKey]*retry), wake: make(chan struct{}, 1)}
}

func (q *retries) add(l *link, call *Call, attempt int) {
	later := *call
	later.Exec = nil // the sandbox may be gone by then
	r := &retry{
		key: keyOf(l, call), link: l, call: &later, attempt: attempt,
		wait: backoff.NewExponentialBackOff(backoff.WithInitialInterval(q.first), backoff.WithMaxInterval(q.longest), backoff.WithMaxElapsedTime(retryFor)),
	}
	r.due = time.Now().Add(r.wait.NextBackOff())
	q.mu.Lock()
	q.all[r.key] = r
	q.mu.Unlock()
	q.signal()
}

func (q *retries) drop(l *link, call *Call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.all, keyOf(l, call))
}

// tried gives a retry back.
func (q *retries) tried(r *retry, again bool) {
	q.mu.Lock()
	wait := r.wait.NextBackOff()
	switch {
	case q.all[r.key] != r: // a newer one has taken its place, or an occasion of the thread did the work
	case !again || wait == backoff.Stop:
		delete(q.all, r.key)
	default:
		r.busy, r.due = false, time.Now().Add(wait)
	}
	q.mu.Unlock()
	q.signal()
}

func (q *retries) signal() {
	select {
	case q.wake <- struct{}{}:
	default: // one is enough
	}
}

// next waits for a retry that is due. The error is ctx's.
func (q *retries) next(ctx context.Context) (*retry, error) {
	for ctx.Err() == nil {
		first := q.earliest()
		wait := time.Hour
		if first != nil {
			wait = time.Until(first.due)
		}
		if first != nil && wait <= 0 {
			if q.take(first) {
				return first, nil
			}
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-q.wake:
		case <-ctx.Done():
		}
		t.Stop()
	}
	return nil, ctx.Err()
}

func (q *retries) earliest() (first *retry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.all {
		if !r.busy && (first == nil || r.due.Before(first.due)) {
			first = r
		}
	}
	return first
}

func (q *retries) take(r *retry) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.all[r.key] != r || r.busy {
		return false
	}
	r.busy = true
	return true
}

// Pending is how many failed hooks are to be tried again.
func (c *Chains) Pending() int {
	c.retries.mu.Lock()
	defer c.retries.mu.Unlock()
	return len(c.retries.all)
}
