package workspace

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/sluice-dev/sluice/schemas"
)

// own gives what a pull has brought to the owner of the folder: a worker that runs as root has made it, and a sandbox's processes, which
// never do, could not change it.
func own(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "workspace: %w", err)
	}
	defer root.Close()
	uid, gid, err := ownerOf(root, ".")
	if err != nil || uid == os.Geteuid() {
		return err // an ordinary user's worker can give nothing away, and need not
	}
	err = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return ignoreMissing(err)
		}
		if has, _, err := ownerOf(root, path); err != nil || has == uid {
			return ignoreMissing(err)
		}
		return ignoreMissing(root.Lchown(path, uid, gid))
	})
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "workspace: give what was pulled to the sandbox's user: %w", err)
	}
	return nil
}

func ownerOf(root *os.Root, path string) (uid, gid int, err error) {
	info, err := root.Lstat(path)
	if err != nil {
		return 0, 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, errors.New("this system does not tell who owns a file")
	}
	return int(st.Uid), int(st.Gid), nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
