package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

// comments are those of types by their names, and of fields by Type.Field.
type comments map[string]string

// readComments reads the source in folders.
func readComments(folders ...string) (comments, error) {
	c := comments{}
	for _, folder := range folders {
		paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			ast.Inspect(file, c.read)
		}
	}
	return c, nil
}

// read reads a declaration of types.
func (c comments) read(n ast.Node) bool {
	decl, ok := n.(*ast.GenDecl)
	if !ok {
		return true
	}
	for _, spec := range decl.Specs {
		typ, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		c[typ.Name.Name] = decl.Doc.Text()
		if typ.Doc != nil {
			c[typ.Name.Name] = typ.Doc.Text()
		}
		if s, ok := typ.Type.(*ast.StructType); ok {
			c.fields(typ.Name.Name, s)
		}
	}
	return false
}

// fields reads the comments of fields. One without a comment has that of the field above, if that names it too.
func (c comments) fields(owner string, s *ast.StructType) {
	above := ""
	for _, f := range s.Fields.List {
		if f.Doc != nil {
			above = f.Doc.Text()
		}
		for _, name := range f.Names {
			if f.Doc != nil || regexp.MustCompile(`\b`+name.Name+`\b`).MatchString(above) {
				c[owner+"."+name.Name] = above
			}
		}
	}
}

var (
	links = regexp.MustCompile(`\[([A-Z][A-Za-z.]*)\]`)
	see   = regexp.MustCompile(`; see (\[\w+\]|Command\.Fingerprint)`)
)

// limits replaces the names of limits by their values.
func limits() *strings.Replacer {
	return strings.NewReplacer(
		"[MaxLabels]", strconv.Itoa(schemas.MaxLabels), "[MaxPromptBytes]", strconv.Itoa(schemas.MaxPromptBytes),
		"[MaxRecordOutput]", strconv.Itoa(schemas.MaxRecordOutput), "[MaxShownArgs]", strconv.Itoa(schemas.MaxShownArgs),
		"[MaxTags]", strconv.Itoa(schemas.MaxTags), "[MaxTerminalSize]", strconv.Itoa(schemas.MaxTerminalSize),
		"[MaxUserBytes]", strconv.Itoa(schemas.MaxUserBytes),
	)
}

// of is a [gateway.Comments]: a comment for readers in other languages, without links and with the names of JSON.
func (c comments) of(t reflect.Type, field string) string {
	text := c[t.Name()]
	if field != "" {
		text = c[t.Name()+"."+field]
	}
	text = limits().Replace(text)
	text = links.ReplaceAllString(see.ReplaceAllString(strings.Join(strings.Fields(text), " "), ""), "$1")
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			text = regexp.MustCompile(`\b`+f.Name+`\b`).ReplaceAllString(text, name)
		}
	}
	return text
}
