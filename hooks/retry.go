package hooks

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/schemas"
)

// maxRetries is the number of failed hooks that are retried concurrently.
const maxRetries = 4

// Retry retries failed hooks, each after a growing wait, until ctx ends; also what an earlier run of the worker left: pushes and messages. It
// then waits for the retries that run. The thread's next occasion pushes what is still owed.
func (c *Chains) Retry(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(maxRetries)
	c.loadUnsaved()
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		c.loadOwed(ctx)
	}()
	defer func() { <-loaded }()
	for {
		r, err := c.retries.next(ctx)
		if err != nil {
			_ = group.Wait() // its functions return no error
			return err
		}
		group.Go(func() error {
			if r.owed != nil {
				c.retryPush(ctx, r)
				return nil
			}
			r.attempt++
			err := c.attempt(ctx, r.link, r.call, r.attempt)
			hook, ok := r.link.hook.(Retrier)
			c.retries.finish(r, err != nil && ok && hook.ShouldRetry(err), 0)
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

// updateRetry queues or removes the retry of a hook after an attempt that began at turn.
func (c *Chains) updateRetry(ctx context.Context, l *link, call *Call, turn uint64, attempt int, err error) {
	hook, ok := l.hook.(Retrier)
	_, pushes := l.hook.(pushWorkspace)
	switch {
	case !ok:
	case err == nil:
		c.settle(ctx, c.retries.remove(keyOfRetry(l, call), turn))
	case pushes && hook.ShouldRetry(err):
		c.owe(ctx, l, call, turn, attempt, err)
	case !pushes && !l.critical && hook.ShouldRetry(err):
		c.retries.add(newRetry(l, call, turn, attempt), 0)
	}
}

// retry is a failed hook that is to run again.
type retry struct {
	key     retryKey
	link    *link
	call    *Call
	turn    uint64 // of the newest call that failed: the success of one that began before leaves this retry
	attempt int
	owed    *schemas.OwedPush // nil unless the hook is a push; never changed once it is queued
	due     time.Time
	wait    *backoff.ExponentialBackOff
	running bool
}

// newRetry returns a retry for the queue to schedule.
func newRetry(l *link, call *Call, turn uint64, attempt int) *retry {
	later := *call
	later.Exec = nil // the sandbox may be gone by then
	return &retry{key: keyOfRetry(l, call), link: l, call: &later, turn: turn, attempt: attempt}
}

type retryKey struct{ tenant, thread, hook string }

// keyOfRetry is the same for all pushes of a thread, however their hooks are named: the latest one pushes everything.
func keyOfRetry(l *link, call *Call) retryKey {
	name := l.name
	if _, pushes := l.hook.(pushWorkspace); pushes {
		name = schemas.HookPush
	}
	return retryKey{call.Conversation.Tenant, call.Conversation.Thread, name}
}

// retryQueue holds at most one retry for each thread and hook: the newest call replaces older ones.
type retryQueue struct {
	first, longest time.Duration

	mu    sync.Mutex
	turns uint64 // the last turn that was given out
	byKey map[retryKey]*retry
	wake  chan struct{}
}

// begin returns the turn of an attempt that begins now. What the attempt reads is at least as new as what attempts with a smaller turn were
// asked to store, also when it ends before they do; it may lack what those with a larger turn were asked for.
func (q *retryQueue) begin() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.turns++
	return q.turns
}

func newRetryQueue(first, longest time.Duration) *retryQueue {
	return &retryQueue{first: first, longest: longest, byKey: make(map[retryKey]*retry), wake: make(chan struct{}, 1)}
}

// add queues a retry. It is due after the first wait, or after least if that is longer.
func (q *retryQueue) add(r *retry, least time.Duration) {
	q.mu.Lock()
	q.addLocked(r, least)
	q.mu.Unlock()
	q.signal()
}

// addAbsent is add unless the key has a retry, and the retry is due at once.
func (q *retryQueue) addAbsent(r *retry) {
	q.mu.Lock()
	if q.byKey[r.key] == nil {
		q.turns++ // an attempt under way may have begun before there was something to retry
		r.turn = q.turns
		q.addLocked(r, 0)
		r.due = time.Now()
	}
	q.mu.Unlock()
	q.signal()
}

func (q *retryQueue) addLocked(r *retry, least time.Duration) {
	most := retryFor
	if r.owed != nil {
		most = 0 // without an end
	}
	r.wait = backoff.NewExponentialBackOff(backoff.WithInitialInterval(q.first), backoff.WithMaxInterval(q.longest), backoff.WithMaxElapsedTime(most))
	r.due = time.Now().Add(max(r.wait.NextBackOff(), least))
	if before := q.byKey[r.key]; before != nil {
		r.turn = max(r.turn, before.turn) // an attempt that began first may fail last
	}
	q.byKey[r.key] = r
}

// remove removes a retry of calls that began before turn, whose attempt has succeeded, and returns it; nil for none.
func (q *retryQueue) remove(key retryKey, turn uint64) *retry {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.byKey[key]
	if r == nil || r.turn > turn {
		return nil
	}
	delete(q.byKey, key)
	return r
}

// owed returns a copy of the push that is owed under a key, nil for none.
func (q *retryQueue) owed(key retryKey) *schemas.OwedPush {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.byKey[key]
	if r == nil || r.owed == nil {
		return nil
	}
	owed := *r.owed
	return &owed
}

// finish ends an attempt. It schedules the next one, not before least, if again is set and the time for retries has not run out. It
// returns whether the retry was still the current one of its key.
func (q *retryQueue) finish(r *retry, again bool, least time.Duration) bool {
	q.mu.Lock()
	wait, current := r.wait.NextBackOff(), q.byKey[r.key] == r
	switch {
	case !current: // replaced by a newer call, or removed by a success
	case !again || wait == backoff.Stop:
		delete(q.byKey, r.key)
	default:
		r.running, r.due = false, time.Now().Add(max(wait, least))
	}
	q.mu.Unlock()
	q.signal()
	return current
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
