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

// Builtin returns the templates that every worker has: default, documents, sandbox-agent and echo-agent. Errors: internal, for embedded
// files that are not valid.
func Builtin() ([]*schemas.Template, error) {
	script, err := builtin.ReadFile(echoAgentScript)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "built-in templates: %w", err)
	}
	out, err := embedded("builtin/builtin.yaml")
	if err != nil {
		return nil, err
	}
	return append(out, &schemas.Template{
		Name: "echo-agent", Description: "Answers each prompt with the prompt's own words; for first steps and tests.",
		Agent: &schemas.TemplateAgent{Command: []string{"sh", "-c", string(script), "echo-agent"}},
	}), nil
}

// Agents returns the templates of common agent programs, which a worker has only when its operator switches them on: they share the
// machine's network and hold the key of a model. Errors: those of Builtin.
func Agents() ([]*schemas.Template, error) { return embedded("builtin/agents.yaml") }

func embedded(file string) ([]*schemas.Template, error) {
	body, err := builtin.ReadFile(file)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "built-in templates: %w", err)
	}
	out, err := Parse(file, body)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "built-in templates: %w", err)
	}
	return out, nil
}

// AllAgents is the name that switches on every template of Agents.
const AllAgents = "all"

// Store holds a worker's templates. It is safe for concurrent use. Callers must not change its templates.
type Store struct {
	cfg    Config
	byName atomic.Pointer[map[string]*schemas.Template] // nil for an agent's that is switched off
}

// Config configures a Store. The zero value has the templates of Builtin.
type Config struct {
	// Dir is a folder of templates, which replace the built-in ones of the same name. Default: none.
	Dir string
	// Documents are limits of the built-in template documents, in place of its own where they are not zero.
	Documents schemas.TemplateLimits
	// Agents are the names of those of Agents that are switched on, or AllAgents. Default: none.
	Agents []string
}

// New returns a Store. Errors: Problems, invalid_argument for an unknown name in Agents, not_found for a folder that does not exist,
// unavailable for one that cannot be read.
func New(cfg Config) (*Store, error) {
	s := &Store{cfg: cfg}
	if err := s.Reload(); err != nil {
		return nil, err
	}
	return s, nil
}

// Template returns the template with this name, or the default template for an empty name. Errors: not_found; permission_denied for one of
// Agents that is switched off.
func (s *Store) Template(name string) (*schemas.Template, error) {
	if name == "" {
		name = Default
	}
	t, ok := (*s.byName.Load())[name]
	switch {
	case !ok:
		return nil, schemas.Errorf(schemas.CodeNotFound, "unknown template %q: `sluice template list` shows the templates", name)
	case t == nil:
		return nil, switchedOff(name)
	}
	return t, nil
}

func switchedOff(name string) error {
	return schemas.Errorf(schemas.CodePermissionDenied,
		"template %s is switched off: it shares the machine's network and hands its key to every command; the operator switches it on with --agent-templates %[1]s", name)
}

// List returns all templates that are switched on, sorted by name.
func (s *Store) List() []*schemas.Template {
	all := *s.byName.Load()
	out := make([]*schemas.Template, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] != nil {
			out = append(out, all[name])
		}
	}
	return out
}

// Off returns the names of the agent templates that are switched off, sorted.
func (s *Store) Off() (names []string) {
	for name, t := range *s.byName.Load() {
		if t == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Reload reads the folder again. After an error, the store is unchanged. Errors: those of New.
func (s *Store) Reload() error {
	builtin, err := Builtin()
	if err != nil {
		return err
	}
	all, err := agents(s.cfg.Agents)
	if err != nil {
		return err
	}
	for _, t := range builtin {
		all[t.Name] = t
	}
	setLimits(&all[Documents].Limits, s.cfg.Documents)
	if s.cfg.Dir != "" {
		files, err := filesIn(s.cfg.Dir)
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

// agents returns the templates of Agents, nil for those that are not switched on.
func agents(on []string) (map[string]*schemas.Template, error) {
	list, err := Agents()
	if err != nil {
		return nil, err
	}
	all := make(map[string]*schemas.Template, len(list))
	for _, t := range list {
		all[t.Name] = nil
		if slices.Contains(on, t.Name) || slices.Contains(on, AllAgents) {
			all[t.Name] = t
		}
	}
	for _, name := range on {
		if _, known := all[name]; !known && name != AllAgents {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "unknown agent template %q: use %s, or %s",
				name, strings.Join(slices.Sorted(maps.Keys(all)), ", "), AllAgents)
		}
	}
	return all, nil
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
