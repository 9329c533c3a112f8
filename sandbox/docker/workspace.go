package docker

import (
	"os"

	"github.com/sluice-dev/sluice/sandbox/workspace"
)

// own gives the workspace and all in it to the container's user, where the worker may. Processes may be at work in it: no
// symbolic link is followed, and nothing outside is reached.
func own(dir string, uid, gid int) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return workspace.Own(dir, uid, gid)
}
