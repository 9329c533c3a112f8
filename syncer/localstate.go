package syncer

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// What a sync keeps in the root beside the state file.
const (
	indexName = state.ReservedName + ".index"
	maxIndex  = 1 << 30 // bytes
	// journalName is the file that lists, while a pull changes the folder, the paths that it removes to put another kind
	// of thing in their place. Between the two such a path is missing; without the journal an interrupted pull would look
	// as if the user had deleted it.
	journalName = state.ReservedName + ".journal"
)

// loadIndex reads the index. It is valid only with the state file that it was written with: another tool may have written
// that file since, and the documented file decides.
func (o *operation) loadIndex() error {
	o.index = &worktree.Index{}
	st, err := o.statState()
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	if data, err := worktree.ReadOwn(o.root, indexName, maxIndex); err == nil {
		if known, err := worktree.DecodeIndex(data); err == nil {
			o.index = known
			if !missing && known.StateFile == st {
				o.indexValid = true
			} else {
				// Its stats still identify the content of the files. The base comes from the state file.
				o.index = &worktree.Index{Seen: known.Seen}
			}
		}
	}
	if !o.indexValid && !missing {
		if err := o.loadState(); err != nil {
			return err
		}
	}
	if o.index.Remote != o.cfg.Remote && o.index.Remote != "" {
		o.index = &worktree.Index{Seen: o.index.Seen}
		o.indexValid = false
	}
	return nil
}

func (o *operation) statState() (worktree.Stat, error) {
	f, st, _, err := worktree.Open(o.root, state.ReservedName)
	if err != nil {
		return worktree.Stat{}, err
	}
	return st, f.Close()
}

// loadState takes the base from the state file. A corrupt file counts as none. Nothing is deleted or overwritten for it:
// every path that differs between the sides has then changed on both.
func (o *operation) loadState() error {
	data, err := worktree.ReadOwn(o.root, state.ReservedName, o.cfg.Limits.StateBytes)
	if err != nil {
		return err
	}
	s, err := state.Decode(data, o.cfg.Limits)
	if errors.Is(err, state.ErrCorrupt) {
		o.note("the local state file was corrupt and has been rebuilt")
		return nil
	}
	if err != nil {
		return err
	}
	s.ForgetContent()
	o.index.Base, o.index.Remote = *s, s.Remote
	return nil
}

// saveBase writes the state file and the index after an operation. base computes what both sides have in common from the
// plan and the store's tree. It writes nothing when nothing is new.
func (o *operation) saveBase(t *worktree.Tree, s *state.State, token string, steps []plan.Step,
	base func(steps []plan.Step, now []state.Node) ([]state.Node, bool)) error {
	if o.indexValid && s == &o.index.Base && token == o.index.Token && t.Reused == len(o.index.Seen) &&
		t.Reused == o.report.Files && !slices.ContainsFunc(steps, func(s plan.Step) bool { return s.Do != plan.InSync }) {
		return nil
	}
	next := &worktree.Index{Remote: o.cfg.Remote, Token: token, Probed: o.index.Probed, Base: *s}
	next.Base.Nodes, next.Whole = base(steps, s.Nodes)
	next.Whole = next.Whole && s.Published() // else the next operation must read what is still to do
	next.Base.Pending, next.Base.Dropping = nil, nil
	if !next.Whole {
		next.Base.ForgetContent()
	}
	next.Base.Remote = ""
	return o.writeBase(t, next)
}

// writeBase writes the state file, then the index that matches it. When a crash of the machine undoes the renames, the two
// older files match as well. They know less than is true, which only costs time.
func (o *operation) writeBase(t *worktree.Tree, next *worktree.Index) error {
	portable := next.Base
	portable.Remote, portable.Nodes = o.cfg.Remote, slices.Clone(next.Base.Nodes)
	portable.ForgetContent()
	skew, err := worktree.ReplaceFile(o.root, state.ReservedName, portable.Encode(), true)
	if err != nil {
		return err
	}
	if next.StateFile, err = o.statState(); err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	next.Seen = t.Seen(o.scanned.UnixNano() + skew)
	_, err = worktree.ReplaceFile(o.root, indexName, next.Encode(), false)
	return err
}

func (o *operation) writeJournal(swapped []*state.Node) error {
	if len(swapped) == 0 {
		return nil
	}
	paths := make([][]byte, len(swapped))
	for i, n := range swapped {
		paths[i] = []byte(n.Path)
	}
	data, err := json.Marshal(paths)
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	o.journaled = true
	_, err = worktree.ReplaceFile(o.root, journalName, data, true)
	return err
}

// readJournal puts the paths that an interrupted pull has removed back into the tree as they were at the last sync.
func (o *operation) readJournal(t *worktree.Tree) error {
	data, err := worktree.ReadOwn(o.root, journalName, o.cfg.Limits.StateBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var paths [][]byte
	if err == nil {
		err = json.Unmarshal(data, &paths)
	}
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: reading %s of an interrupted pull: %w", journalName, err)
	}
	o.journaled = true
	for _, p := range paths {
		at, exists := t.Search(string(p))
		base, known := o.index.Base.Search(string(p))
		if exists || !known {
			continue
		}
		n := o.index.Base.Nodes[base]
		t.Nodes = slices.Insert(t.Nodes, at, &n)
		t.Stats = slices.Insert(t.Stats, at, worktree.Stat{})
	}
	return nil
}

func (o *operation) removeJournal() error {
	if !o.journaled {
		return nil
	}
	if err := o.root.Remove(journalName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	return nil
}
