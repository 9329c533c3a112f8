package link

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Environ is the whole environment of a command, as NAME=value, sorted: the base every provider gives (PATH, HOME, which is
// home, LANG, TERM), the Spec's, the Command's, later ones winning. SLUICE_THREAD and SLUICE_PROCESS win over all: by
// the latter the supervisor finds descendants again, so nobody may change it. Nothing comes from this process. Errors:
// invalid_argument for a name that is empty or holds '=', and for a zero byte.
func Environ(home string, spec sandbox.Spec, cmd sandbox.Command) ([]string, error) {
	all := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME": home,
		"LANG": "C.UTF-8",
		"TERM": "dumb",
	}
	maps.Copy(all, spec.Env)
	maps.Copy(all, cmd.Env)
	if spec.Thread != "" {
		all["SLUICE_THREAD"] = spec.Thread
	}
	all["SLUICE_PROCESS"] = cmd.ID
	list := make([]string, 0, len(all))
	for name, value := range all {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument,
				"env: %q: a name may be neither empty nor hold '=', and nothing may hold a zero byte", name).With("path", "env")
		}
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list, nil
}

// CheckSpec refuses a Spec that no provider can honour: an id that is none, a workspace that is not absolute, an environment
// that cannot be passed on. Errors: invalid_argument.
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

// check refuses a command that could not be passed to exec as it is.
func check(cmd *sandbox.Command) error {
	if err := schemas.CheckID("id", cmd.ID); err != nil {
		return err
	}
	if cmd.Path == "" {
		return schemas.Errorf(schemas.CodeInvalidArgument, "path: the command is empty").With("path", "path")
	}
	if strings.Contains(cmd.Path, "\x00") || slices.ContainsFunc(cmd.Args, func(s string) bool { return strings.Contains(s, "\x00") }) {
		return schemas.Errorf(schemas.CodeInvalidArgument, "args: an argument holds a zero byte").With("path", "args")
	}
	if cmd.Timeout < 0 || cmd.Grace < 0 {
		return schemas.Errorf(schemas.CodeInvalidArgument, "timeout: must not be negative").With("path", "timeout")
	}
	return nil
}

// within gives dir relative to home, cleaned; false when it lies outside by its words alone.
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
