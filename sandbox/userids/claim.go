package userids

import (
	"errors"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
)

// claims is the folder of this machine's claims.
const claims = "/run/sluice-userids"

// lockName is the file that one process at a time locks.
const lockName = "lock"

// claim returns the number of the block of a run folder: the one that it has, else the next unused one from its preferred one on. It
// removes the claims of run folders that are gone. Errors: the system's, limit_exceeded.
func claim(dir, runDir string) (block int, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return 0, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	lock, err := root.OpenFile(lockName, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }() // which unlocks it
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return 0, err
	}
	claimed, err := readClaims(root)
	if err != nil {
		return 0, err
	}
	for block, owner := range claimed {
		if owner == runDir {
			return block, nil
		}
	}
	for i := range blocks {
		block = (preferred(runDir) + i) % blocks
		if claimed[block] == "" {
			return block, root.WriteFile(strconv.Itoa(block), []byte(runDir), 0o600)
		}
	}
	return 0, schemas.Errorf(schemas.CodeLimitExceeded, "all %d blocks of user ids are in use", blocks)
}

// readClaims returns the run folders by block, and removes the claims of those that are gone.
func readClaims(root *os.Root) (map[int]string, error) {
	folder, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	names, err := folder.Readdirnames(-1)
	if err = errors.Join(err, folder.Close()); err != nil {
		return nil, err
	}
	claimed := make(map[int]string)
	for _, name := range names {
		block, err := strconv.Atoi(name)
		if err != nil {
			continue // the lock
		}
		owner, err := root.ReadFile(name)
		if err == nil {
			_, err = os.Lstat(string(owner))
		}
		switch {
		case err == nil:
			claimed[block] = string(owner)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		default:
			if err := root.Remove(name); err != nil {
				return nil, err
			}
		}
	}
	return claimed, nil
}
