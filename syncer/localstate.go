package syncer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// What a sync keeps in the root beside the state file.
const (
	indexName = state.ReservedName + ".index"
	maxIndex  = 512 << 20 // bytes
)

// IndexSize returns the size in bytes of the index that the last sync left in a folder, 0 for none. A sync takes a small multiple of it in memory.
func IndexSize(dir string) int64 {
	info, err := os.Lstat(filepath.Join(dir, indexName))
	if err != nil {
		return 0
	}
	return info.Size()
}

// loadIndex reads the index. It is valid only with the state file that it was written with: another tool may have written
// that file since, and the documented file decides.
func (o *operation) loadIndex() error {
	o.index = &worktree.Index{}
	st, err := o.statState()
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	if known := readIndex(o.own, o.cfg.Limits.Entries); known != nil {
		o.index = known
		if !missing && (known.StateFile == st || o.file.wrote(&known.Base)) {
			o.indexValid = true
		} else {
			// Its stats still identify the content of the files. The base comes from the state file.
			o.index = &worktree.Index{Seen: known.Seen}
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
	if o.journal, err = readJournal(o.own, o.cfg.Limits); err != nil {
		return err
	}
	return o.intents.load()
}

// readIndex returns the index in a folder, nil where it is missing or not readable.
func readIndex(own *os.Root, entries int) *worktree.Index {
	f, size, err := worktree.OpenTrusted(own, indexName, maxIndex)
	if err != nil {
		return nil
	}
	defer f.Close()
	known, err := worktree.DecodeIndex(f, size, entries)
	if err != nil {
		return nil
	}
	return known
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
	limit := o.cfg.Limits.StateBytes
	if o.own != o.root {
		limit = min(limit, maxForeignState)
	}
	data, err := worktree.ReadOwn(o.root, state.ReservedName, limit)
	if o.own != o.root && errors.Is(err, schemas.ErrTooLarge) {
		o.note("the local state file is not as the last sync left it, and has been rebuilt")
		return nil
	}
	if err != nil {
		return err
	}
	s, err := state.Decode(data, o.cfg.Limits)
	if errors.Is(err, state.ErrCorrupt) {
		o.note("the local state file was corrupt and has been rebuilt")
		return nil
	}
	if err != nil {
		return unusable("the state file "+state.ReservedName+" of the folder", err)
	}
	s.ForgetContent()
	o.index.Base, o.index.Remote = *s, s.Remote
	return nil
}

// baseFunc computes what both sides have in common after an operation, from the plan and the store's tree.
type baseFunc func(steps []plan.Step, now []state.Node) (base []state.Node, whole bool)

func (f baseFunc) of(s *state.State, steps []plan.Step) state.State {
	base := *s
	base.Nodes, _ = f(steps, s.Nodes)
	return base
}

// saveBase writes the state file and the index after an operation. It writes nothing when nothing is new.
func (o *operation) saveBase(t *worktree.Tree, s *state.State, token string, steps []plan.Step, base baseFunc) error {
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
	skew, err := o.file.replace(&next.Base)
	if err != nil {
		return err
	}
	if next.StateFile, err = o.statState(); err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	next.Seen = t.Seen(o.scanned.UnixNano() + skew)
	if _, err = worktree.ReplaceFile(o.own, indexName, next.Encode(), false); err != nil {
		o.note("the index could not be written, and the next sync reads more: " + err.Error())
	}
	return nil
}
