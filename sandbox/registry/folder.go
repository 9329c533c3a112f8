package registry

import (
	"fmt"
	"os"
	"syscall"
)

// PrivateDir makes a folder that only this user can enter, or refuses one that somebody else could.
func PrivateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a folder of this user", dir)
	}
	if info.Mode().Perm() != 0o700 {
		return os.Chmod(dir, 0o700)
	}
	return nil
}

// makeWorkspace makes sure that the folder is there, and says whether it was made.
func makeWorkspace(dir string) (made bool, err error) {
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return false, nil
	case err == nil:
		return false, fmt.Errorf("%s is not a folder", dir)
	case !os.IsNotExist(err):
		return false, err
	}
	return true, os.MkdirAll(dir, 0o700)
}
