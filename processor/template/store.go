package template

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/sluice-dev/sluice/schemas"
)

// Default is the name of the template of sessions that name none.
const Default = "default"

// maxTemplates bounds a folder's templates, and maxFiles its files.
const (
	maxTemplates = 1000
	maxFiles     = 1000
)

// Store holds a worker's templates. It is safe for many goroutines; the templates it gives are not to be changed.
type Store struct {
	dir    string
	byName atomic.Pointer[map[string]*schemas.Template]
}

// New is a store with what is built in and what is in the folder, which may be empty for none. A template of the folder takes
// the place of a built-in one of its name. Errors: Problems, unavailable for a folder that cannot be read.
func New(dir string) (*Store, error) {
	s := &Store{dir: dir}
	if err := s.Reload(); err != nil {
		return nil, err
	}
	return s, nil
}

// Template is the one of this name, the one called default for an empty name. Errors: not_found.
func (s *Store) Template(name string) (*schemas.Template, error) {
	if name == "" {
		name = Default
	}
	t, ok := (*s.byName.Load())[name]
	if !ok {
		return nil, schemas.Errorf(schemas.CodeNotFound, "there is no template %q here: `sluice template list` shows those there are", name)
	}
	return t, nil
}

// List is every template, by name.
func (s *Store) List() []*schemas.Template {
	all := *s.byName.Load()
	out := make([]*schemas.Template, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[name])
	}
	return out
}

// Reload reads the folder anew. After an error everything is as it was. Errors: as of New.
func (s *Store) Reload() error {
	builtin, err := Builtin()
	if err != nil {
		return err
	}
	all := make(map[string]*schemas.Template)
	for _, t := range builtin {
		all[t.Name] = t
	}
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

// Check reads files, and those of folders, as Store does, and finds what is wrong with each and with all of them together.
// Errors: Problems, unavailable for what cannot be read.
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
			body, err := readFile(file)
			if err != nil {
				return nil, err
			}
			found, wrong := parse(file, body)
			all, problems = append(all, found...), append(problems, wrong...)
		}
	}
	first := map[string]parsed{}
	for _, p := range all {
		if other, twice := first[p.Name]; twice {
			text := fmt.Sprintf("template %s is at %s:%d already", p.Name, other.file, other.line)
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

// filesIn lists the YAML files of a folder, by name.
func filesIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "read the templates: %w", err)
	}
	var out []string
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(e.Name(), ".") && !e.IsDir() {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	if len(out) > maxFiles {
		return nil, schemas.Errorf(schemas.CodeTooLarge, "%s has %d YAML files, the limit is %d: is it a folder of templates?", dir, len(out), maxFiles)
	}
	return out, nil
}

// readFile reads no more of a file than parse takes. What is no file could keep the worker waiting.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a file")
	}
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "read template %s: %w", path, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "read template %s: %w", path, err)
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "read template %s: %w", path, err)
	}
	return body, nil
}
