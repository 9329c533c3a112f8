package pool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sluice-dev/sluice/schemas"
)

// place makes a member's folder the workspace: what the workspace holds is moved into the folder, then the folder takes its
// name. Readers see the old folder or the new one. While things are moved, a note in dir says so; should this process
// die, recoverDir puts them back. Errors: invalid_argument for a workspace that is no folder; whatever else keeps a folder from being
// renamed, and then the workspace is as it was.
func place(from, workspace, dir string) error {
	real, info, err := resolve(workspace)
	if err != nil {
		return schemas.Errorf(schemas.CodeInvalidArgument, "workspace: %w", err).With("path", "workspace")
	}
	if info == nil {
		if err := os.MkdirAll(filepath.Dir(real), 0o700); err != nil {
			return schemas.Errorf(schemas.CodeInvalidArgument, "workspace: %w", err).With("path", "workspace")
		}
		return syscall.Rename(from, real)
	}
	if err := os.Chmod(from, info.Mode().Perm()); err != nil {
		return err
	}
	// An empty folder can be replaced at once; package os would refuse.
	err = syscall.Rename(from, real)
	if !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EEXIST) {
		return err
	}
	note := filepath.Join(dir, filepath.Base(from)+noteSuffix)
	if err := os.WriteFile(note, []byte(real), 0o600); err != nil {
		return err
	}
	err = move(real, from)
	if err == nil {
		err = syscall.Rename(from, real)
	}
	if err != nil {
		if backErr := move(from, real); backErr != nil {
			return errors.Join(err, fmt.Errorf("put the workspace back: %w", backErr)) // the note stays, for the next start
		}
	}
	return errors.Join(err, os.Remove(note))
}

// resolve follows the workspace's own links, and describes the folder; nil where there is none yet.
func resolve(workspace string) (string, fs.FileInfo, error) {
	real, err := filepath.EvalSymlinks(workspace)
	if errors.Is(err, fs.ErrNotExist) {
		return workspace, nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	info, err := os.Lstat(real)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder", workspace)
	}
	return real, info, err
}

// move moves everything in one folder to another, which has nothing of the same name. Links are moved as they are.
func move(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := syscall.Rename(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return fmt.Errorf("move %s: %w", e.Name(), err)
		}
	}
	return nil
}

// noteSuffix ends the name of the file that tells, while a member is claimed, whose things are in its folder.
const noteSuffix = ".claim"

// recoverDir puts back what claims that were cut short had moved, and removes the folders of members that nobody claimed. A
// folder that is not empty, and that no note tells of, is left alone.
func recoverDir(dir string) error {
	notes, err := filepath.Glob(filepath.Join(dir, "*"+noteSuffix))
	if err != nil {
		return err
	}
	for _, note := range notes {
		if err := putBack(note); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		err := os.Remove(filepath.Join(dir, e.Name()))
		if err != nil && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EEXIST) {
			return err
		}
	}
	return nil
}

func putBack(note string) error {
	workspace, err := os.ReadFile(note)
	if err != nil {
		return err
	}
	from := strings.TrimSuffix(note, noteSuffix)
	// A note cut short names no folder, and was written before anything was moved; a folder that is gone has become the
	// workspace already.
	if _, err := os.Lstat(from); err == nil && filepath.IsAbs(string(workspace)) {
		if err := move(from, string(workspace)); err != nil {
			return fmt.Errorf("put %s back: %w", workspace, err)
		}
	}
	return os.Remove(note)
}
