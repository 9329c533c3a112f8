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

// maxFileBytes bounds a file. Every template of it then fits into one message, whatever JSON makes of its characters.
const maxFileBytes = 128 << 10

// Parse reads the templates of a YAML file, one for each document. name is the file's, for errors, which are Problems; the
// templates without a problem are given even so.
func Parse(name string, body []byte) ([]*schemas.Template, error) {
	found, problems := parse(name, body)
	if len(problems) > 0 {
		return templatesOf(found), problems
	}
	return templatesOf(found), nil
}

// parsed is a template with the line it begins on.
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
	switch {
	case len(body) > maxFileBytes:
		return nil, Problems{{File: name, Text: fmt.Sprintf("%d bytes, the limit is %d", len(body), maxFileBytes)}}
	case !utf8.Valid(body):
		return nil, Problems{{File: name, Text: "not valid UTF-8"}}
	}
	documents := yaml.NewDecoder(bytes.NewReader(body))
	for len(problems) < maxProblems {
		var document yaml.Node
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return found, append(problems, syntaxProblem(name, err))
		}
		root := &document
		if root.Kind == yaml.DocumentNode {
			root = root.Content[0]
		}
		if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
			continue // nothing between two ---
		}
		t, p := parseOne(name, root)
		problems = append(problems, p...)
		if len(p) == 0 {
			found = append(found, parsed{t, name, root.Line})
		}
	}
	return found, problems
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

// locate finds the line that an error of validation is about: that of the field, or of the nearest one around it.
func (d *decoder) locate(err error) Problem {
	e := schemas.AsError(err)
	path := e.Details["path"]
	p := Problem{File: d.file, Path: spelled(path), Text: strings.TrimPrefix(e.Message, path+": ")}
	for around := path; ; around = around[:max(0, strings.LastIndexAny(around, ".["))] {
		if found, ok := d.places[around]; ok {
			p.Line = found.line
			if around == path {
				p.Path = found.path
			}
			return p
		}
		if around == "" {
			return p
		}
	}
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func syntaxProblem(file string, err error) Problem {
	text := err.Error()
	p := Problem{File: file, Text: "not the YAML it should be: " + yamlLine.ReplaceAllString(text, "")}
	if m := yamlLine.FindStringSubmatch(text); m != nil && m[1] != "" {
		p.Line, _ = strconv.Atoi(m[1]) // digits, as the pattern says
	}
	return p
}
