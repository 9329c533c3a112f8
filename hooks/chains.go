package hooks

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/sluice-dev/sluice/internal/keymutex"
	"github.com/sluice-dev/sluice/schemas"
)

// Chains runs the hooks of templates. Its methods are safe for concurrent use.
type Chains struct {
	cfg       Config
	named     map[string]any
	post      poster
	occasions *occasions
	retries   *retryQueue
	owedLocks keymutex.Mutex // by thread: one write of what is owed at a time
	settled   settledPushes
	running   sync.WaitGroup
}

// New validates the Go hooks of cfg. Errors: invalid_argument for a hook that implements no phase, or has the name of a built-in.
func New(cfg Config) (*Chains, error) {
	if cfg.Worker == "" || cfg.Record == nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "hooks: Config.Worker and Config.Record are required")
	}
	if cfg.RetryFirst <= 0 {
		cfg.RetryFirst = retryFirst
	}
	if cfg.RetryLongest <= 0 {
		cfg.RetryLongest = retryLongest
	}
	if cfg.RetryFinal <= 0 {
		cfg.RetryFinal = retryFinal
	}
	c := &Chains{
		cfg: cfg, post: newPoster(cfg.Private), occasions: newOccasions(maxOccasions), retries: newRetryQueue(cfg.RetryFirst, cfg.RetryLongest),
	}
	c.named = c.builtins()
	for name, hook := range cfg.Hooks {
		if err := schemas.CheckID("hook", name); err != nil {
			return nil, err
		}
		if slices.Contains(schemas.BuiltinHooks(), name) {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "hook %s: a built-in hook has this name: choose another", name)
		}
		if err := checkHook(name, hook); err != nil {
			return nil, err
		}
		c.named[name] = hook
	}
	return c, nil
}

// Run runs a template's hooks of phase data.Phase in order. dir is the workspace's folder. exec runs a command in the sandbox; it
// is nil without one. The error is the failure of a critical hook, which ends the phase. For a repeated occasion, only hooks that have
// not succeeded run, or all of them if a critical hook failed.
func (c *Chains) Run(ctx context.Context, t *schemas.Template, data schemas.HookData, dir string,
	exec func(ctx context.Context, command []string, stdin []byte) error) (done schemas.HookOutcome, err error) {
	links, err := c.links(t, data.Phase)
	if err != nil || len(links) == 0 {
		return done, err
	}
	call := &Call{HookData: data, Template: t, Dir: dir, Exec: exec, outcome: &outcome{}}
	defer call.outcome.note(func(o *schemas.HookOutcome) { done.Pushed, done.Saved = o.Pushed, o.Saved })
	call.SpecVersion = schemas.Version
	o, err := c.occasions.acquire(ctx, occasionKey{data.Conversation.Tenant, data.Conversation.Thread, data.Phase, data.Occasion})
	if err != nil {
		return done, err
	}
	defer c.occasions.release(o)
	for i := range links {
		l := &links[i]
		if o.done[l.name] {
			continue
		}
		o.attempts[l.name]++
		turn := c.retries.begin()
		err := c.attempt(ctx, l, call, o.attempts[l.name])
		c.updateRetry(ctx, l, call, turn, o.attempts[l.name], err)
		if err == nil {
			o.done[l.name] = true
			continue
		}
		done.Failed = append(done.Failed, l.name)
		if l.critical {
			clear(o.done)
			return done, fmt.Errorf("hook %s: %w", l.name, err)
		}
	}
	return done, nil
}

// Close waits until hooks that ran past their timeout have ended, or ctx has. No hook may start after it. Errors:
// deadline_exceeded.
func (c *Chains) Close(ctx context.Context) error {
	c.post.close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.running.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return schemas.Errorf(schemas.CodeDeadlineExceeded, "hooks: some still run after their timeout: they must observe their context")
	}
}
