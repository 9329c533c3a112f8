package main

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// The stored description is that of the code, and describes every field and every parameter.
func TestDescription(t *testing.T) {
	t.Parallel()
	doc, err := generate("../..")
	testkit.Must(t, err)
	stored, err := os.ReadFile("../../openapi.json")
	testkit.Must(t, err)
	if !bytes.Equal(doc, stored) {
		t.Error("openapi.json is not that of the code: run `go generate ./gateway`")
	}
	var all any
	testkit.Must(t, json.Unmarshal(doc, &all))
	if n := described(t, "", all); n < 500 {
		t.Errorf("%d fields and parameters are described, want those of all types", n)
	}
}

// described counts the fields and parameters in a value, each of which must have a description.
func described(t *testing.T, path string, v any) (n int) {
	t.Helper()
	has := func(path string, v any) {
		n++
		if text, _ := v.(map[string]any)["description"].(string); text == "" {
			t.Errorf("%s has no description: comment its field", path)
		}
	}
	switch v := v.(type) {
	case []any:
		for _, each := range v {
			n += described(t, path, each)
		}
	case map[string]any:
		if fields, ok := v["properties"].(map[string]any); ok {
			for name, p := range fields {
				has(path+"."+name, p)
			}
		}
		if parameters, ok := v["parameters"].([]any); ok {
			for _, p := range parameters {
				has(path+": parameter", p)
			}
		}
		for name, each := range v {
			n += described(t, path+"/"+name, each)
		}
	}
	return n
}
