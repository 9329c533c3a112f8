package registry

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/internal/projectquota"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/workspace"
	"github.com/sluice-dev/sluice/schemas"
)

// Sandbox is a sandbox as a provider implements it.
type Sandbox interface {
	sandbox.Attached
	// Detach closes the connection and leaves the sandbox running. Done is closed then.
	Detach()
}

// Registry tracks the sandboxes of one provider: S is the provider's sandbox, R its record. All its methods may be called at the
// same time.
type Registry[S Sandbox, R any] struct {
	provider string
	dir      string             // of the record files
	common   func(r *R) *Record // returns the Record in r
	warn     func(error)

	mu       sync.Mutex
	slots    map[string]*slot // by the id that the sandbox was created under
	creating sync.WaitGroup
	closed   bool
}

// slot is a sandbox, or the reserved id of one that is being created.
type slot struct {
	sandbox any // an S; nil while it is being created
	name    string
}

// folderName is the folder of the record files in the run folder. Workers of earlier versions use it too: do not change it.
const folderName = "kept"

// New makes the folder for the record files in a provider's run folder. warn gets why a sandbox could not be taken over. Errors:
// unavailable.
func New[S Sandbox, R any, P Entry[R]](provider, runDir string, warn func(error)) (*Registry[S, R], error) {
	dir := filepath.Join(runDir, folderName)
	if err := PrivateDir(dir); err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "provider %s: registry folder: %w", provider, err)
	}
	common := func(r *R) *Record { return P(r).common() }
	return &Registry[S, R]{provider: provider, dir: dir, common: common, warn: warn, slots: make(map[string]*slot)}, nil
}

// Create reserves the id, makes the workspace when it is missing, and calls launch. name identifies the sandbox's files and
// sockets on this machine. launch must Save a record before it greets the supervisor; when it fails, it must leave nothing behind
// but that record. A workspace that Create made is removed again when launch fails. Errors: conflict for an id in use, unavailable
// when the Registry is closed, invalid_argument for the workspace; launch's.
func (g *Registry[S, R]) Create(spec sandbox.Spec, name string, launch func() (S, error)) (sandbox.Sandbox, error) {
	s, err := g.add(spec.ID, name, func() (s S, err error) {
		created, err := makeWorkspace(spec.Workspace)
		if err != nil {
			return s, schemas.Errorf(schemas.CodeInvalidArgument, "workspace: %w", err).With("path", "workspace")
		}
		if err = workspace.SetHardLimit(spec.Workspace, spec.Limits); err == nil {
			s, err = launch()
		}
		if err != nil && created {
			projectquota.Clear(spec.Workspace)
			// Only when empty, and only the last folder: others may use its parents by now.
			_ = os.Remove(spec.Workspace)
		}
		return s, err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// add reserves the id and the name while launch runs, and tracks the sandbox that it returns.
func (g *Registry[S, R]) add(id, name string, launch func() (S, error)) (s S, err error) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return s, schemas.Errorf(schemas.CodeUnavailable, "provider %s is closed", g.provider)
	}
	if g.slots[id] != nil {
		g.mu.Unlock()
		return s, schemas.Errorf(schemas.CodeConflict, "sandbox %s already exists", id)
	}
	reserved := &slot{name: name}
	g.slots[id] = reserved
	g.creating.Add(1)
	g.mu.Unlock()
	defer g.creating.Done()
	s, err = launch()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.removeFile(name)
		delete(g.slots, id)
		return s, err
	}
	select {
	case <-s.Done(): // it has ended, and Remove was called already
	default:
		reserved.sandbox = s
	}
	return s, nil
}

// Remove stops tracking a sandbox that has ended, and removes its file. Call it before the sandbox's Done is closed.
func (g *Registry[S, R]) Remove(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.slots[id]; s != nil {
		g.removeFile(s.name)
		delete(g.slots, id)
	}
}

// Close ends every sandbox without a grace period, and reports whether this was the first call of Close or Detach.
func (g *Registry[S, R]) Close() (first bool) {
	return g.shut(func(s S) {
		// Terminate fails only when its context ends, and this one does not.
		_ = s.Terminate(context.Background(), 0)
	})
}

// Detach calls Detach of every sandbox, and reports whether this was the first call of Close or Detach. The files stay.
func (g *Registry[S, R]) Detach() (first bool) {
	return g.shut(func(s S) { s.Detach() })
}

// shut refuses new sandboxes, and calls end for each that exists.
func (g *Registry[S, R]) shut(end func(S)) (first bool) {
	g.mu.Lock()
	first = !g.closed
	g.closed = true
	g.mu.Unlock()
	g.creating.Wait()
	g.mu.Lock()
	var ends sync.WaitGroup
	for _, slot := range g.slots {
		if s, ok := slot.sandbox.(S); ok {
			ends.Go(func() { end(s) })
		}
	}
	g.mu.Unlock()
	ends.Wait()
	return first
}

// ReattachWindow returns the effective value of a provider's setting: sandbox.ReattachWindow for 0, none when negative.
func ReattachWindow(setting time.Duration) time.Duration {
	return max(0, cmp.Or(setting, sandbox.ReattachWindow))
}

// PrivateDir makes a folder of mode 0700, or changes the mode of an existing one. It refuses a folder that another user owns.
func PrivateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a folder owned by this user", dir)
	}
	if info.Mode().Perm() != 0o700 {
		return os.Chmod(dir, 0o700)
	}
	return nil
}

func makeWorkspace(dir string) (created bool, err error) {
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return false, nil
	case err == nil:
		return false, fmt.Errorf("%s is not a folder", dir)
	case !os.IsNotExist(err):
		return false, err
	}
	return true, os.MkdirAll(dir, 0o700)
}
