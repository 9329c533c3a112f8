package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sluice-dev/sluice/schemas"
)

const (
	draft     = "https://json-schema.org/draft/2020-12/schema"
	defsRef   = "#/$defs/"
	urnPrefix = "urn:sluice:v" + schemas.Version + ":"
)

// builder creates the schema of each struct of the contract once.
type builder struct {
	docs   *docs
	leaves map[reflect.Type]*jsonschema.Schema
	rules  fields
	used   map[string]bool // by rule: its field exists
	defs   map[string]*jsonschema.Schema
}

// Generate returns the files of schemas/json by name, from the Go source in the folder src. Each file is complete: a client in
// another language needs only one. It fails for a field without a comment and for a rule without a field.
func Generate(src string) (map[string][]byte, error) {
	d, err := readDocs(src)
	if err != nil {
		return nil, err
	}
	b := &builder{docs: d, leaves: leaves(), rules: rules(), used: map[string]bool{}, defs: map[string]*jsonschema.Schema{}}
	for _, r := range roots() {
		if err := b.define(r.typ); err != nil {
			return nil, err
		}
	}
	for name := range b.rules {
		if !b.used[name] {
			return nil, fmt.Errorf("rule %s: no such field", name)
		}
	}
	files := map[string][]byte{}
	for _, r := range roots() {
		body, err := b.file(r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.file, err)
		}
		files[r.file+".json"] = body
	}
	return files, nil
}

// define creates the schema of a struct and of the structs in it.
func (b *builder) define(t reflect.Type) error {
	if b.defs[t.Name()] != nil {
		return nil
	}
	overrides := maps.Clone(b.leaves)
	for _, f := range fieldsOf(t) {
		if s, ok := b.structIn(f); ok {
			overrides[s] = &jsonschema.Schema{Ref: defsRef + s.Name()}
			if err := b.define(s); err != nil {
				return err
			}
		}
	}
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: overrides})
	if err != nil {
		return err
	}
	s.Title = t.Name()
	s.Description = describe(b.docs.types[t.Name()], t)
	if !slices.Contains(closed(), t.Name()) {
		s.AdditionalProperties = nil
	}
	for owner, f := range fieldsOf(t) {
		name := jsonName(f)
		if name == "" {
			continue
		}
		if err := b.field(owner, f, s.Properties[name]); err != nil {
			return err
		}
	}
	b.defs[t.Name()] = s
	return nil
}

// fieldsOf yields the fields of a struct and of those that it embeds, each with the struct that declares it.
func fieldsOf(t reflect.Type) iter.Seq2[reflect.Type, reflect.StructField] {
	return func(yield func(reflect.Type, reflect.StructField) bool) {
		for f := range t.Fields() {
			if f.Anonymous {
				for owner, inner := range fieldsOf(f.Type) {
					if !yield(owner, inner) {
						return
					}
				}
			} else if !yield(t, f) {
				return
			}
		}
	}
}

// structIn returns the struct of the contract that a field holds, directly or as elements.
func (b *builder) structIn(f reflect.StructField) (reflect.Type, bool) {
	t := f.Type
	for b.leaves[t] == nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map) {
		t = t.Elem()
	}
	return t, jsonName(f) != "" && t.Kind() == reflect.Struct && b.leaves[t] == nil
}

func (b *builder) field(t reflect.Type, f reflect.StructField, s *jsonschema.Schema) error {
	key := t.Name() + "." + f.Name
	doc, ok := b.docs.fields[t.Name()][f.Name]
	if !ok {
		return fmt.Errorf("%s has no comment", key)
	}
	s.Description = describe(doc, t)
	notNull(s)
	if s.AdditionalProperties != nil {
		notNull(s.AdditionalProperties)
	}
	if apply, ok := b.rules[key]; ok {
		apply(s)
		b.used[key] = true
	}
	return nil
}

// notNull removes null from the types of a pointer or a slice: Go omits such a field.
func notNull(s *jsonschema.Schema) {
	types := slices.DeleteFunc(slices.Clone(s.Types), func(t string) bool { return t == "null" })
	switch len(types) {
	case 0:
		s.Types = nil
	case 1:
		s.Type, s.Types = types[0], nil
	}
}

// file encodes a root with the definitions that it needs.
func (b *builder) file(r root) ([]byte, error) {
	s := b.defs[r.typ.Name()].CloneSchemas()
	switch r.typ {
	case reflect.TypeFor[schemas.Command]():
		s.AllOf = fieldByOp()
	case reflect.TypeFor[schemas.Event]():
		allOf, err := b.dataByType()
		if err != nil {
			return nil, err
		}
		s.AllOf = allOf
	}
	s.Defs = map[string]*jsonschema.Schema{}
	if err := b.collect(s, s.Defs); err != nil {
		return nil, err
	}
	if len(s.Defs) == 0 {
		s.Defs = nil
	}
	// The head comes first in the file.
	head, err := json.Marshal(struct {
		Schema      string `json:"$schema"`
		ID          string `json:"$id"`
		Title       string `json:"title"`
		Description string `json:"description"`
	}{draft, urnPrefix + r.file, s.Title, s.Description})
	if err != nil {
		return nil, err
	}
	s.Title, s.Description = "", ""
	body, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	body = append(append(head[:len(head)-1], ','), body[1:]...)
	var out bytes.Buffer
	if err := json.Indent(&out, body, "", "  "); err != nil {
		return nil, err
	}
	// The encoder escapes HTML characters, which are hard to read.
	text := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(out.String())
	return []byte(text + "\n"), nil
}

// collect copies the definitions that s refers to, directly or through others.
func (b *builder) collect(s *jsonschema.Schema, into map[string]*jsonschema.Schema) error {
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	for name, def := range b.defs {
		if into[name] != nil || !bytes.Contains(body, []byte(`"`+defsRef+name+`"`)) {
			continue
		}
		into[name] = def
		if err := b.collect(def, into); err != nil {
			return err
		}
	}
	return nil
}

// fieldByOp requires the field that op names, and forbids those of other ops.
func fieldByOp() []*jsonschema.Schema {
	var out []*jsonschema.Schema
	for _, op := range schemas.Ops() {
		then := &jsonschema.Schema{Required: []string{string(op)}, Properties: map[string]*jsonschema.Schema{}}
		for _, other := range schemas.Ops() {
			if other != op {
				then.Properties[string(other)] = &jsonschema.Schema{Not: &jsonschema.Schema{}}
			}
		}
		out = append(out, when("op", string(op), then))
	}
	return out
}

// dataByType sets the schema of an event's data by the event's type.
func (b *builder) dataByType() ([]*jsonschema.Schema, error) {
	var out []*jsonschema.Schema
	for _, t := range schemas.EventTypes() {
		name := b.docs.data[string(t)]
		if b.defs[name] == nil {
			return nil, fmt.Errorf("event type %s: its comment names no type of data", t)
		}
		out = append(out, when("type", string(t), &jsonschema.Schema{
			Properties: map[string]*jsonschema.Schema{"data": {Ref: defsRef + name}},
			Required:   []string{"data"},
		}))
	}
	return out, nil
}

func when(property, value string, then *jsonschema.Schema) *jsonschema.Schema {
	return &jsonschema.Schema{
		If: &jsonschema.Schema{
			Properties: map[string]*jsonschema.Schema{property: {Const: jsonschema.Ptr[any](value)}},
			Required:   []string{property},
		},
		Then: then,
	}
}
