package pool

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
	"github.com/sluice-dev/sluice/schemas"
)

func create(t *testing.T, p sandbox.Provider, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	if spec.Workspace == "" {
		spec.Workspace = filepath.Join(testkit.ShortDir(t), "ws")
	}
	s, err := p.Create(t.Context(), spec)
	testkit.Must(t, err)
	return s
}

func terminate(t *testing.T, s sandbox.Sandbox) {
	t.Helper()
	if err := s.Terminate(t.Context(), 0); err != nil {
		t.Errorf("terminate %s: %v", s.ID(), err)
	}
}

// output runs a script that must exit with 0, and returns its output.
func output(t *testing.T, s sandbox.Sandbox, script string) string {
	t.Helper()
	out, exit := sandboxtest.Shell(t, s, fmt.Sprintf("p%x", sha256.Sum256([]byte(script)))[:20], script)
	if exit.Code != 0 {
		t.Fatalf("%s: exit code %d, want 0 (%+v)", script, exit.Code, exit)
	}
	return out
}

func waitFilled(t *testing.T, p *Pool) {
	t.Helper()
	testkit.Must(t, p.WaitFilled(testkit.Context(t)))
}

// wantStats compares the Stats without their times.
func wantStats(t *testing.T, p *Pool, want Stats) {
	t.Helper()
	got := p.Stats()
	got.Wait, got.MaxWait = 0, 0
	testkit.Equal(t, "stats", got, want)
}

// A session gets its workspace, environment and name in a sandbox that was created before, for every kind of workspace.
func TestClaim(t *testing.T) {
	for name, inner := range providers {
		t.Run(name, func(t *testing.T) {
			p := start(t, Config{Provider: inner(t, testkit.ShortDir(t)), Templates: []Template{{Size: 1}}, Warn: func(err error) { t.Error(err) }})
			for what, prepare := range map[string]func(dir string) error{
				"missing": func(string) error { return nil },
				"empty":   func(dir string) error { return os.Mkdir(dir, 0o755) },
				"full": func(dir string) error {
					return errors.Join(os.MkdirAll(filepath.Join(dir, "sub"), 0o755), os.WriteFile(filepath.Join(dir, "sub", "file"), []byte("x"), 0o644),
						os.WriteFile(filepath.Join(dir, ".hidden"), nil, 0o644), os.Symlink("sub/file", filepath.Join(dir, "link")))
				},
				"link": func(dir string) error {
					return errors.Join(os.Mkdir(dir+".real", 0o700), os.Symlink(dir+".real", dir), os.WriteFile(dir+"/real", nil, 0o644))
				},
			} {
				t.Run(what, func(t *testing.T) {
					waitFilled(t, p)
					before := p.Stats()
					dir := filepath.Join(testkit.ShortDir(t), "a", "ws")
					testkit.Must(t, errors.Join(os.MkdirAll(filepath.Dir(dir), 0o755), prepare(dir)))
					s := create(t, p, sandbox.Spec{ID: what, Thread: "thread-1", Workspace: dir, Env: map[string]string{"OWN": "1"}})
					defer terminate(t, s)
					testkit.Equal(t, "new hits", p.Stats().Hits-before.Hits, int64(1))
					testkit.Equal(t, "sandbox id", s.ID(), what)
					testkit.Equal(t, "files", output(t, s, "ls -A"), map[string]string{"full": ".hidden\nlink\nsub\n", "link": "real\n"}[what])
					script := `echo "$SLUICE_THREAD $OWN" >out; echo written; [ "$(cd "$HOME" && pwd -P)" = "$(pwd -P)" ]`
					testkit.Equal(t, "output", output(t, s, script), "written\n")
					b, err := os.ReadFile(filepath.Join(dir, "out"))
					testkit.Must(t, err)
					testkit.Equal(t, "SLUICE_THREAD and OWN", string(b), "thread-1 1\n")
					if what == "full" {
						output(t, s, "[ x = $(cat link) ] && echo y >sub/new")
					}
				})
			}
		})
	}
}

func TestStats(t *testing.T) {
	p := start(t, Config{Provider: newLocal(t), Templates: []Template{{Size: 2}, {Image: "other", Network: schemas.NetworkHost, Size: 1}}})
	wantStats(t, p, Stats{Ready: 3, Size: 3})
	a := create(t, p, sandbox.Spec{ID: "a"})
	b := create(t, p, sandbox.Spec{ID: "b", Image: "other"}) // without a network
	c := create(t, p, sandbox.Spec{ID: "c", Image: "other", Network: schemas.NetworkHost})
	waitFilled(t, p)
	wantStats(t, p, Stats{Hits: 2, Misses: 1, Ready: 3, Size: 3, InUse: 3})
	stats := p.Stats()
	if stats.Wait <= 0 || stats.MaxWait <= 0 || stats.MaxWait > stats.Wait {
		t.Errorf("wait %v, longest %v, want 0 < longest <= wait", stats.Wait, stats.MaxWait)
	}
	if rate := stats.HitRate(); rate < 0.66 || rate > 0.67 {
		t.Errorf("hit rate %f, want 2/3", rate)
	}
	for _, s := range []sandbox.Sandbox{a, b, c} {
		terminate(t, s)
	}
	testkit.Equal(t, "sandboxes in use", p.Stats().InUse, 0)
	testkit.Equal(t, "hit rate without requests", (Stats{}).HitRate(), 0.0)
}

// There are no more sandboxes than Max. A template without a free slot evicts another one's member, and a sandbox that ends frees a slot.
func TestCreateRespectsMax(t *testing.T) {
	p := start(t, Config{Provider: newLocal(t), Max: 2, Templates: []Template{{Size: 2}}})
	a := create(t, p, sandbox.Spec{ID: "a"})
	b := create(t, p, sandbox.Spec{ID: "b", Image: "other"})
	_, err := p.Create(t.Context(), sandbox.Spec{ID: "c", Workspace: testkit.ShortDir(t)})
	testkit.WantCode(t, err, schemas.CodePoolExhausted)
	wantStats(t, p, Stats{Hits: 1, Misses: 1, Exhausted: 1, Size: 2, InUse: 2})
	terminate(t, b)
	c := create(t, p, sandbox.Spec{ID: "c"})
	terminate(t, a)
	terminate(t, c)
}

func TestEndedMemberIsReplaced(t *testing.T) {
	inner := &recorder{Provider: newLocal(t)}
	p := start(t, Config{Provider: inner, Templates: []Template{{Size: 1}}})
	terminate(t, inner.last())
	s := create(t, p, sandbox.Spec{ID: "a"})
	testkit.Equal(t, "output", output(t, s, "echo alive"), "alive\n")
	terminate(t, s)
}

// recorder records the sandboxes it creates. The first calls fail: fails is their number.
type recorder struct {
	sandbox.Provider
	mu      sync.Mutex
	created []sandbox.Sandbox
	fails   int
}

func (r *recorder) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	r.mu.Lock()
	fail := r.fails > 0
	r.fails--
	r.mu.Unlock()
	if fail {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "test failure")
	}
	s, err := r.Provider.Create(ctx, spec)
	if err == nil {
		r.mu.Lock()
		r.created = append(r.created, s)
		r.mu.Unlock()
	}
	return s, err
}

func (r *recorder) last() sandbox.Sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.created[len(r.created)-1]
}

// notRebindable hides the Rebind of the sandboxes.
type notRebindable struct{ sandbox.Provider }

func (p notRebindable) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	s, err := p.Provider.Create(ctx, spec)
	return struct{ sandbox.Sandbox }{s}, err
}

// A member that cannot be created, or is not ready, is reported and created again.
func TestFailedMemberIsRetried(t *testing.T) {
	var mu sync.Mutex
	warned := make(chan error, 100)
	refuse := true
	p := start(t, Config{
		Provider: &recorder{Provider: newLocal(t), fails: 2}, Templates: []Template{{Size: 1}}, Retry: 1,
		Ready: func(context.Context, sandbox.Sandbox) error {
			mu.Lock()
			defer mu.Unlock()
			if refuse {
				refuse = false
				return errors.New("not ready")
			}
			return nil
		},
		Warn: func(err error) { warned <- err },
	})
	reported := 0
	for range 3 { // after the pool counts the failure, and so in any order
		if strings.Contains((<-warned).Error(), "not ready") {
			reported++
		}
	}
	testkit.Equal(t, "warnings of a member that is not ready", reported, 1)
	testkit.Equal(t, "more warnings", len(warned), 0)
	wantStats(t, p, Stats{Failed: 3, Ready: 1, Size: 1})
}

// A provider whose sandboxes cannot be rebound still works, without ready members.
func TestCreateWithoutRebinder(t *testing.T) {
	warned := make(chan error, 100)
	p, err := New(Config{Provider: notRebindable{newLocal(t)}, Dir: filepath.Join(testkit.ShortDir(t), "pool"), Templates: []Template{{Size: 1}}, Warn: func(err error) {
		select {
		case warned <- err:
		default:
		}
	}})
	testkit.Must(t, err)
	run(t, p)
	testkit.WantCode(t, <-warned, schemas.CodeInvalidArgument)
	terminate(t, create(t, p, sandbox.Spec{ID: "a"}))
}

// Sixteen concurrent callers get a sandbox each, some ready and some not.
func TestCreateConcurrently(t *testing.T) {
	p := start(t, Config{Provider: newLocal(t), Templates: []Template{{Size: 4}}})
	dir := testkit.ShortDir(t)
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Go(func() {
			for round := range 3 {
				id := fmt.Sprintf("s%d-%d", i, round)
				s, err := p.Create(t.Context(), sandbox.Spec{ID: id, Workspace: filepath.Join(dir, id)})
				if err != nil {
					t.Errorf("create %s: %v", id, err)
					return
				}
				terminate(t, s)
			}
		})
	}
	callers.Wait()
	waitFilled(t, p)
	stats := p.Stats()
	testkit.Equal(t, "requests", stats.Hits+stats.Misses, int64(48))
	if stats.Hits < 4 {
		t.Errorf("hits %d, want at least 4", stats.Hits)
	}
	testkit.Equal(t, "ready members", stats.Ready, 4)
	testkit.Equal(t, "sandboxes in use", stats.InUse, 0)
}
