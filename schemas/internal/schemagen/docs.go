package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

// docs are the comments of the schemas package.
type docs struct {
	types  map[string]string            // by type name
	fields map[string]map[string]string // by type name, then field name
	data   map[string]string            // by event type: the Go type of its data
}

// readDocs reads the comments of the package's source.
func readDocs(dir string) (*docs, error) {
	d := &docs{types: map[string]string{}, fields: map[string]map[string]string{}, data: map[string]string{}}
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, body, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			if g, ok := decl.(*ast.GenDecl); ok {
				d.read(g)
			}
		}
	}
	if len(d.types) == 0 {
		return nil, fmt.Errorf("no Go types in %s", dir)
	}
	return d, nil
}

func (d *docs) read(g *ast.GenDecl) {
	for _, spec := range g.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			doc := spec.Doc
			if doc == nil {
				doc = g.Doc
			}
			d.types[spec.Name.Name] = doc.Text()
			if s, ok := spec.Type.(*ast.StructType); ok {
				d.fields[spec.Name.Name] = readFields(s)
			}
		case *ast.ValueSpec:
			d.readData(spec)
		}
	}
}

// readFields returns the comment of each field. A field without one gets that of the field above, if that names it too, as in
// "User and Tags are …".
func readFields(s *ast.StructType) map[string]string {
	out := map[string]string{}
	above := ""
	for _, f := range s.Fields.List {
		if f.Doc != nil {
			above = f.Doc.Text()
		}
		for _, name := range f.Names {
			if f.Doc != nil || wordPattern(name.Name).MatchString(above) {
				out[name.Name] = above
			}
		}
	}
	return out
}

// readData reads the type of an event's data from the comment beside the event type: "// data: Result with reason lost".
func (d *docs) readData(spec *ast.ValueSpec) {
	typ, ok := spec.Type.(*ast.Ident)
	if !ok || typ.Name != "EventType" || len(spec.Values) != 1 {
		return
	}
	lit, ok := spec.Values[0].(*ast.BasicLit)
	if !ok {
		return
	}
	value, err := strconv.Unquote(lit.Value)
	if err != nil {
		return
	}
	if rest, ok := strings.CutPrefix(strings.TrimSpace(spec.Comment.Text()), "data: "); ok {
		name, _, _ := strings.Cut(rest, " ")
		d.data[value] = strings.TrimRight(name, ",:")
	}
}

func wordPattern(word string) *regexp.Regexp { return regexp.MustCompile(`\b` + word + `\b`) }

// describe turns a Go comment into a description for readers in other languages: doc links lose their brackets, constants become
// their values, and Go field names become JSON names.
func describe(text string, owner reflect.Type) string {
	text = strings.Join(strings.Fields(text), " ")
	text = strings.NewReplacer(
		"[Version]", strconv.Quote(schemas.Version),
		"[EventSpecVersion]", strconv.Quote(schemas.EventSpecVersion),
		"[MaxShownArgs]", strconv.Itoa(schemas.MaxShownArgs),
		"[MaxCommandBytes]", strconv.Itoa(schemas.MaxCommandBytes),
		"[MaxPromptBytes]", strconv.Itoa(schemas.MaxPromptBytes),
		"[MaxTerminalSize]", strconv.Itoa(schemas.MaxTerminalSize),
		"[MaxTags]", strconv.Itoa(schemas.MaxTags),
		"[MaxLabels]", strconv.Itoa(schemas.MaxLabels),
		"; see [ValidID]", "",
		"; see Command.Fingerprint", "",
	).Replace(text)
	text = regexp.MustCompile(`\[([A-Z][A-Za-z.]*)\]`).ReplaceAllString(text, "$1")
	for f := range owner.Fields() {
		if name := jsonName(f); name != "" && name != f.Name {
			text = regexp.MustCompile(`\b`+f.Name+`\b`).ReplaceAllString(text, name)
		}
	}
	return text
}

// jsonName returns the field's JSON name; empty for a field that is not encoded.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if !f.IsExported() || name == "-" {
		return ""
	}
	return name
}
