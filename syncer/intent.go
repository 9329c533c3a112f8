package syncer

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// An operation writes the state file that it will leave before it changes anything, and renames it in the end. An interrupted one
// has left that file, from which the next one knows what the sides have in common: a folder does not conflict with itself.
const (
	pushingName = state.ReservedName + ".pushing"
	pullingName = state.ReservedName + ".pulling"
)

// stateFile replaces the state file of a folder.
type stateFile struct {
	root     *os.Root
	own      *os.Root // has what is prepared: root, or [Config].OwnDir
	cfg      *Config
	prepared struct { // the next content, which does not have its name yet
		name, id string
		skew     int64 // see [worktree.ReplaceFile]
	}
}

func (f *stateFile) prepare(name string, base *state.State) error {
	skew, err := worktree.ReplaceFile(f.own, name, f.portable(base).Encode(), true)
	if err == nil {
		f.prepared.name, f.prepared.id, f.prepared.skew = name, base.ID, skew
	}
	return err
}

// replace gives the state file its next content, which may have been prepared.
func (f *stateFile) replace(base *state.State) (skew int64, err error) {
	ready := f.prepared
	f.prepared.name = ""
	if ready.name == "" || ready.id != base.ID {
		return f.replaceInFolder(base)
	}
	if f.own != f.root {
		if skew, err = f.replaceInFolder(base); err == nil {
			err = removeOwn(f.own, ready.name)
		}
		return skew, err
	}
	if err := f.root.Rename(ready.name, state.ReservedName); err != nil {
		return 0, schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	return ready.skew, nil
}

// portable returns a base as the state file has it.
func (f *stateFile) portable(base *state.State) *state.State {
	portable := *base
	portable.Remote, portable.Nodes = f.cfg.Remote, slices.Clone(base.Nodes)
	portable.Pending, portable.Dropping = nil, nil
	portable.ForgetContent()
	return &portable
}

// readPrepared reads what an interrupted operation has prepared. Where that is damaged, by a crash, or of another store, there is
// none.
func (f *stateFile) readPrepared(name string) (s *state.State, ok bool, err error) {
	data, err := worktree.ReadOwn(f.own, name, f.cfg.Limits.StateBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, schemas.Errorf(schemas.CodeInternal, "sync: reading %s: %w", name, err)
	}
	s, err = state.Decode(data, f.cfg.Limits)
	return s, err == nil && s.Remote == f.cfg.Remote, nil
}

// removeOwn removes one of Sluice's own files, which may not exist.
func removeOwn(root *os.Root, name string) error {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	return nil
}

// intents are the states that pushes of this folder meant to store, and of which it is not known whether they did.
type intents struct {
	file *stateFile
	all  []*state.State
}

func (in *intents) load() error {
	s, ok, err := in.file.readPrepared(pushingName)
	if ok {
		in.all = append(in.all, s)
	}
	return err
}

// add writes down what a push is about to store.
func (in *intents) add(base *state.State) error {
	err := in.file.prepare(pushingName, base)
	if err == nil {
		in.all = append(in.all, in.file.portable(base))
	}
	return err
}

// stored returns the newest intent that the store's state is, or is a successor of, and makes it the state file. nil for none that is
// newer than the base.
func (in *intents) stored(base, now *state.State) (*state.State, error) {
	for _, s := range slices.Backward(in.all) {
		if s.ID <= base.ID || now.ID != s.ID && !slices.Contains(now.Lineage, s.ID) {
			continue
		}
		if _, err := in.file.replace(s); err != nil {
			return nil, err
		}
		return s, in.forget()
	}
	return nil, nil
}

// drop forgets the intent of this push, which has stored nothing. What an earlier push meant to store stays.
func (in *intents) drop() error {
	if in.file.prepared.name != pushingName {
		return nil
	}
	return in.forget()
}

func (in *intents) forget() error { return removeOwn(in.file.own, pushingName) }

// checkWritable returns an error for a folder in which a push could not write down what it stores.
func (f *stateFile) checkWritable() error {
	if err := unix.Access(f.cfg.Root, unix.W_OK); err != nil {
		return schemas.Errorf(schemas.CodePermissionDenied,
			"sync: nothing was pushed, because a push records in the folder what it stores, and %s cannot be written to: %w", f.cfg.Root, err)
	}
	return nil
}
