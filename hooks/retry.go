package hooks

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/sync/errgroup"
)

// maxRetries is the number of failed hooks that are retried concurrently.
const maxRetries = 4

// Retry retries failed pushes, each after a growing wait, until ctx ends. It then waits for the retries that run. The thread's
// next occasion pushes what is still pending.
func (c *Chains) Retry(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(maxRetries)
	for {
		r, err := c.retries.next(ctx)
		if err != nil {
			_ = group.Wait() // its functions return no error
			return err
		}
		group.Go(func() error {
			r.attempt++
			err := c.attempt(ctx, r.link, r.call, r.attempt)
			hook, ok := r.link.hook.(Retrier)
			c.retries.finish(r, err != nil && ok && hook.ShouldRetry(err))
			return nil
		})
	}
}

// Pending returns the number of failed hooks that wait for a retry.
func (c *Chains) Pending() int {
	c.retries.mu.Lock()
	defer c.retries.mu.Unlock()
	return len(c.retries.byKey)
}

// updateRetry queues or removes the retry of a hook after an attempt.
func (c *Chains) updateRetry(l *link, call *Call, attempt int, err error) {
	hook, ok := l.hook.(Retrier)
	switch {
	case !ok:
	case err == nil:
		c.retries.remove(l, call)
	case !l.critical && hook.ShouldRetry(err):
		c.retries.add(l, call, attempt)
	}
}

// retry is a failed hook that is to run again.
type retry struct {
	key     retryKey
	link    *link
	call    *Call
	attempt int
	due     time.Time
	wait    *backoff.ExponentialBackOff
	running bool
}

type retryKey struct{ tenant, thread, hook string }

func keyOfRetry(l *link, call *Call) retryKey {
	return retryKey{call.Conversation.Tenant, call.Conversation.Thread, l.name}
}

// retryQueue holds at most one retry for each thread and hook: the newest call replaces older ones.
type retryQueue struct {
	first, longest time.Duration

	mu    sync.Mutex
	byKey map[retryKey]*retry
	wake  chan struct{}
}

func newRetryQueue(first, longest time.Duration) *retryQueue {
	return &retryQueue{first: first, longest: longest, byKey: make(map[retryKey]*retry), wake: make(chan struct{}, 1)}
}

func (q *retryQueue) add(l *link, call *Call, attempt int) {
	later := *call
	later.Exec = nil // the sandbox may be gone by then
	r := &retry{
		key: keyOfRetry(l, call), link: l, call: &later, attempt: attempt,
		wait: backoff.NewExponentialBackOff(backoff.WithInitialInterval(q.first), backoff.WithMaxInterval(q.longest), backoff.WithMaxElapsedTime(retryFor)),
	}
	r.due = time.Now().Add(r.wait.NextBackOff())
	q.mu.Lock()
	q.byKey[r.key] = r
	q.mu.Unlock()
	q.signal()
}

func (q *retryQueue) remove(l *link, call *Call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.byKey, keyOfRetry(l, call))
}

// finish ends an attempt, and schedules the next one if again is set and the time for retries has not run out.
func (q *retryQueue) finish(r *retry, again bool) {
	q.mu.Lock()
	wait := r.wait.NextBackOff()
	switch {
	case q.byKey[r.key] != r: // replaced by a newer call, or removed by a success
	case !again || wait == backoff.Stop:
		delete(q.byKey, r.key)
	default:
		r.running, r.due = false, time.Now().Add(wait)
	}
	q.mu.Unlock()
	q.signal()
}

func (q *retryQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default: // a signal is pending already
	}
}

// next waits for a retry that is due, and marks it as running. The error is ctx's.
func (q *retryQueue) next(ctx context.Context) (*retry, error) {
	for ctx.Err() == nil {
		r, wait := q.takeDue()
		if r != nil {
			return r, nil
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

// takeDue marks the earliest retry as running if it is due. Otherwise it returns nil and how long to wait.
func (q *retryQueue) takeDue() (*retry, time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var earliest *retry
	for _, r := range q.byKey {
		if !r.running && (earliest == nil || r.due.Before(earliest.due)) {
			earliest = r
		}
	}
	if earliest == nil {
		return nil, time.Hour // a new retry wakes the caller
	}
	if wait := time.Until(earliest.due); wait > 0 {
		return nil, wait
	}
	earliest.running = true
	return earliest, 0
}
