package template

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/sluice-dev/sluice/schemas"
)

// Default is the name of the default template, Documents that of the template for work on documents.
const (
	Default   = "default"
	Documents = "documents"
)

// Limits of a folder.
const (
	maxTemplates = 1000
	maxFiles     = 1000
)

//go:embed builtin
var builtin embed.FS

// echoAgentScript is the script of the template echo-agent. YAML cannot include files, so Builtin adds this template.
const echoAgentScript = "builtin/echo-agent.sh"

// Builtin returns the templates that every worker has: default, documents, echo-agent, and those of common agent programs. Errors: internal,
// for embedded files that are not valid.
func Builtin() ([]*schemas.Template, error) {
	const file = "builtin/builtin.yaml"
	body, err := builtin.ReadFile(file)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "built-in templates: %w", err)
	}
	script, err := builtin.ReadFile(echoAgentScript)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "built-in templates: %w", err)
	}
	out, err := Parse(file, body)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "built-in templates: %w", err)
	}
	return append(out, &schemas.Template{
		Name: "echo-agent", Description: "Answers each prompt with the prompt's own words; for first steps and tests.",
		Agent: &schemas.TemplateAgent{Command: []string{"sh", "-c", string(script), "echo-agent"}},
	}), nil
}

// Store holds a worker's templates. It is safe for concurrent use. Callers must not change its templates.
type Store struct {
	dir       string
	documents schemas.TemplateLimits
	byName    atomic.Pointer[map[string]*schemas.Template]
}

// New returns a Store with the built-in templates and those in the folder dir; empty for no folder. A template in the folder
// replaces the built-in one with its name. The limits documents replace those of the built-in template documents, except where they
// are zero. Errors: Problems, not_found for a folder that does not exist, unavailable for one that cannot be read.
func New(dir string, documents schemas.TemplateLimits) (*Store, error) {
	s := &Store{dir: dir, documents: documents}
	if err := s.Reload(); err != nil {
		return nil, err
	}
	return s, nil
}

// Template returns the template with this name, or the default template for an empty name. Errors: not_found.
func (s *Store) Template(name string) (*schemas.Template, error) {
	if name == "" {
		name = Default
	}
	t, ok := (*s.byName.Load())[name]
	if !ok {
		return nil, schemas.Errorf(schemas.CodeNotFound, "unknown template %q: `sluice template list` shows the templates", name)
	}
	return t, nil
}

// List returns all templates, sorted by name.
func (s *Store) List() []*schemas.Template {
	all := *s.byName.Load()
	out := make([]*schemas.Template, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[name])
	}
	return out
}

// Reload reads the folder again. After an error, the store is unchanged. Errors: those of New.
func (s *Store) Reload() error {
	builtin, err := Builtin()
	if err != nil {
		return err
	}
	all := make(map[string]*schemas.Template)
	for _, t := range builtin {
		all[t.Name] = t
	}
	setLimits(&all[Documents].Limits, s.documents)
	if s.dir != "" {
		files, err := filesIn(s.dir)
		if err != nil {
			return err
		}
		own, err := Check(files...)
		if err != nil {
			return err
		}
		for _, t := range own {
			all[t.Name] = t
		}
	}
	s.byName.Store(&all)
	return nil
}

// setLimits sets the limits of workspaces that are not zero.
func setLimits(l *schemas.TemplateLimits, to schemas.TemplateLimits) {
	l.WorkspaceBytes = cmp.Or(to.WorkspaceBytes, l.WorkspaceBytes)
	l.WorkspaceFiles = cmp.Or(to.WorkspaceFiles, l.WorkspaceFiles)
	l.FileBytes = cmp.Or(to.FileBytes, l.FileBytes)
}

// Check reads files, and the files in folders, as Store does. It reports all problems, such as two templates with one name. Errors:
// Problems, not_found for a file that does not exist, unavailable for one that cannot be read.
func Check(paths ...string) ([]*schemas.Template, error) {
	var all []parsed
	var problems Problems
	for _, path := range paths {
		files := []string{path}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			if files, err = filesIn(path); err != nil {
				return nil, err
			}
		}
		for _, file := range files {
			body, err := readRegular(file, maxFileBytes+1) // one byte more than parse accepts
			if err != nil {
				return nil, unreadable("template", file, err)
			}
			found, wrong := parse(file, body)
			all, problems = append(all, found...), append(problems, wrong...)
		}
	}
	first := map[string]parsed{}
	for _, p := range all {
		if other, twice := first[p.Name]; twice {
			text := fmt.Sprintf("template %s is already defined at %s:%d", p.Name, other.file, other.line)
			problems = append(problems, Problem{File: p.file, Line: p.line, Path: "name", Text: text})
			continue
		}
		first[p.Name] = p
	}
	if len(first) > maxTemplates {
		problems = append(problems, Problem{File: paths[0], Text: fmt.Sprintf("%d templates, the limit is %d", len(first), maxTemplates)})
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return templatesOf(all), nil
}

// filesIn returns the YAML files in a folder, sorted by name.
func filesIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, unreadable("template folder", dir, err)
	}
	var out []string
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(e.Name(), ".") && !e.IsDir() {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	if len(out) > maxFiles {
		return nil, schemas.Errorf(schemas.CodeTooLarge, "%s has %d YAML files, the limit is %d: name a folder of templates", dir, len(out), maxFiles)
	}
	return out, nil
}

// unreadable is the error of a file that cannot be read: not_found when it does not exist, else unavailable.
func unreadable(what, path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return schemas.Errorf(schemas.CodeNotFound, "%s %s does not exist: check its name", what, path)
	}
	return schemas.Errorf(schemas.CodeUnavailable, "read %s %s: %w", what, path, err)
}

var errNotRegular = errors.New("not a regular file")

// readRegular reads the start of a regular file, at most limit bytes. Reading a pipe could block the worker.
func readRegular(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}
