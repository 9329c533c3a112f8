package pool

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/schemas"
)

// Pool is a sandbox.Provider that keeps sandboxes of another one ready.
type Pool struct {
	config Config
	wake   chan struct{} // one token: Run has something to look at

	mu      sync.Mutex
	shelves map[kind]*shelf
	used    map[string]sandbox.Sandbox // by Spec.ID; nil while being made
	changed chan struct{}              // closed, and made anew, at each change
	closed  bool
	stats   Stats
}

// kind is what a member's session must have asked for.
type kind struct {
	image  string
	limits sandbox.Limits
}

// shelf holds what there is of a kind.
type shelf struct {
	size   int
	ready  []*member
	making int
	again  time.Time     // not before then, after a failure
	wait   time.Duration // after the next failure
}

// member is a sandbox that is nobody's yet.
type member struct {
	sandbox.Sandbox
	dir   string
	taken chan struct{} // closed when it is no longer on its shelf
}

var _ sandbox.Provider = (*Pool)(nil)

// New makes a Pool, which is empty and does nothing by itself: Run fills it. What a Pool that was killed left in Dir is put
// back, or removed. Errors: invalid_argument for the configuration, unavailable when Dir cannot be used.
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
		config: config, wake: make(chan struct{}, 1), shelves: make(map[kind]*shelf),
		used: make(map[string]sandbox.Sandbox), changed: make(chan struct{}),
	}
	for _, t := range config.Templates {
		size := t.Size
		if size == 0 {
			size = DefaultSize
		}
		p.shelves[kind{t.Image, t.Limits}] = &shelf{size: size, wait: config.Retry}
	}
	return p, nil
}

// Name is the inner Provider's.
func (p *Pool) Name() string { return p.config.Provider.Name() }

// Create gives a member that is ready, or else has the inner Provider make a sandbox; see sandbox.Provider. Errors:
// pool_exhausted when there are Config.Max sandboxes and none of them is free; conflict for an id that is in use.
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
	s, hit, err := p.make(ctx, spec, m)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.change()
	if err != nil {
		delete(p.used, spec.ID)
		return nil, err
	}
	p.used[spec.ID] = s
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

// admit reserves the id and a place, and gives the member that takes it; nil when one is to be made. Where there is no place it
// waits for a member of this kind that is being made.
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
	p.forgetEnded()
	if p.closed {
		return nil, nil, nil, schemas.Errorf(schemas.CodeUnavailable, "the pool is closed")
	}
	if _, ok := p.used[spec.ID]; ok {
		return nil, nil, nil, schemas.Errorf(schemas.CodeConflict, "sandbox %s is there already", spec.ID)
	}
	var own *shelf
	if spec.Network != schemas.NetworkHost { // a member's network cannot be changed
		own = p.shelves[kind{spec.Image, spec.Limits}]
	}
	if m = own.take(); m == nil && p.config.Max > 0 && p.count() >= p.config.Max {
		if evicted = p.evict(); evicted == nil {
			if own != nil && own.making > 0 {
				return nil, nil, p.changed, nil
			}
			p.stats.Exhausted++
			return nil, nil, nil, schemas.Errorf(schemas.CodePoolExhausted, "all %d sandboxes are in use", p.config.Max)
		}
	}
	p.used[spec.ID] = nil
	p.change()
	return m, evicted, nil, nil
}

// make gives the member to the session, or has a sandbox made for it where there is no member, or it turns out to be of no use.
func (p *Pool) make(ctx context.Context, spec sandbox.Spec, m *member) (s sandbox.Sandbox, hit bool, err error) {
	if m != nil {
		err = claim(m, spec, p.config.Dir)
		if err == nil {
			return m.Sandbox, true, nil
		}
		p.discard(m)
		if schemas.CodeOf(err) == schemas.CodeInvalidArgument {
			return nil, false, err
		}
		p.config.Warn(fmt.Errorf("claim a sandbox of the pool: %w", err))
	}
	s, err = p.config.Provider.Create(ctx, spec)
	return s, false, err
}

// claim makes a member a session's.
func claim(m *member, spec sandbox.Spec, dir string) error {
	if err := place(m.dir, filepath.Clean(spec.Workspace), dir); err != nil {
		return err
	}
	// Only Rebinders are kept ready.
	r, _ := m.Sandbox.(Rebinder)
	return r.Rebind(spec)
}

// take takes the oldest member that has not ended. The Pool's mu is held.
func (s *shelf) take() *member {
	if s == nil {
		return nil
	}
	for len(s.ready) > 0 {
		m := s.ready[0]
		s.ready[0] = nil
		s.ready = s.ready[1:]
		close(m.taken)
		if !over(m) {
			return m
		}
		// Empty; should it stay all the same, the next New removes it.
		_ = os.Remove(m.dir)
	}
	return nil
}

// evict takes a member of whatever kind there is most of. mu is held.
func (p *Pool) evict() *member {
	var most *shelf
	for _, s := range p.shelves {
		if most == nil || len(s.ready) > len(most.ready) {
			most = s
		}
	}
	return most.take()
}

// discard ends a member that nothing was run in, or will be.
func (p *Pool) discard(m *member) {
	// The context has no end, so that there is no error.
	_ = m.Terminate(context.Background(), 0)
	if err := os.Remove(m.dir); err != nil && !os.IsNotExist(err) {
		p.config.Warn(fmt.Errorf("remove the folder of a sandbox of the pool: %w", err))
	}
}

// forgetEnded drops the sandboxes that have ended. mu is held.
func (p *Pool) forgetEnded() {
	for id, s := range p.used {
		if s != nil && over(s) {
			delete(p.used, id)
		}
	}
}

// count is how many sandboxes there are, or will be. mu is held.
func (p *Pool) count() int {
	n := len(p.used)
	for _, s := range p.shelves {
		n += len(s.ready) + s.making
	}
	return n
}

// change wakes whoever waits for something to change. mu is held.
func (p *Pool) change() {
	close(p.changed)
	p.changed = make(chan struct{})
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func over(s sandbox.Sandbox) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

// Close ends every sandbox and closes the inner Provider. Run returns soon after.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	var rest []*member
	for _, s := range p.shelves {
		for m := s.take(); m != nil; m = s.take() {
			rest = append(rest, m)
		}
	}
	p.change()
	p.mu.Unlock()
	err := p.config.Provider.Close()
	for _, m := range rest {
		p.discard(m)
	}
	return err
}
