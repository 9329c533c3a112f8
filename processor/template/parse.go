package template

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-dev/sluice/schemas"
)

// maxFileBytes is the largest file, in bytes. Its templates then fit into a NATS message, whatever JSON escapes in them.
const maxFileBytes = 128 << 10

// Parse parses a YAML file with one template per document. name is the file's name in errors. The error is Problems; the valid
// templates are returned with it.
func Parse(name string, body []byte) ([]*schemas.Template, error) {
	found, problems := parse(name, body)
	if len(problems) > 0 {
		return templatesOf(found), problems
	}
	return templatesOf(found), nil
}

// parsed is a template and the place where it begins.
type parsed struct {
	*schemas.Template
	file string
	line int
}

func templatesOf(found []parsed) []*schemas.Template {
	out := make([]*schemas.Template, len(found))
	for i, p := range found {
		out[i] = p.Template
	}
	return out
}

func parse(name string, body []byte) (found []parsed, problems Problems) {
	problems = eachDocument(name, body, func(root *yaml.Node) Problems {
		t, wrong := parseOne(name, root)
		if len(wrong) == 0 {
			found = append(found, parsed{t, name, root.Line})
		}
		return wrong
	})
	return found, problems
}

// eachDocument calls read with every document of a YAML file that is not empty, and returns the problems.
func eachDocument(name string, body []byte, read func(root *yaml.Node) Problems) (problems Problems) {
	switch {
	case len(body) > maxFileBytes:
		return Problems{{File: name, Text: fmt.Sprintf("%d bytes, the limit is %d", len(body), maxFileBytes)}}
	case !utf8.Valid(body):
		return Problems{{File: name, Text: "not valid UTF-8"}}
	}
	documents := yaml.NewDecoder(bytes.NewReader(body))
	for len(problems) < maxProblems {
		var document yaml.Node
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return append(problems, syntaxProblem(name, err))
		}
		root := &document
		if root.Kind == yaml.DocumentNode {
			root = root.Content[0]
		}
		if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
			continue // an empty document
		}
		problems = append(problems, read(root)...)
	}
	return problems
}

// DecodeFile decodes a YAML file of one document into the struct that v points to, as strictly as it does templates, and then calls
// validate, whose error may name the field by its detail path. what is what the file holds, for errors. Errors: Problems, not_found for a
// file that does not exist, unavailable for one that cannot be read.
func DecodeFile(path, what string, v any, validate func() error) error {
	body, err := readRegular(path, maxFileBytes+1)
	if err != nil {
		return unreadable(what, path, err)
	}
	count := 0
	problems := eachDocument(path, body, func(root *yaml.Node) Problems {
		if count++; count > 1 {
			return Problems{{File: path, Line: root.Line, Text: "a second document: the file holds one"}}
		}
		d := &decoder{file: path, places: map[string]place{}}
		d.value(root, reflect.ValueOf(v).Elem(), at{})
		if len(d.problems) > 0 {
			return d.problems
		}
		if err := validate(); err != nil {
			return Problems{d.locate(err)}
		}
		return nil
	})
	switch {
	case len(problems) > 0:
		return problems
	case count == 0:
		return Problems{{File: path, Text: "the file is empty"}}
	}
	return nil
}

func parseOne(file string, root *yaml.Node) (*schemas.Template, Problems) {
	d := &decoder{file: file, places: map[string]place{}}
	t := new(schemas.Template)
	d.value(root, reflect.ValueOf(t).Elem(), at{})
	if len(d.problems) > 0 {
		return nil, d.problems
	}
	if err := t.Validate(); err != nil {
		return nil, Problems{d.locate(err)}
	}
	return t, nil
}

// locate returns the problem of a validation error, on the line of the field, or of the innermost field around it.
func (d *decoder) locate(err error) Problem {
	e := schemas.AsError(err)
	path := e.Details["path"]
	p := Problem{File: d.file, Path: spelled(path), Text: strings.TrimPrefix(e.Message, path+": ")}
	for outer := path; ; outer = outer[:max(0, strings.LastIndexAny(outer, ".["))] {
		if found, ok := d.places[outer]; ok {
			p.Line = found.line
			if outer == path {
				p.Path = found.path
			}
			return p
		}
		if outer == "" {
			return p
		}
	}
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func syntaxProblem(file string, err error) Problem {
	text := err.Error()
	p := Problem{File: file, Text: "not valid YAML: " + yamlLine.ReplaceAllString(text, "")}
	if m := yamlLine.FindStringSubmatch(text); m != nil && m[1] != "" {
		p.Line, _ = strconv.Atoi(m[1]) // the pattern matches only digits
	}
	return p
}

// Problem is one error in a file.
type Problem struct {
	// File is the file's name. Line counts from 1; 0 for the whole file.
	File string
	Line int
	// Path is the field, as the file spells it; empty for none.
	Path string
	// Text says what is wrong.
	Text string
}

// Error returns file:line: path: text.
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	if p.Path != "" {
		b.WriteString(": " + p.Path)
	}
	return b.String() + ": " + p.Text
}

// maxProblems is the number of problems reported per file.
const maxProblems = 50

// Problems lists the errors in files, in the order of their lines. As an error, its code is invalid_argument.
type Problems []Problem

// Error returns one line per problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns an error with the code.
func (p Problems) Unwrap() error { return schemas.Errorf(schemas.CodeInvalidArgument, "%s", p.Error()) }
