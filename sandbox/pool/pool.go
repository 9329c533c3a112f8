package pool

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/sandbox/workspace"
	"github.com/sluice-dev/sluice/schemas"
)

// Pool is a sandbox.Provider that keeps sandboxes of another one ready.
type Pool struct {
	config Config
	wake   chan struct{} // capacity 1; wakes Run

	mu      sync.Mutex
	queues  map[templateKey]*queue
	inUse   map[string]sandbox.Sandbox // by Spec.ID; nil while being created
	changed chan struct{}              // closed and replaced at each change
	closed  bool
	stats   Stats
}

// templateKey is what a Spec and a Template must have in common.
type templateKey struct {
	image   string
	network schemas.Network
	limits  sandbox.Limits
}

func keyOf(image string, network schemas.Network, limits sandbox.Limits) templateKey {
	return templateKey{image, cmp.Or(network, schemas.NetworkNone), limits}
}

// queue holds the members of one template.
type queue struct {
	size     int
	ready    []*member
	creating int
	retryAt  time.Time     // after a failure, nothing is created before
	backoff  time.Duration // after the next failure
}

// member is a sandbox that no session has claimed.
type member struct {
	sandbox.Sandbox
	dir   string
	taken chan struct{} // closed when it leaves its queue
}

var _ sandbox.Reattacher = (*Pool)(nil)

// New returns an empty Pool; Run fills it. It reverts the claims that a killed Pool left unfinished in Dir, and removes the
// folders of its members. Errors: invalid_argument for the configuration, unavailable when Dir cannot be used.
func New(config Config) (*Pool, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	err := os.MkdirAll(config.Dir, 0o700)
	if err == nil {
		err = recoverDir(config.Dir)
	}
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "pool: folder: %w", err)
	}
	p := &Pool{
		config: config, wake: make(chan struct{}, 1), queues: make(map[templateKey]*queue),
		inUse: make(map[string]sandbox.Sandbox), changed: make(chan struct{}),
	}
	for _, t := range config.Templates {
		p.queues[keyOf(t.Image, t.Network, t.Limits)] = &queue{size: cmp.Or(t.Size, DefaultSize), backoff: config.Retry}
	}
	return p, nil
}

// Name is the inner Provider's.
func (p *Pool) Name() string { return p.config.Provider.Name() }

// Create claims a member that is ready, or creates a sandbox with the inner Provider; see sandbox.Provider. Errors: pool_exhausted
// when there are Config.Max sandboxes and all are in use; conflict for an id in use.
func (p *Pool) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := link.CheckSpec(spec); err != nil {
		return nil, err
	}
	began := time.Now()
	m, err := p.admit(ctx, spec)
	if err != nil {
		return nil, err
	}
	s, hit, err := p.claimOrCreate(ctx, spec, m)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.notify()
	if err != nil {
		delete(p.inUse, spec.ID)
		return nil, err
	}
	p.inUse[spec.ID] = s
	wait := time.Since(began)
	p.stats.Wait += wait
	p.stats.MaxWait = max(p.stats.MaxWait, wait)
	if hit {
		p.stats.Hits++
	} else {
		p.stats.Misses++
	}
	return s, nil
}

// admit reserves the id and a slot, and returns the member to claim; nil when a sandbox must be created. When there is no slot, it
// waits for a matching member that is being created.
func (p *Pool) admit(ctx context.Context, spec sandbox.Spec) (*member, error) {
	for {
		m, evicted, wait, err := p.tryAdmit(spec)
		if err != nil {
			return nil, err
		}
		if evicted != nil {
			p.discard(evicted)
		}
		if wait == nil {
			return m, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (p *Pool) tryAdmit(spec sandbox.Spec) (m, evicted *member, wait <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeEnded()
	if p.closed {
		return nil, nil, nil, schemas.Errorf(schemas.CodeUnavailable, "the pool is closed")
	}
	if _, ok := p.inUse[spec.ID]; ok {
		return nil, nil, nil, schemas.Errorf(schemas.CodeConflict, "sandbox %s already exists", spec.ID)
	}
	var matching *queue
	if !spec.ReadOnly { // a member's mounts cannot be changed
		matching = p.queues[keyOf(spec.Image, spec.Network, spec.Limits)]
	}
	if m = matching.take(); m == nil && p.config.Max > 0 && p.count() >= p.config.Max {
		if evicted = p.evict(); evicted == nil {
			if matching != nil && matching.creating > 0 {
				return nil, nil, p.changed, nil
			}
			p.stats.Exhausted++
			return nil, nil, nil, schemas.Errorf(schemas.CodePoolExhausted, "all %d sandboxes are in use", p.config.Max)
		}
	}
	p.inUse[spec.ID] = nil
	p.notify()
	return m, evicted, nil, nil
}

// claimOrCreate claims the member. Without a member, or when the claim fails, it creates a sandbox.
func (p *Pool) claimOrCreate(ctx context.Context, spec sandbox.Spec, m *member) (s sandbox.Sandbox, hit bool, err error) {
	if m != nil {
		err = claim(m, spec, p.config.Dir)
		if err == nil {
			return m.Sandbox, true, nil
		}
		p.discard(m)
		if schemas.CodeOf(err) == schemas.CodeInvalidArgument {
			return nil, false, err
		}
		p.config.Warn(fmt.Errorf("pool: claim a sandbox: %w", err))
	}
	s, err = p.config.Provider.Create(ctx, spec)
	return s, false, err
}

// claim binds a member to a session.
func claim(m *member, spec sandbox.Spec, dir string) error {
	path := filepath.Clean(spec.Workspace)
	if err := replaceWorkspace(m.dir, path, dir); err != nil {
		return err
	}
	if err := workspace.SetHardLimit(path, spec.Limits); err != nil {
		return err
	}
	// Every member is a Rebinder; see createMember.
	r, _ := m.Sandbox.(Rebinder)
	return r.Rebind(spec)
}

// take removes and returns the oldest member that has not ended. The Pool's mu is held.
func (q *queue) take() *member {
	if q == nil {
		return nil
	}
	for len(q.ready) > 0 {
		m := q.ready[0]
		q.ready[0] = nil
		q.ready = q.ready[1:]
		close(m.taken)
		if !ended(m) {
			return m
		}
		_ = removeFolder(m.dir) // an empty folder that remains is removed by the next New
	}
	return nil
}

// evict takes a member from the longest queue. mu is held.
func (p *Pool) evict() *member {
	var longest *queue
	for _, q := range p.queues {
		if longest == nil || len(q.ready) > len(longest.ready) {
			longest = q
		}
	}
	return longest.take()
}

// discard ends a member in which nothing has run.
func (p *Pool) discard(m *member) {
	// Terminate fails only when its context ends, and this one does not.
	_ = m.Terminate(context.Background(), 0)
	if err := removeFolder(m.dir); err != nil && !os.IsNotExist(err) {
		p.config.Warn(fmt.Errorf("pool: remove the folder of a sandbox: %w", err))
	}
}

// removeEnded stops counting the sandboxes that have ended. mu is held.
func (p *Pool) removeEnded() {
	for id, s := range p.inUse {
		if s != nil && ended(s) {
			delete(p.inUse, id)
		}
	}
}

// count returns the number of sandboxes, including those being created. mu is held.
func (p *Pool) count() int {
	n := len(p.inUse)
	for _, q := range p.queues {
		n += len(q.ready) + q.creating
	}
	return n
}

// notify wakes Run and all waiters after a change. mu is held.
func (p *Pool) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func ended(s sandbox.Sandbox) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

// Attach takes over the sandboxes of an earlier process's sessions; see sandbox.Reattacher. It ends the unclaimed ones, because Run
// creates new members.
func (p *Pool) Attach(ctx context.Context) ([]sandbox.Attached, error) {
	inner, ok := p.config.Provider.(sandbox.Reattacher)
	if !ok {
		return nil, nil
	}
	found, err := inner.Attach(ctx)
	if err != nil {
		return nil, err
	}
	var unclaimed sync.WaitGroup
	defer unclaimed.Wait()
	claimed := found[:0]
	for _, s := range found {
		if dir := s.Spec().Workspace; filepath.Dir(dir) == p.config.Dir {
			unclaimed.Go(func() { p.discard(&member{Sandbox: s, dir: dir}) })
			continue
		}
		claimed = append(claimed, s)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range claimed {
		p.inUse[s.ID()] = s
	}
	p.notify()
	return claimed, nil
}

// Detach leaves every sandbox running; see sandbox.Reattacher.
func (p *Pool) Detach() error {
	inner, ok := p.config.Provider.(sandbox.Reattacher)
	if !ok {
		return p.Close()
	}
	p.shut()
	return inner.Detach()
}

// Close ends every sandbox and closes the inner Provider. Run returns soon after.
func (p *Pool) Close() error {
	members := p.shut()
	err := p.config.Provider.Close()
	for _, m := range members {
		p.discard(m)
	}
	return err
}

// shut makes the Pool refuse further calls, and empties its queues.
func (p *Pool) shut() (members []*member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, q := range p.queues {
		for m := q.take(); m != nil; m = q.take() {
			members = append(members, m)
		}
	}
	p.notify()
	return members
}
