package link

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Dir is a command's working directory as its sandbox sees it: dir below home. It is refused when it leads out of the
// workspace, by its words or by symbolic links, as invalid_argument; a *sandbox.StartError says that it is not there.
//
// The look and the use are two moments: a process in the workspace could put a symbolic link in its place between them.
// That gains it nothing. In a sandbox that isolates, the path is resolved inside, where everything it leads to is open to
// the process anyway; in one that does not, the process could have gone there by itself. The check is there against
// mistakes of callers.
func Dir(workspace, home, dir string) (string, error) {
	if dir == "" || dir == "." {
		return home, nil
	}
	rel, ok := within(home, dir)
	if !ok {
		return "", outside(dir, nil)
	}
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return "", schemas.Errorf(schemas.CodeUnavailable, "workspace: %w", err)
	}
	defer root.Close()
	info, err := root.Stat(rel)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "", &sandbox.StartError{
			Code: schemas.ExitNotExecutable, Message: "working directory " + dir + ": no such directory",
		}
	case err != nil:
		return "", outside(dir, err)
	case !info.IsDir():
		return "", &sandbox.StartError{
			Code: schemas.ExitNotExecutable, Message: "working directory " + dir + ": not a directory",
		}
	}
	return filepath.Join(home, rel), nil
}

func outside(dir string, err error) error {
	if err != nil {
		return schemas.Errorf(schemas.CodeInvalidArgument, "dir: %q cannot be used inside the workspace: %w", dir, err).With("path", "dir")
	}
	return schemas.Errorf(schemas.CodeInvalidArgument, "dir: %q leads out of the workspace", dir).With("path", "dir")
}
