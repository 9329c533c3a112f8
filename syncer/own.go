package syncer

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/sluice-dev/sluice/internal/removal"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// tieName is the file that ties a folder and its OwnDir: both have the same random name in it. A folder that was removed and made
// again, or was emptied, has another one or none, and what is known of the folder before does not hold for it.
const tieName = state.ReservedName + ".tie"

// maxTie is the most that is read of such a file, in bytes.
const maxTie = 64

// maxForeignState is the most that is read of the state file of a folder that others write to, where it is not as the last sync left
// it, in bytes: more than 100,000 files need.
const maxForeignState = 32 << 20

// kept are the names of what an operation keeps beside the state file.
func kept() []string {
	return []string{journalName, pushingName, pullingName, indexName, storedName, uploadsName}
}

// openOwn opens the folder for what operations keep beside the state file: the root itself unless OwnDir is set.
func (s *Syncer) openOwn(root *os.Root) (*os.Root, error) {
	dir := s.cfg.OwnDir
	if dir == "" {
		return root, nil
	}
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return nil, schemas.Errorf(schemas.CodePermissionDenied, "sync: %s must be a folder that only this user can write to: remove it", dir)
	}
	own, err := os.OpenRoot(dir)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	return own, nil
}

// closeOwn closes what openOwn has opened for a root.
func closeOwn(own, root *os.Root) error {
	if own == root {
		return nil
	}
	return own.Close()
}

// tie makes sure that OwnDir is of this folder, as it is now. Where it is new, it adopts what an earlier version has kept in the folder.
func (o *operation) tie() error {
	if o.own == o.root {
		return nil
	}
	if info, err := o.root.Lstat(state.ReservedName); err == nil && !info.Mode().IsRegular() {
		if err := removal.All(o.root, state.ReservedName); err != nil {
			return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
		}
	}
	mine, err := worktree.ReadOwn(o.own, tieName, maxTie)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	there, thereErr := worktree.ReadOwn(o.root, tieName, maxTie)
	if err == nil && thereErr == nil && len(mine) > 0 && bytes.Equal(mine, there) {
		return nil
	}
	fresh := err != nil
	for _, name := range kept() {
		if err := removeOwn(o.own, name); err != nil {
			return err
		}
		if !fresh || name == indexName || name == storedName || name == uploadsName { // a cache, and logs that are of their folder
			continue
		}
		data, err := worktree.ReadOwn(o.root, name, min(maxForeignState, o.cfg.Limits.StateBytes))
		if err != nil {
			continue // most often there is none
		}
		if _, err := worktree.ReplaceFile(o.own, name, data, true); err != nil {
			return err
		}
	}
	name := []byte(state.RandomName())
	if err := replaceForeign(o.root, tieName, name); err != nil {
		return err
	}
	if _, err := worktree.ReplaceFile(o.own, tieName, name, true); err != nil {
		return err
	}
	for _, name := range kept() {
		_ = removal.All(o.root, name) // it is not read again
	}
	return nil
}

// replaceForeign replaces a file in a folder that others write to, who may have put anything at its name.
func replaceForeign(root *os.Root, name string, data []byte) error {
	if _, err := worktree.ReplaceFile(root, name, data, true); err == nil {
		return nil
	}
	if err := removal.All(root, name); err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: removing %s: %w", name, err)
	}
	_, err := worktree.ReplaceFile(root, name, data, true)
	return err
}

// replaceInFolder gives the state file in the folder its next content.
func (f *stateFile) replaceInFolder(base *state.State) (skew int64, err error) {
	data := f.portable(base).Encode()
	skew, err = worktree.ReplaceFile(f.root, state.ReservedName, data, true)
	if err != nil && f.own != f.root {
		err = replaceForeign(f.root, state.ReservedName, data)
	}
	return skew, err
}

// wrote reports whether the state file, whose stat is another one, still has what was written with a base: a worker gives its files
// to the user of a sandbox. Without an OwnDir, the state file is read.
func (f *stateFile) wrote(base *state.State) bool {
	if f.own == f.root {
		return false
	}
	want := f.portable(base).Encode()
	have, err := worktree.ReadOwn(f.root, state.ReservedName, int64(len(want)))
	return err == nil && bytes.Equal(have, want)
}
