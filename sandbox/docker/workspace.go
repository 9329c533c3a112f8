package docker

import (
	"fmt"
	"os"

	"github.com/sluice-dev/sluice/sandbox/workspace"
)

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

// own gives the workspace and all in it to the container's user, where the worker may.
func own(dir string, uid, gid int) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return workspace.Own(dir, uid, gid)
}
