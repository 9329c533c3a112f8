package hooks_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// owedStore holds what workers owe. Package events tests the real one.
type owedStore struct {
	mu      sync.Mutex
	owed    map[string]schemas.OwedPush // by thread
	changed chan struct{}
}

func newOwedStore() *owedStore {
	return &owedStore{owed: make(map[string]schemas.OwedPush), changed: make(chan struct{}, 1)}
}

func (s *owedStore) change(f func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return nil
}

// wait waits for a change after which done returns true.
func (s *owedStore) wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx := testkit.Context(t)
	for !done() {
		select {
		case <-s.changed:
		case <-ctx.Done():
			t.Fatalf("not %s in time", what)
		}
	}
}

func (s *owedStore) OwedPushes(context.Context, string) (out []schemas.OwedPush, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.owed {
		out = append(out, o)
	}
	return out, nil
}

func (s *owedStore) SaveOwed(_ context.Context, o *schemas.OwedPush) error {
	return s.change(func() { s.owed[o.Thread] = *o })
}

func (s *owedStore) DeleteOwed(_ context.Context, o *schemas.OwedPush) error {
	return s.change(func() { delete(s.owed, o.Thread) })
}

func (s *owedStore) of(thread string) schemas.OwedPush {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owed[thread]
}

func (s *owedStore) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.owed) == 0
}

// owing is a worker's configuration with a store, and a folder that has the workspace of the test's thread.
func owing(t *testing.T, store *owedStore, templates ...*schemas.Template) hooks.Config {
	folder := t.TempDir()
	testkit.Must(t, os.MkdirAll(filepath.Join(folder, "default", "t1"), 0o700))
	return hooks.Config{
		Owed: store, Workspaces: folder, RetryFirst: time.Millisecond, RetryLongest: 5 * time.Millisecond, RetryFinal: time.Millisecond,
		Template: func(name string) (*schemas.Template, error) {
			for _, tpl := range templates {
				if tpl.Name == name {
					return tpl, nil
				}
			}
			return nil, schemas.Errorf(schemas.CodeNotFound, "no template %q", name)
		},
	}
}

// TestFailedPushIsOwedOverARestart has a second worker on the same folder push what the first could not. Ten minutes 5.
func TestFailedPushIsOwedOverARestart(t *testing.T) {
	store := newOwedStore()
	c, s, _ := newChainsWithStore(t, owing(t, store, syncTemplate))
	s.failWith(schemas.Errorf(schemas.CodeUnavailable, "the store is down"))
	wantFailed(t, c, syncTemplate, data(schemas.PhaseTerminate, "s1.3"), "push-workspace")
	wantFailed(t, c, syncTemplate, data(schemas.PhaseTerminate, "s1.3"), "push-workspace")
	owed := store.of("t1")
	testkit.Equal(t, "attempts and worker", []any{owed.Attempts, owed.Worker, owed.Error.Code}, []any{2, "w1", schemas.CodeUnavailable})
	testkit.Equal(t, "attempts that are owed", c.Owed("default", "t1").Attempts, owed.Attempts)

	restarted, s, r := newChainsWithStore(t, owing(t, store, syncTemplate))
	s.failWith(schemas.Errorf(schemas.CodeUnavailable, "still down"))
	startRetry(t, restarted)
	r.wait(t, "third push", func() bool { return len(r.lines) >= 3 })
	s.failWith(nil)
	store.wait(t, "settled", store.empty)
	testkit.Equal(t, "owed once it is settled", restarted.Owed("default", "t1"), (*schemas.OwedPush)(nil))
}

// TestEveryPushFailureIsOwed fails pushes with errors that pass and errors that a person has to mend. Ten minutes 5.
func TestEveryPushFailureIsOwed(t *testing.T) {
	for _, code := range []schemas.Code{
		schemas.CodeConflict, schemas.CodeNotFound, schemas.CodeInvalidArgument, schemas.CodeTooLarge, schemas.CodeUnavailable,
		schemas.CodeDeadlineExceeded, schemas.CodePermissionDenied, schemas.CodeLimitExceeded,
	} {
		critical := template(schemas.PhaseTerminate, schemas.HookSpec{Builtin: schemas.HookPush, Critical: yes()})
		critical.Sync = &schemas.TemplateSync{}
		for _, tpl := range []*schemas.Template{syncTemplate, critical} {
			store := newOwedStore() // of its own: the worker of the template before would push what this one owes
			c, s, _ := newChainsWithStore(t, owing(t, store, tpl))
			s.failWith(schemas.Errorf(code, "no"))
			_, _ = run(t, c, tpl, data(schemas.PhaseTerminate, "s1.3"))
			testkit.Equal(t, "code", store.of("t1").Error.Code, code)
			startRetry(t, c)
			s.failWith(nil)
			store.wait(t, "settled after "+string(code), store.empty)
		}
	}
}

// TestPushOfAnotherOwnerIsNotOwed refuses the push of a worker that lost the session: its new owner goes on from the last push.
func TestPushOfAnotherOwnerIsNotOwed(t *testing.T) {
	store := newOwedStore()
	c, s, _ := newChainsWithStore(t, owing(t, store, syncTemplate))
	s.failWith(schemas.Errorf(schemas.CodeLost, "moved"))
	wantFailed(t, c, syncTemplate, data(schemas.PhaseTerminate, "s1.3"), "push-workspace")
	testkit.Equal(t, "owed", store.empty(), true)
}

// TestOwedPushNeedsItsWorkspaceAndTemplate drops what cannot be owed any more, and waits for a template that may come back.
func TestOwedPushNeedsItsWorkspaceAndTemplate(t *testing.T) {
	pullsOnly := &schemas.Template{Name: "tpl", Sync: &schemas.TemplateSync{}, Hooks: map[schemas.Phase][]schemas.HookSpec{
		schemas.PhaseStreamFinish: {}, schemas.PhaseTerminate: {},
	}}
	for name, test := range map[string]struct {
		template *schemas.Template
		thread   string
		settled  bool
	}{
		"workspace is gone":       {syncTemplate, "t2", true},
		"template pushes nothing": {pullsOnly, "t1", true},
		"template is gone":        {&schemas.Template{Name: "other"}, "t1", false},
	} {
		t.Run(name, func(t *testing.T) {
			store := newOwedStore()
			testkit.Must(t, store.SaveOwed(t.Context(), &schemas.OwedPush{Tenant: "default", Thread: test.thread, Worker: "w1", Session: "s1", Epoch: 3, Template: "tpl"}))
			c, _, r := newChainsWithStore(t, owing(t, store, test.template))
			startRetry(t, c)
			store.wait(t, "a decision", func() bool { return store.empty() || store.of(test.thread).Attempts > 1 })
			testkit.Equal(t, "settled", store.empty(), test.settled)
			r.wantLines(t)
		})
	}
}

// heldStore holds back the end of the first push, and fails the others.
type heldStore struct {
	*fakeStore
	reading, end chan struct{}
	begun        atomic.Bool
}

// Push succeeds first, once end is closed.
func (s *heldStore) Push(_ context.Context, c *hooks.Call) (report *schemas.SyncReport, err error) {
	report = s.report
	if s.begun.CompareAndSwap(false, true) {
		close(s.reading)
		<-s.end
	} else {
		err = schemas.Errorf(schemas.CodeDeadlineExceeded, "another sync of the folder is under way")
	}
	s.r.write("push " + c.Occasion)
	return report, err
}

// TestPushSettlesNothingThatIsOwedSinceItBegan has a push succeed after a later one has failed: what was written between the two is still owed.
func TestPushSettlesNothingThatIsOwedSinceItBegan(t *testing.T) {
	store := newOwedStore()
	cfg := owing(t, store, syncTemplate)
	r := newRecorder()
	held := &heldStore{fakeStore: &fakeStore{r: r, report: &schemas.SyncReport{Version: "v1"}}, reading: make(chan struct{}), end: make(chan struct{})}
	cfg.Workspace, cfg.Messages, cfg.Sessions = held, held.fakeStore, held.fakeStore
	c := newChains(t, r, cfg)
	var first sync.WaitGroup
	first.Go(func() {
		if failed, err := run(t, c, syncTemplate, data(schemas.PhaseStreamFinish, "p1")); err != nil || len(failed) > 0 {
			t.Errorf("the first push: failed %q, error %v", failed, err)
		}
	})
	<-held.reading
	wantFailed(t, c, syncTemplate, data(schemas.PhaseStreamFinish, "p2"), "push-workspace")
	close(held.end)
	first.Wait()
	r.wantLines(t, "push p2", "push p1")
	testkit.Equal(t, "still owed", []bool{c.Owed("default", "t1") != nil, !store.empty()}, []bool{true, true})
}

// unsteadyStore pushes with an outcome that the random numbers give.
type unsteadyStore struct {
	*fakeStore
	random *rand.Rand
	mu     sync.Mutex
}

func (s *unsteadyStore) Push(context.Context, *hooks.Call) (*schemas.SyncReport, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.random.IntN(2) == 0 {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "the store is down")
	}
	return s.report, nil
}

// yieldingStore lets others run before and after each of its changes.
type yieldingStore struct{ *owedStore }

func (s yieldingStore) SaveOwed(ctx context.Context, o *schemas.OwedPush) error {
	runtime.Gosched()
	defer runtime.Gosched()
	return s.owedStore.SaveOwed(ctx, o)
}

func (s yieldingStore) DeleteOwed(ctx context.Context, o *schemas.OwedPush) error {
	runtime.Gosched()
	defer runtime.Gosched()
	return s.owedStore.DeleteOwed(ctx, o)
}

// TestStoreHasWhatIsOwed lets pushes of a thread and their retries fail and succeed side by side: the store then has what the worker owes.
func TestStoreHasWhatIsOwed(t *testing.T) {
	for seed := range uint64(100) {
		store := newOwedStore()
		cfg := owing(t, store, syncTemplate)
		cfg.Owed = yieldingStore{store}
		r := newRecorder()
		pushes := &unsteadyStore{fakeStore: &fakeStore{r: r, report: &schemas.SyncReport{Version: "v1"}}, random: rand.New(rand.NewPCG(seed, 0))}
		cfg.Workspace, cfg.Messages, cfg.Sessions = pushes, pushes.fakeStore, pushes.fakeStore
		c := newChains(t, r, cfg)
		ctx, stop := context.WithCancel(t.Context())
		var retries, calls sync.WaitGroup
		retries.Go(func() { _ = c.Retry(ctx) })
		for worker := range 4 {
			calls.Go(func() {
				for i := range 8 {
					_, _ = run(t, c, syncTemplate, data(schemas.PhaseStreamFinish, fmt.Sprintf("p%d-%d", worker, i)))
				}
			})
		}
		calls.Wait()
		stop()
		retries.Wait()
		if owed := c.Owed("default", "t1") != nil; owed == store.empty() {
			t.Fatalf("seed %d: owed by the worker: %t, stored: %t, want the same", seed, owed, !store.empty())
		}
	}
}

// slowStore is read once by the worker's start; what it returns is late.
type slowStore struct {
	*owedStore
	once      sync.Once
	read, end chan struct{}
}

func (s *slowStore) OwedPushes(ctx context.Context, worker string) ([]schemas.OwedPush, error) {
	all, err := s.owedStore.OwedPushes(ctx, worker)
	s.once.Do(func() {
		close(s.read)
		<-s.end
	})
	return all, err
}

// TestSettledPushIsNotOwedAgain settles a push after the worker has read it in the store, and before it has looked at what it read.
func TestSettledPushIsNotOwedAgain(t *testing.T) {
	store := newOwedStore()
	cfg := owing(t, store, syncTemplate)
	slow := &slowStore{owedStore: store, read: make(chan struct{}), end: make(chan struct{})}
	cfg.Owed = slow
	cfg.RetryFirst = time.Hour // a retry under way could write its line late
	c, pushes, r := newChainsWithStore(t, cfg)
	pushes.failWith(schemas.Errorf(schemas.CodeUnavailable, "the store is down"))
	wantFailed(t, c, syncTemplate, data(schemas.PhaseStreamFinish, "p1"), "push-workspace")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var retries sync.WaitGroup
	retries.Go(func() { _ = c.Retry(ctx) })
	<-slow.read
	pushes.failWith(nil)
	if failed, err := run(t, c, syncTemplate, data(schemas.PhaseStreamFinish, "p2")); err != nil || len(failed) > 0 {
		t.Errorf("the second push: failed %q, error %v", failed, err)
	}
	store.wait(t, "settled", func() bool { return store.empty() && c.Owed("default", "t1") == nil })
	count := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.lines)
	}
	before := count()
	close(slow.end)
	stop()
	retries.Wait()
	testkit.Equal(t, "still owed, and pushes of what is not", []int{c.Pending(), count() - before}, []int{0, 0})
}
