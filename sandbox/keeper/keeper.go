package keeper

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
type Keeper[B Box] struct {
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
func New[B Box](provider, runDir string) (*Keeper[B], error) {
	dir := filepath.Join(runDir, "kept")
	if err := PrivateDir(dir); err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "provider %s: folder of sandboxes: %w", provider, err)
	}
	return &Keeper[B]{provider: provider, dir: dir, boxes: make(map[string]*slot)}, nil
}

// Create makes a sandbox, whose things are called name on this machine, and its workspace where that is missing, which goes again
// when launch fails. launch must Save a Record before it greets the supervisor, and must not leave anything behind when it fails
// but that. Errors: conflict for an id that is in use, unavailable when the Keeper is closed, invalid_argument for the workspace;
// launch's.
func (k *Keeper[B]) Create(spec sandbox.Spec, name string, launch func() (B, error)) (B, error) {
	return k.add(spec.ID, name, func() (box B, err error) {
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
func (k *Keeper[B]) add(id, name string, launch func() (B, error)) (box B, err error) {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return box, schemas.Errorf(schemas.CodeUnavailable, "provider %s is closed", k.provider)
	}
	if k.boxes[id] != nil {
		k.mu.Unlock()
		return box, schemas.Errorf(schemas.CodeConflict, "sandbox %s is there already", id)
	}
	s := &slot{name: name}
	k.boxes[id] = s
	k.making.Add(1)
	k.mu.Unlock()
	defer k.making.Done()
	box, err = launch()
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.drop(s.name)
		delete(k.boxes, id)
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
func (k *Keeper[B]) Forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.boxes[id]; s != nil {
		k.drop(s.name)
		delete(k.boxes, id)
	}
}

// Boxes are the sandboxes there are.
func (k *Keeper[B]) Boxes() []B {
	k.mu.Lock()
	defer k.mu.Unlock()
	boxes := make([]B, 0, len(k.boxes))
	for _, s := range k.boxes {
		if b, ok := s.box.(B); ok {
			boxes = append(boxes, b)
		}
	}
	return boxes
}

// Close ends every sandbox, without grace, and says whether it was the first to.
func (k *Keeper[B]) Close() (first bool) {
	return k.shut(func(b B) {
		// Terminate fails by its context alone, and this one has no end.
		_ = b.Terminate(context.Background(), 0)
	})
}

// Leave lets go of every sandbox, as Box.Leave does, and says whether it was the first to. Their files stay.
func (k *Keeper[B]) Leave() (first bool) {
	return k.shut(func(b B) { b.Leave() })
}

func (k *Keeper[B]) shut(each func(B)) (first bool) {
	k.mu.Lock()
	first = !k.closed
	k.closed = true
	k.mu.Unlock()
	k.making.Wait()
	var all sync.WaitGroup
	for _, b := range k.Boxes() {
		all.Go(func() { each(b) })
	}
	all.Wait()
	return first
}

// Linger is what a provider's setting means: the default for 0, none for less.
func Linger(setting time.Duration) time.Duration {
	switch {
	case setting == 0:
		return sandbox.Linger
	case setting < 0:
		return 0
	default:
		return setting
	}
}
