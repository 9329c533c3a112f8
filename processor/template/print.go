package template

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-dev/sluice/schemas"
)

// YAML returns a template as a YAML document, from which Parse returns the same template.
func YAML(t *schemas.Template) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(node(reflect.ValueOf(t).Elem())); err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "print template %s: %w", t.Name, err)
	}
	return b.Bytes(), nil
}

// node returns a value as a YAML node.
func node(v reflect.Value) *yaml.Node {
	switch v.Kind() {
	case reflect.Pointer:
		return node(v.Elem())
	case reflect.Struct:
		return structNode(v)
	case reflect.Map:
		return mapNode(v)
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			n.Content = append(n.Content, node(v.Index(i)))
		}
		return n
	case reflect.String:
		return text(v.String())
	case reflect.Bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v.Bool())}
	case reflect.Float64:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: strconv.FormatFloat(v.Float(), 'g', -1, 64)}
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(v.Int(), 10)}
	}
}

func structNode(v reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := range v.NumField() {
		name, value := jsonName(v.Type().Field(i)), v.Field(i)
		var member *yaml.Node
		switch {
		case value.IsZero():
			continue
		case strings.HasSuffix(name, millisSuffix):
			member = text(formatMillis(value.Int()))
		case strings.HasSuffix(name, bytesSuffix):
			member = text(FormatSize(value.Int()))
		default:
			member = node(value)
		}
		n.Content = append(n.Content, text(spelled(name)), member)
	}
	return n
}

// mapNode sorts the members of a map by name, and phases by their order.
func mapNode(v reflect.Value) *yaml.Node {
	members := map[string]reflect.Value{}
	for key, value := range v.Seq2() {
		members[key.String()] = value
	}
	names := slices.Sorted(maps.Keys(members))
	if v.Type().Key() == reflect.TypeFor[schemas.Phase]() {
		names = nil
		for _, phase := range schemas.Phases() {
			if _, ok := members[string(phase)]; ok {
				names = append(names, string(phase))
			}
		}
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, name := range names {
		n.Content = append(n.Content, text(name), node(members[name]))
	}
	return n
}

// text returns a node that parses as a string, whatever it looks like.
func text(s string) *yaml.Node {
	n := new(yaml.Node)
	n.SetString(s)
	return n
}
