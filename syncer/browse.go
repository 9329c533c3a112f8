package syncer

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/plain"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// Entry is one path of a stored version.
type Entry struct {
	Path     string    `json:"path"`
	Kind     string    `json:"kind"` // "file", "folder" or "symlink"
	Mode     uint16    `json:"mode"` // permission bits
	Size     int64     `json:"size"` // bytes
	Modified time.Time `json:"modified_at,omitzero"`
	Target   string    `json:"target,omitempty"` // of a symlink
}

// List returns what the store has at a path and below it, "" for everything, in the version at: an ID, a time, or "" for the current one.
//
// Errors: not_found where there is no such version or path.
func (s *Syncer) List(ctx context.Context, at, path string) ([]Entry, error) {
	version, err := s.version(ctx, at)
	if err != nil {
		return nil, err
	}
	path = strings.Trim(path, "/")
	entries := []Entry{}
	for i := range version.Nodes {
		n := &version.Nodes[i]
		if path != "" && n.Path != path && !state.Within(n.Path, path) {
			continue
		}
		e := Entry{Path: n.Path, Kind: n.Kind.String(), Mode: n.Mode, Size: n.Size, Target: n.Target}
		if n.Kind == state.File {
			e.Modified = n.ModTime().UTC()
		}
		entries = append(entries, e)
	}
	if path != "" && len(entries) == 0 {
		return nil, noPath(path)
	}
	return entries, nil
}

func noPath(path string) error {
	return schemas.Errorf(schemas.CodeNotFound, "sync: the store has no %q in this version: `sluice sync ls` lists what it has", state.Clip(path))
}

// Diff returns what changed from one version to another: each an ID, a time, or "" for the current one.
func (s *Syncer) Diff(ctx context.Context, from, to string) ([]Change, error) {
	old, err := s.version(ctx, from)
	if err != nil {
		return nil, err
	}
	now, err := s.version(ctx, to)
	if err != nil {
		return nil, err
	}
	changes := []Change{}
	a, b := old.Nodes, now.Nodes
	for len(a) > 0 || len(b) > 0 {
		var was, is *state.Node
		if len(b) == 0 || len(a) > 0 && state.ComparePaths(a[0].Path, b[0].Path) <= 0 {
			was = &a[0]
		}
		if len(a) == 0 || len(b) > 0 && state.ComparePaths(b[0].Path, a[0].Path) <= 0 {
			is = &b[0]
		}
		if was != nil {
			a = a[1:]
		}
		if is != nil {
			b = b[1:]
		}
		if !state.Same(was, is) {
			changes = append(changes, difference(was, is))
		}
	}
	return changes, nil
}

// Copy writes a stored file to w, from the version at: an ID, a time, or "" for the current one. Each piece of the packed layout is
// verified before it is written; a file under its own path is verified in the end.
//
// Errors: not_found where there is no such version or path, invalid_argument where it is no file, damaged.
func (s *Syncer) Copy(ctx context.Context, at, path string, w io.Writer) error {
	version, err := s.version(ctx, at)
	if err != nil {
		return err
	}
	i, ok := version.Search(path)
	if !ok {
		return noPath(path)
	}
	n := &version.Nodes[i]
	if n.Kind != state.File {
		return schemas.Errorf(schemas.CodeInvalidArgument, "sync: %q is a %s, not a file", state.Clip(path), n.Kind)
	}
	if version.Layout == state.Plain && len(n.At.Objects) == 0 {
		return plain.Copy(ctx, s.cfg.Store, n, w)
	}
	_, err = io.Copy(w, io.NewSectionReader(packed.NewReader(ctx, s.cfg.Store, version, n), 0, n.Size))
	return err
}

// version returns the version at: an ID, a time, or "" for the current one.
func (s *Syncer) version(ctx context.Context, at string) (*state.State, error) {
	was, err := s.loadRemote(ctx, &worktree.Index{}, nil)
	if err != nil {
		return nil, err
	}
	if was.empty() {
		return nil, schemas.Errorf(schemas.CodeNotFound, "sync: there is nothing at %s yet", s.cfg.Remote)
	}
	return s.versionAt(ctx, at, was.state)
}

// versionAt returns the version at, "" for the current one.
func (s *Syncer) versionAt(ctx context.Context, at string, now *state.State) (*state.State, error) {
	switch {
	case at == "":
		return now, nil
	case now.Layout != state.Packed:
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "sync: the plain layout keeps no versions: use the packed layout")
	}
	return s.findVersion(ctx, at, now)
}
