package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 6: a Python environment fits into a workspace by default, and the program in it runs.
func TestPythonEnvironmentFitsByDefault(t *testing.T) {
	t.Parallel()
	if err := exec.Command("python3", "-c", "import ensurepip, venv").Run(); err != nil {
		testkit.Missing(t, "python3 with venv", "apt-get install python3-venv")
	}
	c := newCLI(t)
	args := append([]string{"exec", "--thread", "v"}, jailFlags(t, c)...)
	c.run(append(args, "--", "sh", "-c", "python3 -m venv v && v/bin/python -c 'print(6 * 7)'")...).check(t).exits(0).prints("42\n").reportsNothing()
}

// Ten minutes 6: 1,000 files are the limit of the template documents alone.
func TestDocumentsHaveTheDocumentedLimits(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	fill := func(template string) outcome {
		const loop = "i=0; while [ $i -lt 1001 ]; do i=$((i+1)); echo $i >f$i; done"
		return c.run("exec", "--provider", "local", "--thread", template, "--template", template, "--", "sh", "-c", loop)
	}
	got := fill("default")
	if got.check(t).exits(0); strings.Contains(got.stderr, string(schemas.CodeLimitExceeded)) {
		t.Errorf("standard error = %q, want one without %s", got.stderr, schemas.CodeLimitExceeded)
	}
	fill("documents").check(t).exits(0).reports(string(schemas.CodeLimitExceeded)).reports("1001 files and folders, limit 1000")

	c.env["MAX_FILE_SIZE_MB"] = "200"
	limits := decode[schemas.Template](t, c.run("template", "show", "--json", "documents").stdout).Limits
	testkit.Equal(t, "limits of documents", limits, schemas.TemplateLimits{WorkspaceBytes: 500_000_000, WorkspaceFiles: 1000, FileBytes: 200_000_000})
}

// Ten minutes 6: the documented variables set the limits of the worker and those of the template documents.
func TestDocumentedVariablesSetTheLimits(t *testing.T) {
	c := newCLI(t)
	c.env["MAX_FILE_SIZE_MB"], c.env["MAX_TOTAL_FILES"], c.env["MAX_WORKSPACE_SIZE_MB"] = "3", "5", "7"
	c.up()
	by := map[string]int64{}
	for _, l := range decode[[]limitLine](t, c.run("limits", "--json").stdout) {
		by[l.Name] = l.Max
	}
	want := schemas.TemplateLimits{FileBytes: 3_000_000, WorkspaceFiles: 5, WorkspaceBytes: 7_000_000}
	got := schemas.TemplateLimits{FileBytes: by["file_bytes"], WorkspaceFiles: by["workspace_files"], WorkspaceBytes: by["workspace_bytes"]}
	testkit.Equal(t, "limits of the worker", got, want)
	got = decode[schemas.Template](t, c.run("template", "show", "--json", "documents").stdout).Limits
	testkit.Equal(t, "limits of documents", got, want)
}
