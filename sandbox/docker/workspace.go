package docker

import (
	"io/fs"
	"os"
	"syscall"
)

// own gives the workspace and all in it to the container's user, where the worker may. Processes may be at work in it: no
// symbolic link is followed, and nothing outside is reached.
func own(dir string, uid, gid int) error {
	if os.Geteuid() != 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return ignoreMissing(err)
		}
		info, err := entry.Info()
		if err != nil {
			return ignoreMissing(err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == uid && int(st.Gid) == gid {
			return nil
		}
		return ignoreMissing(root.Lchown(path, uid, gid))
	})
}

func ignoreMissing(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}
