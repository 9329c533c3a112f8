package mcp_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sluice-dev/sluice/gateway/mcp"
	"github.com/sluice-dev/sluice/internal/testkit"
)

// A model has the descriptions and the schemas alone.
func TestToolsAreDescribed(t *testing.T) {
	c := cell(t)
	for _, thread := range []string{"", "t"} {
		a := serve(t, mcp.Config{Client: c, Thread: thread})
		tools, err := a.ListTools(a.ctx, nil)
		testkit.Must(t, err)
		var names []string
		size := 0
		for _, tool := range tools.Tools {
			names = append(names, tool.Name)
			body, err := json.Marshal(tool)
			testkit.Must(t, err)
			size += len(body)
			for _, s := range []any{tool.InputSchema, tool.OutputSchema} {
				var schema jsonschema.Schema
				body, err := json.Marshal(s)
				testkit.Must(t, err)
				testkit.Must(t, json.Unmarshal(body, &schema))
				if strings.Contains(string(body), `"null"`) {
					t.Errorf("%s: a property has several types: %s", tool.Name, body)
				}
				_, err = schema.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
				testkit.Must(t, err)
			}
			var input jsonschema.Schema
			body, err = json.Marshal(tool.InputSchema)
			testkit.Must(t, err)
			testkit.Must(t, json.Unmarshal(body, &input))
			for name, p := range input.Properties {
				if p.Description == "" {
					t.Errorf("%s: %s has no description", tool.Name, name)
				}
				if p.Type == "integer" || p.Type == "number" {
					if p.Minimum == nil {
						t.Errorf("%s: %s has no limit", tool.Name, name)
					}
				}
			}
			if _, has := input.Properties["thread"]; has != (thread == "") {
				t.Errorf("%s of a server with thread %q: it has an argument for it: %v", tool.Name, thread, has)
			}
			if h := tool.Annotations; h.Title == "" || tool.Description == "" || h.DestructiveHint == nil || h.ReadOnlyHint && *h.DestructiveHint {
				t.Errorf("%s: annotations %+v", tool.Name, h)
			}
		}
		testkit.Equal(t, "tools", strings.Join(names, " "), "edit_file list_files list_processes list_versions read_file read_output restore_workspace run_command search_files start_process stop_process sync_workspace write_file write_input")
		if size > 32<<10 {
			t.Errorf("the tools have %d bytes, which every conversation of a model begins with", size)
		}
		t.Logf("%d bytes", size)
	}
}
