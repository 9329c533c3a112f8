package registry

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Box is a sandbox as a provider makes it.
type Box interface {
	sandbox.Attached
	// Leave lets go of it without ending it. Done is closed then.
	Leave()
}

// Keeper keeps a provider's sandboxes. All its methods may be called at the same time.
type Registry[B Box] struct {
	provider string
	dir      string // of the files

	mu     sync.Mutex
	boxes  map[string]*slot // by the id they were made under
	making sync.WaitGroup
	closed bool
}

// slot is a sandbox, or the room for one that is being made.
type slot struct {
	box  any // a B; nil while it is being made
	name string
}

// New makes the folder in a provider's run folder. Errors: unavailable.
func New[B Box](provider, runDir string) (*Registry[B], error) {
	dir := filepath.Join(runDir, "kept")
	if err := PrivateDir(dir); err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "provider %s: folder of sandboxes: %w", provider, err)
	}
	return &Registry[B]{provider: provider, dir: dir, boxes: make(map[string]*slot)}, nil
}

// Create makes a sandbox, whose things are called name on this machine, and its workspace where that is missing, which goes again
// when launch fails. launch must Save a Record before it greets the supervisor, and must not leave anything behind when it fails
// but that. Errors: conflict for an id that is in use, unavailable when the Keeper is closed, invalid_argument for the workspace;
// launch's.
func (g *Registry[B]) Create(spec sandbox.Spec, name string, launch func() (B, error)) (B, error) {
	return g.add(spec.ID, name, func() (box B, err error) {
		made, err := makeWorkspace(spec.Workspace)
		if err != nil {
			return box, schemas.Errorf(schemas.CodeInvalidArgument, "workspace: %w", err).With("path", "workspace")
		}
		if box, err = launch(); err != nil && made {
			// Only what is empty, and only the last folder: the ones above may be others' by now.
			_ = os.Remove(spec.Workspace)
		}
		return box, err
	})
}

// add is the life of a slot until its sandbox is there.
func (g *Registry[B]) add(id, name string, launch func() (B, error)) (box B, err error) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return box, schemas.Errorf(schemas.CodeUnavailable, "provider %s is closed", g.provider)
	}
	if g.boxes[id] != nil {
		g.mu.Unlock()
		return box, schemas.Errorf(schemas.CodeConflict, "sandbox %s is there already", id)
	}
	s := &slot{name: name}
	g.boxes[id] = s
	g.making.Add(1)
	g.mu.Unlock()
	defer g.making.Done()
	box, err = launch()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.drop(s.name)
		delete(g.boxes, id)
		return box, err
	}
	select {
	case <-box.Done(): // it has been forgotten already
	default:
		s.box = box
	}
	return box, nil
}

// Forget drops a sandbox that has ended, and its file. It is called before its Done is closed.
func (g *Registry[B]) Forget(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.boxes[id]; s != nil {
		g.drop(s.name)
		delete(g.boxes, id)
	}
}

// Boxes are the sandboxes there are.
func (g *Registry[B]) Boxes() []B {
	g.mu.Lock()
	defer g.mu.Unlock()
	boxes := make([]B, 0, len(g.boxes))
	for _, s := range g.boxes {
		if b, ok := s.box.(B); ok {
			boxes = append(boxes, b)
		}
	}
	return boxes
}

// Close ends every sandbox, without grace, and says whether it was the first to.
func (g *Registry[B]) Close() (first bool) {
	return g.shut(func(b B) {
		// Terminate fails by its context alone, and this one has no end.
		_ = b.Terminate(context.Background(), 0)
	})
}

// Leave lets go of every sandbox, as Box.Leave does, and says whether it was the first to. Their files stay.
func (g *Registry[B]) Leave() (first bool) {
	return g.shut(func(b B) { b.Leave() })
}

func (g *Registry[B]) shut(each func(B)) (first bool) {
	g.mu.Lock()
	first = !g.closed
	g.closed = true
	g.mu.Unlock()
	g.making.Wait()
	var all sync.WaitGroup
	for _, b := range g.Boxes() {
		all.Go(func() { each(b) })
	}
	all.Wait()
	return first
}

// ReattachWindow is what a provider's setting means: the default for 0, none for less.
func ReattachWindow(setting time.Duration) time.Duration {
	switch {
	case setting == 0:
		return sandbox.ReattachWindow
	case setting < 0:
		return 0
	default:
		return setting
	}
}
