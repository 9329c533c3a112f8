package pool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sluice-dev/sluice/internal/projectquota"
	"github.com/sluice-dev/sluice/schemas"
)

// replaceWorkspace moves the content of the workspace into a member's folder, and then renames that folder to the workspace. Readers
// see the old folder or the new one. During the move a claim file in dir names the workspace, so that recoverDir can move the content
// back after a crash. Errors: invalid_argument for a workspace that is not a folder; the system's, and the workspace is then
// unchanged.
func replaceWorkspace(from, path, dir string) error {
	real, info, err := resolve(path)
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
	if err := projectquota.Share(from, real); err != nil {
		return err
	}
	// rename(2) replaces an empty folder; os.Rename refuses to.
	err = syscall.Rename(from, real)
	if !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EEXIST) {
		return err
	}
	claim := filepath.Join(dir, filepath.Base(from)+claimSuffix)
	if err := os.WriteFile(claim, []byte(real), 0o600); err != nil {
		return err
	}
	err = moveContent(real, from)
	if err == nil {
		err = syscall.Rename(from, real)
	}
	if err != nil {
		if backErr := moveContent(from, real); backErr != nil {
			return errors.Join(err, fmt.Errorf("restore the workspace: %w", backErr)) // the claim file stays for the next New
		}
	}
	return errors.Join(err, os.Remove(claim))
}

// resolve follows symbolic links in the workspace's path, and returns the folder's info; nil when it does not exist.
func resolve(path string) (string, fs.FileInfo, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	info, err := os.Lstat(real)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder", path)
	}
	return real, info, err
}

// moveContent moves everything in one folder to another, which must have no entry of the same name. It does not follow links.
func moveContent(from, to string) error {
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

// claimSuffix is the suffix of a claim file: it holds the path of the workspace whose content is being moved into the member's folder.
const claimSuffix = ".claim"

// recoverDir moves back the content that interrupted claims had moved, and removes the folders of unclaimed members. It keeps a
// folder that is not empty and has no claim file.
func recoverDir(dir string) error {
	claims, err := filepath.Glob(filepath.Join(dir, "*"+claimSuffix))
	if err != nil {
		return err
	}
	for _, claim := range claims {
		if err := revertClaim(claim); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		err := removeFolder(filepath.Join(dir, e.Name()))
		// A pool that is still closing removes its members' folders too.
		if err != nil && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EEXIST) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// removeFolder removes a member's empty folder, and its hard limit.
func removeFolder(dir string) error {
	projectquota.Clear(dir)
	return os.Remove(dir)
}

func revertClaim(claim string) error {
	path, err := os.ReadFile(claim)
	if err != nil {
		return err
	}
	from := strings.TrimSuffix(claim, claimSuffix)
	// A claim file that was not fully written names no folder, and nothing had been moved then. A member's folder that is gone has
	// become the workspace already.
	if _, err := os.Lstat(from); err == nil && filepath.IsAbs(string(path)) {
		if err := moveContent(from, string(path)); err != nil {
			return fmt.Errorf("restore %s: %w", path, err)
		}
	}
	return os.Remove(claim)
}
