package hooks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// A push that fails is owed until it succeeds:
//
//	push fails ─► Config.Owed and the queue ─► pushed again, by the template's location at that time ─► settled by a success
//	                  ▲                             of any push of the thread that began later
//	                  └── loaded when the worker starts, and now and then: another worker may have added one for this one
//
// The workspace is on this worker's disk, so that only this worker can push it.

// Owed returns the push that is owed for a thread; nil for none.
func (c *Chains) Owed(tenant, thread string) *schemas.OwedPush {
	return c.retries.owed(retryKey{tenant, thread, schemas.HookPush})
}

// owe stores and queues a push that failed.
func (c *Chains) owe(ctx context.Context, l *link, call *Call, turn uint64, attempt int, err error) {
	r, conversation := newRetry(l, call, turn, attempt), call.Conversation
	r.owed = &schemas.OwedPush{
		Tenant: conversation.Tenant, Thread: conversation.Thread, Worker: c.cfg.Worker, Session: conversation.Session, Epoch: conversation.Epoch,
		User: conversation.User, Template: call.Template.Name, Since: time.Now().UTC(), Attempts: 1, Error: schemas.AsError(err),
	}
	if before := c.retries.owed(r.key); before != nil {
		r.owed.Since, r.owed.Attempts = before.Since, before.Attempts+1
	}
	owed := r.owed
	c.retries.add(r, c.leastWait(err))
	c.storeOwed(ctx, owed)
}

// leastWait is the least time before a push that failed with err is tried again.
func (c *Chains) leastWait(err error) time.Duration {
	if mayPass(err) || errors.Is(err, schemas.ErrLost) { // the lease, which the worker's next incarnation has
		return 0
	}
	return c.cfg.RetryFinal
}

// storeOwed stores what the queue has of a thread's push, which has changed: it was last owed. Each writer reads the queue at its turn, so that the last
// one leaves what holds then. A write that fails is made good by the next attempt; what was not deleted is pushed once more, which
// changes nothing.
func (c *Chains) storeOwed(ctx context.Context, last *schemas.OwedPush) {
	if c.cfg.Owed == nil {
		return
	}
	defer c.lockOwed(last)()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), owedTimeout)
	defer cancel()
	var err error
	if o := c.Owed(last.Tenant, last.Thread); o != nil {
		err = c.cfg.Owed.SaveOwed(ctx, o)
	} else {
		err = c.cfg.Owed.DeleteOwed(ctx, last)
		c.settled.note(retryKey{last.Tenant, last.Thread, schemas.HookPush})
	}
	if err != nil {
		c.cfg.Log.Error().Err(err).Str("thread", last.Thread).Str("session_id", last.Session).Msg("owed push not stored")
	}
}

// settle removes what is stored of a retry that has left the queue.
func (c *Chains) settle(ctx context.Context, r *retry) {
	if r == nil || r.owed == nil {
		return
	}
	c.cfg.Log.Info().Str("thread", r.owed.Thread).Str("session_id", r.owed.Session).Int("attempts", r.owed.Attempts).Msg("owed push settled")
	c.storeOwed(ctx, r.owed)
}

// retryPush pushes once what is owed. A workspace that is gone, and one whose template pushes none, is no longer owed.
func (c *Chains) retryPush(ctx context.Context, r *retry) {
	err := c.prepareOwed(r)
	switch {
	case errors.Is(err, errNotOwed):
		c.cfg.Log.Warn().Err(err).Str("thread", r.owed.Thread).Msg("owed push dropped")
		err = nil
	case err == nil:
		r.attempt++
		err = c.attempt(ctx, r.link, r.call, r.attempt)
	}
	if err == nil {
		if c.retries.finish(r, false, 0) {
			c.settle(ctx, r)
		}
		return
	}
	owed := *r.owed
	owed.Attempts++
	owed.Error = schemas.AsError(err)
	if ctx.Err() == nil && c.retries.again(r, &owed, c.leastWait(err)) {
		c.storeOwed(ctx, &owed)
	}
}

// again schedules the next attempt of a push, and notes how this one ended. It returns false when the retry was replaced or removed.
func (q *retryQueue) again(r *retry, owed *schemas.OwedPush, least time.Duration) bool {
	q.mu.Lock()
	current := q.byKey[r.key] == r
	if current {
		r.owed = owed
	}
	q.mu.Unlock()
	return q.finish(r, true, least) && current
}

// errNotOwed says that there is nothing to push any more.
var errNotOwed = errors.New("nothing to push")

// prepareOwed completes the call of an owed push: the template says where the workspace goes now. Errors: errNotOwed; not_found for a
// template that this worker no longer has.
func (c *Chains) prepareOwed(r *retry) error {
	t := r.call.Template
	if c.cfg.Template != nil {
		now, err := c.cfg.Template(r.owed.Template)
		switch {
		case err == nil:
			t = now
		case t == nil:
			return fmt.Errorf("an owed push of thread %s: %w: bring the template back", r.owed.Thread, err)
		}
	}
	if !pushes(t) {
		return fmt.Errorf("%w: template %q pushes no workspace", errNotOwed, r.owed.Template)
	}
	hook, err := c.builtin(t, schemas.HookPush)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(r.call.Dir); r.call.Dir != "" && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the workspace is gone: %w", errNotOwed, err)
	}
	call := *r.call
	call.Template = t
	r.call = &call
	if r.link == nil {
		r.link = &link{name: schemas.HookPush, hook: hook, run: methodFor(hook, schemas.PhaseTerminate), timeout: syncTimeout}
	}
	return nil
}

// pushes reports whether a template pushes workspaces.
func pushes(t *schemas.Template) bool {
	if t.Sync == nil {
		return false
	}
	defaults := Defaults(t)
	for _, p := range schemas.Phases() {
		specs, listed := t.Hooks[p]
		if !listed {
			specs = defaults[p]
		}
		if slices.ContainsFunc(specs, func(s schemas.HookSpec) bool { return s.Builtin == schemas.HookPush }) {
			return true
		}
	}
	return false
}

// owedTimeout bounds a read or write of what is owed.
const owedTimeout = 10 * time.Second

// loadOwed queues the pushes that this worker owes by its store, at once and then every RetryLongest, until ctx ends.
func (c *Chains) loadOwed(ctx context.Context) {
	if c.cfg.Owed == nil || c.cfg.Template == nil {
		return
	}
	for {
		wait := c.cfg.RetryLongest
		if err := c.loadOnce(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Log.Warn().Err(err).Msg("owed pushes not read")
			wait = c.cfg.RetryFirst
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

func (c *Chains) loadOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, owedTimeout)
	defer cancel()
	c.settled.begin()
	defer c.settled.end()
	all, err := c.cfg.Owed.OwedPushes(ctx, c.cfg.Worker)
	if err != nil {
		return err
	}
	for i := range all {
		c.load(&all[i])
	}
	return nil
}

// load queues a push that the store has, unless it was settled since the store was read.
func (c *Chains) load(o *schemas.OwedPush) {
	r := &retry{key: retryKey{o.Tenant, o.Thread, schemas.HookPush}, attempt: o.Attempts, owed: o}
	r.call = &Call{Dir: filepath.Join(c.cfg.Workspaces, o.Tenant, o.Thread), HookData: schemas.HookData{
		SpecVersion: schemas.Version, Phase: schemas.PhaseTerminate, Occasion: fmt.Sprintf("%s.%d", o.Session, o.Epoch),
		Conversation: schemas.Conversation{
			Tenant: o.Tenant, Thread: o.Thread, Template: o.Template, User: o.User, Session: o.Session, Epoch: o.Epoch,
		},
	}}
	defer c.lockOwed(o)()
	if !c.settled.has(r.key) {
		c.retries.addAbsent(r)
	}
}

// lockOwed makes what the store has of a thread's push wait for unlock.
func (c *Chains) lockOwed(o *schemas.OwedPush) (unlock func()) {
	return c.owedLocks.Lock(o.Tenant + "/" + o.Thread)
}

// settledPushes are those that were settled since a read of the store began: what it returns of them is out of date.
type settledPushes struct {
	mu   sync.Mutex
	keys map[retryKey]bool // nil while nothing reads the store
}

func (s *settledPushes) begin() { s.set(make(map[retryKey]bool)) }

func (s *settledPushes) end() { s.set(nil) }

func (s *settledPushes) set(keys map[retryKey]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = keys
}

func (s *settledPushes) note(key retryKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys != nil {
		s.keys[key] = true
	}
}

func (s *settledPushes) has(key retryKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[key]
}
