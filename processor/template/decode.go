package template

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// place is the position of a field in a file.
type place struct {
	line int
	path string // as the file spells it
}

// decoder decodes one YAML document into a Go value, and records the position of each field.
type decoder struct {
	file     string
	problems Problems
	places   map[string]place // by the field's JSON path, as in validation errors
}

func (d *decoder) problem(n *yaml.Node, path, format string, args ...any) {
	if len(d.problems) < maxProblems {
		d.problems = append(d.problems, Problem{File: d.file, Line: n.Line, Path: path, Text: fmt.Sprintf(format, args...)})
	}
}

// at is the path of a field, in the file and in JSON.
type at struct{ file, json string }

func (a at) field(file, json string) at {
	if a.json == "" {
		return at{file, json}
	}
	return at{a.file + "." + file, a.json + "." + json}
}

func (a at) item(i int) at {
	index := fmt.Sprintf("[%d]", i)
	return at{a.file + index, a.json + index}
}

// value decodes a node into v. Its depth is bounded by v's type.
func (d *decoder) value(n *yaml.Node, v reflect.Value, a at) {
	d.places[a.json] = place{n.Line, a.file}
	switch {
	case n.Kind == yaml.AliasNode:
		d.problem(n, a.file, "aliases are not supported: repeat the value")
		return
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		d.problem(n, a.file, "empty: set a value, or remove the field")
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Struct:
		d.object(n, v, a)
	case reflect.Map:
		d.mapping(n, v, a)
	case reflect.Slice:
		d.list(n, v, a)
	default:
		d.scalar(n, v, a)
	}
}

// object decodes a mapping into a struct.
func (d *decoder) object(n *yaml.Node, v reflect.Value, a at) {
	seen := map[string]bool{}
	d.pairs(n, a, func(key, value *yaml.Node) {
		field, name, read := findField(v.Type(), key.Value)
		here := a.field(key.Value, name)
		switch {
		case name == "":
			d.problem(key, a.field(key.Value, key.Value).file, "unknown field: use one of %s", knownFields(v.Type()))
		case seen[name]:
			d.problem(key, here.file, "given twice")
		case read != nil:
			d.unit(value, v.Field(field), here, read)
		default:
			d.value(value, v.Field(field), here)
		}
		seen[name] = true
	})
}

// pairs calls each for every key and value of a mapping.
func (d *decoder) pairs(n *yaml.Node, a at, each func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.problem(n, a.file, "got %s, want fields", kindOf(n))
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			d.problem(key, a.file, "%s is not a field name", kindOf(key))
			continue
		}
		each(key, n.Content[i+1])
	}
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, a at) {
	v.Set(reflect.MakeMap(v.Type()))
	d.pairs(n, a, func(key, value *yaml.Node) {
		name := reflect.ValueOf(key.Value).Convert(v.Type().Key())
		here := a.field(key.Value, key.Value)
		if v.MapIndex(name).IsValid() {
			d.problem(key, here.file, "given twice")
			return
		}
		member := reflect.New(v.Type().Elem()).Elem()
		d.value(value, member, here)
		v.SetMapIndex(name, member)
	})
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, a at) {
	if n.Kind != yaml.SequenceNode {
		d.problem(n, a.file, "got %s, want a list", kindOf(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		d.value(item, v.Index(i), a.item(i))
	}
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, a at) {
	want := map[reflect.Kind]struct{ tags, text string }{
		reflect.String:  {"!!str", "text: put it in quotes"},
		reflect.Bool:    {"!!bool", "true or false"},
		reflect.Int64:   {"!!int", "a whole number"},
		reflect.Float64: {"!!float !!int", "a number"},
	}[v.Kind()]
	if n.Kind != yaml.ScalarNode || !strings.Contains(want.tags, n.Tag) {
		d.problem(n, a.file, "got %s, want %s", kindOf(n), want.text)
		return
	}
	if v.Kind() == reflect.String {
		v.SetString(n.Value)
		return
	}
	if err := n.Decode(v.Addr().Interface()); err != nil {
		d.problem(n, a.file, "got %.40q, want %s", n.Value, want.text)
	}
}

// unit decodes a duration or a size.
func (d *decoder) unit(n *yaml.Node, v reflect.Value, a at, read func(string) (int64, error)) {
	d.places[a.json] = place{n.Line, a.file}
	if n.Kind != yaml.ScalarNode {
		d.problem(n, a.file, "got %s, want one value", kindOf(n))
		return
	}
	value, err := read(n.Value)
	if err != nil {
		d.problem(n, a.file, "%.40q: %s", n.Value, err)
		return
	}
	v.SetInt(value)
}

// findField returns the field of a struct by its name in a file, its JSON name, and the parser of its unit; nil without a unit.
func findField(t reflect.Type, called string) (field int, name string, read func(string) (int64, error)) {
	for i := range t.NumField() {
		switch name := jsonName(t.Field(i)); name {
		case called:
			return i, name, nil
		case called + millisSuffix:
			return i, name, parseMillis
		case called + bytesSuffix:
			return i, name, ParseSize
		}
	}
	return 0, "", nil
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// spelled returns the name of a field in files.
func spelled(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(name, millisSuffix), bytesSuffix)
}

func knownFields(t reflect.Type) string {
	names := make([]string, 0, t.NumField())
	for f := range t.Fields() {
		names = append(names, spelled(jsonName(f)))
	}
	return strings.Join(names, ", ")
}

func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "fields"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.AliasNode:
		return "an alias"
	case n.Tag == "!!str":
		return fmt.Sprintf("the text %.40q", n.Value)
	case n.Tag == "!!bool", n.Tag == "!!int", n.Tag == "!!float":
		return fmt.Sprintf("%s %.40s", map[string]string{"!!bool": "the boolean", "!!int": "the number", "!!float": "the number"}[n.Tag], n.Value)
	default:
		return fmt.Sprintf("a value of kind %.20s", n.Tag)
	}
}
