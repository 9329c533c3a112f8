package link

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Environ returns the whole environment of a command, as NAME=value, sorted: the base of every provider (PATH, HOME, which is
// home, LANG, TERM), the Spec's and its secrets, the Command's; later ones win. SLUICE_THREAD and SLUICE_PROCESS win over all: the supervisor
// finds descendants by the latter, so a command cannot change it. Nothing comes from this process. Errors:
// invalid_argument for a name that is empty or contains '=', and for a zero byte.
func Environ(home string, spec sandbox.Spec, cmd sandbox.Command) ([]string, error) {
	all := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME": home,
		"LANG": "C.UTF-8",
		"TERM": "dumb",
	}
	if cmd.Terminal != nil {
		all["TERM"] = "xterm"
	}
	maps.Copy(all, spec.Env)
	maps.Copy(all, spec.Secrets)
	maps.Copy(all, cmd.Env)
	if spec.Thread != "" {
		all["SLUICE_THREAD"] = spec.Thread
	}
	all["SLUICE_PROCESS"] = cmd.ID
	list := make([]string, 0, len(all))
	for name, value := range all {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument,
				"env: %q: the name must not be empty or contain '=', and name and value must not contain a zero byte", name).With("path", "env")
		}
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list, nil
}

// CheckSpec refuses a Spec that no provider can use: an invalid id, a workspace that is not absolute, an invalid environment.
// Errors: invalid_argument.
func CheckSpec(spec sandbox.Spec) error {
	if err := schemas.CheckID("id", spec.ID); err != nil {
		return err
	}
	if !filepath.IsAbs(spec.Workspace) {
		return schemas.Errorf(schemas.CodeInvalidArgument, "workspace: %q is not an absolute path", spec.Workspace).With("path", "workspace")
	}
	_, err := Environ(spec.Workspace, spec, sandbox.Command{})
	return err
}

func checkCommand(cmd *sandbox.Command) error {
	if err := schemas.CheckID("id", cmd.ID); err != nil {
		return err
	}
	if cmd.Path == "" && cmd.Files == sandbox.NoFiles {
		return schemas.Errorf(schemas.CodeInvalidArgument, "path: the command is empty").With("path", "path")
	}
	if strings.Contains(cmd.Path, "\x00") || slices.ContainsFunc(cmd.Args, func(s string) bool { return strings.Contains(s, "\x00") }) {
		return schemas.Errorf(schemas.CodeInvalidArgument, "args: an argument contains a zero byte").With("path", "args")
	}
	if cmd.Terminal != nil {
		if err := cmd.Terminal.Validate(); err != nil {
			return err
		}
	}
	if cmd.Timeout < 0 || cmd.Grace < 0 {
		return schemas.Errorf(schemas.CodeInvalidArgument, "timeout: must not be negative").With("path", "timeout")
	}
	return nil
}

// WorkingDir returns a command's working directory as its sandbox sees it: dir below home. Errors: invalid_argument when the path or
// a symbolic link leads out of the workspace; a *sandbox.StartError when the folder does not exist.
//
// A process in the workspace could replace the folder by a symbolic link between this check and the use. It gains nothing: a
// sandbox that isolates resolves the path inside, where the process can open everything that the path leads to; in one that does
// not isolate, the process could have gone there anyway. The check guards against mistakes of callers.
func WorkingDir(workspace, home, dir string) (string, error) {
	if dir == "" || dir == "." {
		return home, nil
	}
	rel, ok := within(home, dir)
	if !ok {
		return "", schemas.Errorf(schemas.CodeInvalidArgument, "cwd: %q leads out of the workspace", dir).With("path", "cwd")
	}
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return "", schemas.Errorf(schemas.CodeUnavailable, "workspace: %w", err)
	}
	defer root.Close()
	info, err := root.Stat(rel)
	var reason string
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		reason = "no such directory"
	case err != nil:
		return "", schemas.Errorf(schemas.CodeInvalidArgument, "cwd: %q cannot be used inside the workspace: %w", dir, err).With("path", "cwd")
	case !info.IsDir():
		reason = "not a directory"
	default:
		return filepath.Join(home, rel), nil
	}
	return "", &sandbox.StartError{Code: schemas.ExitNotExecutable, Message: "working directory " + dir + ": " + reason}
}

// within returns dir relative to home, cleaned; false when the path alone leads out of home.
func within(home, dir string) (string, bool) {
	if filepath.IsAbs(dir) {
		rel, err := filepath.Rel(home, dir)
		if err != nil {
			return "", false
		}
		dir = rel
	}
	dir = filepath.Clean(dir)
	return dir, filepath.IsLocal(dir)
}
