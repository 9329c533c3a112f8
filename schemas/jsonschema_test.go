package schemas_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// compileSchemas compiles every checked-in JSON Schema by its file's name, once for all tests.
var compileSchemas = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	paths, err := filepath.Glob("json/*.json")
	if err != nil {
		return nil, err
	}
	out := map[string]*jsonschema.Schema{}
	for _, path := range paths {
		c := jsonschema.NewCompiler()
		c.DefaultDraft(jsonschema.Draft2020)
		c.AssertFormat()
		c.AssertContent()
		body, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		// Each file must stand by itself: none of the others is known to this compiler.
		if err := c.AddResource(path, doc); err != nil {
			return nil, err
		}
		s, err := c.Compile(path)
		if err != nil {
			return nil, err
		}
		out[strings.TrimSuffix(filepath.Base(path), ".json")] = s
	}
	return out, nil
})

func schemaFor(t testing.TB, name string) *jsonschema.Schema {
	t.Helper()
	all, err := compileSchemas()
	if err != nil {
		t.Fatal(err)
	}
	if all[name] == nil {
		t.Fatalf("there is no json/%s.json", name)
	}
	return all[name]
}

// bySchema is what a JSON Schema says of a body; an error too where the body is no JSON.
func bySchema(t testing.TB, name string, body []byte) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return schemaFor(t, name).Validate(v)
}
