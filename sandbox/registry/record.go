package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/internal/shortage"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Record is what every provider stores about a sandbox. A provider embeds it in its own struct, with the other fields that it needs
// to reattach. Files of the version before must stay readable: keep the JSON names, and keep the object flat.
type Record struct {
	// ID is the id the sandbox was created under, Spec its current Spec.
	ID   string       `json:"id"`
	Spec sandbox.Spec `json:"spec"`
	// Name identifies the sandbox's files and sockets on this machine: 20 hexadecimal digits.
	Name string `json:"name"`
}

// Entry is a *Record, or a pointer to a struct R that embeds a Record.
type Entry[R any] interface {
	*R
	common() *Record
}

func (r *Record) common() *Record { return r }

// NameOf derives a Record's Name from its ID, so that an id always has the same files.
func NameOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:10])
}

// namePattern matches a Record's name. A file with another name is not the registry's.
var namePattern = regexp.MustCompile(`^[0-9a-f]{20}$`)

const (
	suffix     = ".json"
	tempSuffix = ".tmp" // after suffix, while the file is being written
)

// Save writes a sandbox's record file atomically: a reader finds the old one or the new one. Errors: unavailable.
func (g *Registry[S, R]) Save(r R) error {
	c := g.common(&r)
	body, err := json.Marshal(r)
	if err == nil {
		err = replace(g.path(c.Name), body)
	}
	if err != nil {
		return schemas.Errorf(schemas.CodeUnavailable, "provider %s: write the record of sandbox %s: %w", g.provider, c.ID, err)
	}
	return nil
}

// SaveSpec writes the record file of r with another Spec. Errors: unavailable.
func (g *Registry[S, R]) SaveSpec(r R, spec sandbox.Spec) error {
	g.common(&r).Spec = spec
	return g.Save(r)
}

// replace writes a temporary file and renames it. It does not sync: a sandbox does not outlive the machine.
func replace(path string, body []byte) error {
	tmp := path + tempSuffix
	if err := os.WriteFile(tmp, body, 0o600); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}

func (g *Registry[S, R]) path(name string) string { return filepath.Join(g.dir, name+suffix) }

// removeFile removes a record file. A file that remains is found as an orphan, and removed then. mu is held.
func (g *Registry[S, R]) removeFile(name string) { _ = os.Remove(g.path(name)) }

// Tracked reports whether a name belongs to a sandbox in memory, also one that is being created, or to a record file.
func (g *Registry[S, R]) Tracked(name string) bool {
	if g.inMemory(name) {
		return true
	}
	_, err := os.Lstat(g.path(name))
	return err == nil
}

func (g *Registry[S, R]) inMemory(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.slots {
		if s.name == name {
			return true
		}
	}
	return false
}

const (
	attachParallel = 16               // sandboxes that are reopened at the same time
	attachTimeout  = 10 * time.Second // for one sandbox
)

// Attach calls open for every orphan, and returns the sandboxes that it opened. open must clean up after a sandbox that it cannot
// open; the record file is then removed, and the reason is warned of. Errors: unavailable when the folder cannot be read.
func (g *Registry[S, R]) Attach(ctx context.Context, open func(ctx context.Context, r R) (S, error)) ([]sandbox.Attached, error) {
	records, err := g.Orphans()
	if err != nil {
		return nil, err
	}
	opened := make([]sandbox.Attached, len(records))
	var group errgroup.Group
	group.SetLimit(attachParallel)
	for i, r := range records {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, attachTimeout)
			defer cancel()
			c := g.common(&r)
			s, err := g.add(c.ID, c.Name, func() (S, error) { return open(ctx, r) })
			if err != nil {
				name := c.ID
				if c.Spec.Thread != "" {
					name += " of thread " + c.Spec.Thread
				}
				g.warn(schemas.Errorf(schemas.CodeOf(err), "provider %s: sandbox %s could not be taken over: %w", g.provider, name, err))
				return nil
			}
			opened[i] = s
			return nil
		})
	}
	_ = group.Wait() // its functions return no error
	return slices.DeleteFunc(opened, func(s sandbox.Attached) bool { return s == nil }), nil
}

// Orphans reads the records of sandboxes that are not in memory: an earlier process created them. It removes files that it cannot
// decode, and temporary files of a process that was killed while it wrote. Errors: unavailable when the folder cannot be read, or no more files can
// be opened.
func (g *Registry[S, R]) Orphans() ([]R, error) {
	entries, err := os.ReadDir(g.dir)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "provider %s: registry folder: %w", g.provider, err)
	}
	var records []R
	for _, e := range entries {
		path := filepath.Join(g.dir, e.Name())
		if name, ok := strings.CutSuffix(e.Name(), suffix+tempSuffix); ok && !g.inMemory(name) {
			_ = os.Remove(path) // the next call tries again
			continue
		}
		name, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok || !namePattern.MatchString(name) {
			continue
		}
		body, err := os.ReadFile(path)
		if shortage.Of(err) {
			return nil, shortage.Explain(fmt.Errorf("provider %s: registry folder: %w", g.provider, err))
		}
		if err != nil {
			continue // removed since ReadDir
		}
		var r R
		err = json.Unmarshal(body, &r)
		c := g.common(&r)
		if err != nil || c.Name != name || schemas.CheckID("id", c.ID) != nil {
			_ = os.Remove(path) // the next call tries again
			continue
		}
		g.mu.Lock()
		known := g.slots[c.ID] != nil
		g.mu.Unlock()
		if !known {
			records = append(records, r)
		}
	}
	return records, nil
}

// SweepSockets removes the sockets in a folder that belong to no tracked sandbox, for example of a start that was interrupted.
func (g *Registry[S, R]) SweepSockets(dir string) {
	for _, suffix := range []string{".sock", ".ask"} {
		paths, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
		if err != nil {
			continue
		}
		for _, path := range paths {
			if name := strings.TrimSuffix(filepath.Base(path), suffix); namePattern.MatchString(name) && !g.Tracked(name) {
				_ = os.Remove(path) // the next call tries again
			}
		}
	}
}
