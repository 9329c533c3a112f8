package schemas_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// compileSchemas compiles every file in json, once for all tests.
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
		// Each file gets its own compiler: it must be complete without the others.
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

// bySchema returns the error of a JSON Schema for a body, or that of a body that is not JSON.
func bySchema(t testing.TB, name string, body []byte) error {
	t.Helper()
	all, err := compileSchemas()
	testkit.Must(t, err)
	if all[name] == nil {
		t.Fatalf("json/%s.json is missing", name)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return all[name].Validate(v)
}
