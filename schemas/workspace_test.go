package schemas_test

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 13: what a template may say of the workspace that it begins with.
func TestTemplateWorkspaceIsChecked(t *testing.T) {
	stored := &schemas.TemplateSync{Location: "s3://b/{thread}"}
	for _, tt := range []struct {
		name string
		w    schemas.TemplateWorkspace
		of   schemas.Template
		path string
	}{
		{name: "a thread", w: schemas.TemplateWorkspace{From: "thread/base"}, of: schemas.Template{Sync: stored}},
		{name: "a label", w: schemas.TemplateWorkspace{From: "thread/{label.app/source}", Template: "writer", Mode: "copy"}},
		{name: "read-only", w: schemas.TemplateWorkspace{From: "thread/base", Template: "writer", Mode: "read-only"}},
		{name: "no thread", w: schemas.TemplateWorkspace{From: "base", Template: "writer"}, path: "workspace.from"},
		{name: "no id", w: schemas.TemplateWorkspace{From: "thread/a/b", Template: "writer"}, path: "workspace.from"},
		{name: "another placeholder", w: schemas.TemplateWorkspace{From: "thread/{thread}", Template: "writer"}, path: "workspace.from"},
		{name: "no name of a label", w: schemas.TemplateWorkspace{From: "thread/{label. }", Template: "writer"}, path: "workspace.from"},
		{name: "text around a label", w: schemas.TemplateWorkspace{From: "thread/x-{label.a}", Template: "writer"}, path: "workspace.from"},
		{name: "unknown mode", w: schemas.TemplateWorkspace{From: "thread/base", Template: "writer", Mode: "move"}, path: "workspace.mode"},
		{name: "no template", w: schemas.TemplateWorkspace{From: "thread/base"}, path: "workspace.template"},
		{name: "read-only and stored", w: schemas.TemplateWorkspace{From: "thread/base", Mode: "read-only"}, of: schemas.Template{Sync: stored}, path: "workspace.mode"},
		{
			name: "read-only without isolation", w: schemas.TemplateWorkspace{From: "thread/base", Template: "writer", Mode: "read-only"},
			of: schemas.Template{Provider: "local"}, path: "workspace.mode",
		},
	} {
		tt.of.Name, tt.of.Workspace = "tpl", &tt.w
		err := tt.of.Validate()
		if tt.path == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		testkit.WantCode(t, err, schemas.CodeInvalidArgument)
		testkit.Equal(t, tt.name, schemas.AsError(err).Details["path"], tt.path)
	}
}

func TestSourceOfAWorkspace(t *testing.T) {
	byLabel := &schemas.TemplateWorkspace{From: "thread/{label.source}"}
	for _, tt := range []struct {
		name   string
		w      *schemas.TemplateWorkspace
		labels map[string]string
		want   string
		code   schemas.Code
	}{
		{"none", nil, nil, "", ""},
		{"fixed", &schemas.TemplateWorkspace{From: "thread/base"}, map[string]string{"source": "x"}, "base", ""},
		{"label", byLabel, map[string]string{"source": "t1", "b": "2"}, "t1", ""},
		{"missing", byLabel, map[string]string{"b": "2"}, "", schemas.CodeInvalidArgument},
		{"path", byLabel, map[string]string{"source": "../other"}, "", schemas.CodeInvalidArgument},
		{"empty", byLabel, map[string]string{"source": ""}, "", schemas.CodeInvalidArgument},
	} {
		got, err := tt.w.Source(tt.labels)
		testkit.WantCode(t, err, tt.code)
		testkit.Equal(t, tt.name, got, tt.want)
	}
}
