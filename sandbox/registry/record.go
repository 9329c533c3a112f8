package registry

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Record is what it takes to find a sandbox again.
type Record struct {
	// ID is what the sandbox was made under; Spec what it is now.
	ID   string       `json:"id"`
	Spec sandbox.Spec `json:"spec"`
	// Name is what its things are called on this machine: 20 hexadecimal digits.
	Name string `json:"name"`
	// PID is its supervisor's id on this machine and Start when that was started, as StartTime tells; 0 where an engine knows.
	PID   int    `json:"pid,omitempty"`
	Start uint64 `json:"start,omitempty"`
	// UID is the user the processes run as, where the sandbox has one to itself.
	UID int `json:"uid,omitempty"`
	// Given says that the files of the workspace were given to that user.
	Given bool `json:"given,omitempty"`
	// Container is the engine's id, where there is an engine.
	Container string `json:"container,omitempty"`
}

// named is what a Record's name looks like, against a file that somebody else put there.
var named = regexp.MustCompile(`^[0-9a-f]{20}$`)

const suffix = ".json"

// Save stores a sandbox's Record, at once: a reader finds the old one or the new one. Errors: unavailable.
func (g *Registry[B]) Save(r Record) error {
	body, err := json.Marshal(r)
	if err == nil {
		err = replace(g.path(r.Name), body)
	}
	if err != nil {
		return schemas.Errorf(schemas.CodeUnavailable, "provider %s: store where sandbox %s is: %w", g.provider, r.ID, err)
	}
	return nil
}

// unfinished ends the name of a file that is being written.
const unfinished = ".tmp"

// replace writes a file beside the old one, and puts it in its place. It is not forced to the disk: what it tells of does not
// outlive the machine.
func replace(path string, body []byte) error {
	tmp := path + unfinished
	if err := os.WriteFile(tmp, body, 0o600); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}

func (g *Registry[B]) path(name string) string { return filepath.Join(g.dir, name+suffix) }

// drop removes a sandbox's file. mu is held, or nobody else knows the sandbox.
func (g *Registry[B]) drop(name string) {
	_ = os.Remove(g.path(name)) // one that stays is found to be stale
}

// Kept says whether a name is that of a sandbox in memory, or being made, or of one that can be attached.
func (g *Registry[B]) Kept(name string) bool {
	if g.holds(name) {
		return true
	}
	_, err := os.Lstat(g.path(name))
	return err == nil
}

// holds says whether a name is that of a sandbox in memory, or being made.
func (g *Registry[B]) holds(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.boxes {
		if s.name == name {
			return true
		}
	}
	return false
}

const (
	// attachAtOnce is how many sandboxes are opened at a time.
	attachAtOnce = 16
	// attachTimeout is how long one may take to answer.
	attachTimeout = 10 * time.Second
)

// Attach opens every sandbox that a file tells of and that is not in memory. open must clean up after a sandbox that it cannot
// open; its file goes then. Errors: unavailable when the folder cannot be read.
func (g *Registry[B]) Attach(ctx context.Context, open func(ctx context.Context, r Record) (B, error)) ([]sandbox.Attached, error) {
	records, err := g.Left()
	if err != nil {
		return nil, err
	}
	opened := make([]sandbox.Attached, len(records))
	var group errgroup.Group
	group.SetLimit(attachAtOnce)
	for i, r := range records {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, attachTimeout)
			defer cancel()
			if box, err := g.add(r.ID, r.Name, func() (B, error) { return open(ctx, r) }); err == nil {
				opened[i] = box
			}
			return nil
		})
	}
	_ = group.Wait() // its functions return no error
	found := opened[:0]
	for _, box := range opened {
		if box != nil {
			found = append(found, box)
		}
	}
	return found, nil
}

// Left reads the files of sandboxes that are not in memory. One that cannot be understood is removed: it tells of nothing. So
// is one that was being written when its writer was killed. Errors: unavailable when the folder cannot be read.
func (g *Registry[B]) Left() ([]Record, error) {
	entries, err := os.ReadDir(g.dir)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "provider %s: folder of sandboxes: %w", g.provider, err)
	}
	var records []Record
	for _, e := range entries {
		path := filepath.Join(g.dir, e.Name())
		if name, ok := strings.CutSuffix(e.Name(), suffix+unfinished); ok && !g.holds(name) {
			_ = os.Remove(path) // what stays is looked at again
			continue
		}
		name, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok || !named.MatchString(name) {
			continue
		}
		body, err := os.ReadFile(path)
		if err != nil {
			continue // it has just gone
		}
		var r Record
		if json.Unmarshal(body, &r) != nil || r.Name != name || schemas.CheckID("id", r.ID) != nil {
			_ = os.Remove(path) // what stays is looked at again
			continue
		}
		g.mu.Lock()
		there := g.boxes[r.ID] != nil
		g.mu.Unlock()
		if !there {
			records = append(records, r)
		}
	}
	return records, nil
}

// SweepSockets removes the sockets in a folder that are nobody's: of a sandbox that was never finished.
func (g *Registry[B]) SweepSockets(dir string) {
	for _, suffix := range []string{".sock", ".ask"} {
		paths, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
		if err != nil {
			continue
		}
		for _, path := range paths {
			if name := strings.TrimSuffix(filepath.Base(path), suffix); named.MatchString(name) && !g.Kept(name) {
				_ = os.Remove(path) // what stays is found again
			}
		}
	}
}
