package hooks

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/sluice-dev/sluice/schemas"
)

// Chains runs the hooks of templates. Its methods may be called at the same time.
type Chains struct {
	cfg     Config
	named   map[string]any
	post    poster
	memory  *memory
	retries *retries
	running sync.WaitGroup
}

// New checks the hooks. Errors: invalid_argument for one that implements no phase, or has a name of Sluice's own.
func New(cfg Config) (*Chains, error) {
	if cfg.Worker == "" || cfg.Record == nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "hooks: a worker and a recorder must be given")
	}
	if cfg.RetryFirst <= 0 {
		cfg.RetryFirst = retryFirst
	}
	if cfg.RetryLongest <= 0 {
		cfg.RetryLongest = retryLongest
	}
	c := &Chains{cfg: cfg, memory: newMemory(maxOccasions), retries: newRetries(cfg.RetryFirst, cfg.RetryLongest)}
	c.post = newPoster(cfg.Private)
	c.named = c.builtins()
	for name, hook := range cfg.Hooks {
		if err := schemas.CheckID("hook", name); err != nil {
			return nil, err
		}
		if slices.Contains(schemas.BuiltinHooks(), name) {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "hook %s: this name is a built-in's: choose another", name)
		}
		if err := checkHook(name, hook); err != nil {
			return nil, err
		}
		c.named[name] = hook
	}
	return c, nil
}

// Check says whether every hook of a template can run here. Errors: invalid_argument, naming the phase and the hook.
func (c *Chains) Check(t *schemas.Template) error {
	for phase := range t.Hooks {
		if !slices.Contains(schemas.Phases(), phase) {
			return schemas.Errorf(schemas.CodeInvalidArgument, "hooks: there is no phase %q: cold_start, message, stream_finish and terminate are", phase)
		}
	}
	for _, phase := range schemas.Phases() {
		if _, err := c.links(t, phase); err != nil {
			return err
		}
	}
	return nil
}

// Run runs a template's hooks of data.Phase in their order. dir is the workspace's folder; exec runs a command in the sandbox,
// nil where there is none. failed names those that failed; err is the first failure of a critical one, after which no
// other ran. On an occasion that is repeated, only those run that have not run well; one that a critical failure ended is
// repeated as a whole.
func (c *Chains) Run(ctx context.Context, t *schemas.Template, data schemas.HookData, dir string,
	exec func(ctx context.Context, command []string, stdin []byte) error) (failed []string, err error) {
	links, err := c.links(t, data.Phase)
	if err != nil || len(links) == 0 {
		return nil, err
	}
	call := &Call{HookData: data, Template: t, Dir: dir, Exec: exec}
	call.SpecVersion = schemas.Version
	past, err := c.memory.enter(ctx, occasionOf(&data))
	if err != nil {
		return nil, err
	}
	defer c.memory.leave(past)
	for i := range links {
		l := &links[i]
		if past.done[l.name] {
			continue
		}
		past.attempts[l.name]++
		err := c.attempt(ctx, l, call, past.attempts[l.name])
		c.settle(l, call, past.attempts[l.name], err)
		if err == nil {
			past.done[l.name] = true
			continue
		}
		failed = append(failed, l.name)
		if l.critical {
			clear(past.done)
			return failed, fmt.Errorf("hook %s: %w", l.name, err)
		}
	}
	return failed, nil
}

// settle notes what is to be tried again later, or no longer.
func (c *Chains) settle(l *link, call *Call, attempt int, err error) {
	again, ok := l.hook.(Repeater)
	if !ok {
		return
	}
	switch {
	case err == nil:
		c.retries.drop(l, call)
	case !l.critical && again.Again(err):
		c.retries.add(l, call, attempt)
	}
}

// Close waits for hooks that went on after their deadline, as long as ctx allows. No hook may be begun after it.
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
		return schemas.Errorf(schemas.CodeDeadlineExceeded, "hooks: some went on after their deadline and still run: they must heed their context")
	}
}
