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

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func create(t *testing.T, p sandbox.Provider, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	if spec.Workspace == "" {
		spec.Workspace = filepath.Join(shortDir(t), "ws")
	}
	s, err := p.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func end(t *testing.T, s sandbox.Sandbox) {
	t.Helper()
	if err := s.Terminate(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// say runs a script that must succeed and gives what it printed.
func say(t *testing.T, s sandbox.Sandbox, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, err := s.Start(ctx, sandbox.Command{ID: fmt.Sprintf("p%x", sha256.Sum256([]byte(script)))[:20], Path: "sh", Args: []string{"-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	exit, err := p.Wait(ctx)
	if err != nil || exit.Code != 0 {
		t.Fatalf("%s: %+v, %v", script, exit, err)
	}
	var all strings.Builder
	for {
		out, err := p.Read(ctx)
		if err != nil {
			return all.String()
		}
		all.Write(out.Data)
	}
}

func filled(t *testing.T, p *Pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Filled(ctx); err != nil {
		t.Fatal(err)
	}
}

// counts are the Stats without times.
func counts(p *Pool) Stats {
	s := p.Stats()
	s.Wait, s.MaxWait = 0, 0
	return s
}

// TestClaim: a session finds its workspace, its environment and its name in a sandbox that was made before, whatever the
// workspace was.
func TestClaim(t *testing.T) {
	for name, inner := range map[string]func(testing.TB) sandbox.Provider{"Local": newLocal, "Docker": newDocker} {
		t.Run(name, func(t *testing.T) {
			p := start(t, Config{Provider: inner(t), Templates: []Template{{Size: 1}}, Warn: func(err error) { t.Error(err) }})
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
					filled(t, p)
					before := p.Stats()
					dir := filepath.Join(shortDir(t), "a", "ws")
					if err := errors.Join(os.MkdirAll(filepath.Dir(dir), 0o755), prepare(dir)); err != nil {
						t.Fatal(err)
					}
					s := create(t, p, sandbox.Spec{ID: what, Thread: "thread-1", Workspace: dir, Env: map[string]string{"OWN": "1"}})
					defer end(t, s)
					if hits := p.Stats().Hits - before.Hits; hits != 1 || s.ID() != what {
						t.Errorf("%d hits, id %s", hits, s.ID())
					}
					want := map[string]string{"full": ".hidden\nlink\nsub\n", "link": "real\n"}[what]
					if got := say(t, s, "ls -A"); got != want {
						t.Errorf("holds %q, want %q", got, want)
					}
					if got := say(t, s, `echo "$SLUICE_THREAD $OWN" >out; echo written; [ "$(cd "$HOME" && pwd -P)" = "$(pwd -P)" ]`); got != "written\n" {
						t.Errorf("%q", got)
					}
					if b, err := os.ReadFile(filepath.Join(dir, "out")); err != nil || string(b) != "thread-1 1\n" {
						t.Errorf("%q, %v", b, err)
					}
					if what == "full" {
						say(t, s, "[ x = $(cat link) ] && echo y >sub/new")
					}
				})
			}
		})
	}
}

// TestCounts: hits, misses, and what there is; the pool is refilled; other kinds are passed on.
func TestCounts(t *testing.T) {
	p := start(t, Config{Provider: newLocal(t), Templates: []Template{{Size: 2}, {Image: "other", Size: 1}}})
	if diff := cmp.Diff(Stats{Ready: 3, Size: 3}, counts(p)); diff != "" {
		t.Error(diff)
	}
	a := create(t, p, sandbox.Spec{ID: "a"})
	b := create(t, p, sandbox.Spec{ID: "b", Image: "third"})
	c := create(t, p, sandbox.Spec{ID: "c", Image: "other"})
	filled(t, p)
	if diff := cmp.Diff(Stats{Hits: 2, Misses: 1, Ready: 3, Size: 3, InUse: 3}, counts(p)); diff != "" {
		t.Error(diff)
	}
	if s := p.Stats(); s.Wait <= 0 || s.MaxWait <= 0 || s.MaxWait > s.Wait || s.HitRate() < 0.66 || s.HitRate() > 0.67 {
		t.Errorf("%+v, %f", s, s.HitRate())
	}
	for _, s := range []sandbox.Sandbox{a, b, c} {
		end(t, s)
	}
	if n := p.Stats().InUse; n != 0 {
		t.Errorf("%d in use", n)
	}
	if (Stats{}).HitRate() != 0 {
		t.Error("a rate of nothing")
	}
}

// TestExhausted: no more than Max, of which a kind in need takes from another's; ended ones make room.
func TestExhausted(t *testing.T) {
	p := start(t, Config{Provider: newLocal(t), Max: 2, Templates: []Template{{Size: 2}}})
	a := create(t, p, sandbox.Spec{ID: "a"})
	b := create(t, p, sandbox.Spec{ID: "b", Image: "other"})
	_, err := p.Create(t.Context(), sandbox.Spec{ID: "c", Workspace: shortDir(t)})
	if !errors.Is(err, schemas.ErrPoolExhausted) {
		t.Error(err)
	}
	if diff := cmp.Diff(Stats{Hits: 1, Misses: 1, Exhausted: 1, Size: 2, InUse: 2}, counts(p)); diff != "" {
		t.Error(diff)
	}
	end(t, b)
	c := create(t, p, sandbox.Spec{ID: "c"})
	end(t, a)
	end(t, c)
}

// TestMemberEnds: one that ends while it waits is replaced, and never given out.
func TestMemberEnds(t *testing.T) {
	inner := &recorder{Provider: newLocal(t)}
	p := start(t, Config{Provider: inner, Templates: []Template{{Size: 1}}})
	first := inner.last()
	end(t, first)
	s := create(t, p, sandbox.Spec{ID: "a"})
	if got := say(t, s, "echo alive"); got != "alive\n" {
		t.Errorf("%q", got)
	}
	end(t, s)
}

// recorder remembers what was made, and fails where it is told to.
type recorder struct {
	sandbox.Provider
	mu    sync.Mutex
	made  []sandbox.Sandbox
	fails int
}

func (r *recorder) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	r.mu.Lock()
	fail := r.fails > 0
	r.fails--
	r.mu.Unlock()
	if fail {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "not now")
	}
	s, err := r.Provider.Create(ctx, spec)
	if err == nil {
		r.mu.Lock()
		r.made = append(r.made, s)
		r.mu.Unlock()
	}
	return s, err
}

func (r *recorder) last() sandbox.Sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made[len(r.made)-1]
}

// plain hides that a sandbox can be rebound.
type plain struct{ sandbox.Provider }

func (p plain) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	s, err := p.Provider.Create(ctx, spec)
	return struct{ sandbox.Sandbox }{s}, err
}

// TestRetry: what fails is tried again, and said; what is not ready is ended.
func TestRetry(t *testing.T) {
	var mu sync.Mutex
	var warned []error
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
		Warn: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			warned = append(warned, err)
		},
	})
	mu.Lock()
	defer mu.Unlock()
	if len(warned) != 3 || !strings.Contains(warned[2].Error(), "not ready") || p.Stats().Failed != 3 || p.Stats().Ready != 1 {
		t.Errorf("%v, %+v", warned, p.Stats())
	}
}

// TestNotPoolable: a provider whose sandboxes cannot be rebound still works, with nothing kept.
func TestNotPoolable(t *testing.T) {
	warned := make(chan error, 100)
	p, err := New(Config{Provider: plain{newLocal(t)}, Dir: filepath.Join(shortDir(t), "pool"), Templates: []Template{{Size: 1}}, Warn: func(err error) {
		select {
		case warned <- err:
		default:
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	run(t, p)
	if err := <-warned; !errors.Is(err, schemas.ErrInvalidArgument) {
		t.Error(err)
	}
	end(t, create(t, p, sandbox.Spec{ID: "a"}))
}

// TestMany: sixteen at a time get one each, some ready and some not.
func TestMany(t *testing.T) {
	p := start(t, Config{Provider: newLocal(t), Templates: []Template{{Size: 4}}})
	dir := shortDir(t)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for round := range 3 {
				id := fmt.Sprintf("s%d-%d", i, round)
				s, err := p.Create(t.Context(), sandbox.Spec{ID: id, Workspace: filepath.Join(dir, id)})
				if err != nil {
					t.Error(err)
					return
				}
				if err := s.Terminate(t.Context(), 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	filled(t, p)
	if s := counts(p); s.Hits+s.Misses != 48 || s.Hits < 4 || s.Ready != 4 || s.InUse != 0 {
		t.Errorf("%+v", s)
	}
}
