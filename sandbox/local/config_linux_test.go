package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func TestNewRefusesInvalidConfig(t *testing.T) {
	warn := func(string) {}
	for what, c := range map[string]Config{
		"no folder": {Warn: warn}, "relative": {RunDir: "run", Warn: warn}, "too long": {RunDir: "/" + strings.Repeat("x", 100), Warn: warn},
		"no Warn": {RunDir: testkit.ShortDir(t)},
	} {
		if _, err := New(c); schemas.CodeOf(err) != schemas.CodeInvalidArgument {
			t.Errorf("%s: error %v, want code %s", what, err, schemas.CodeInvalidArgument)
		}
	}
	file := filepath.Join(testkit.ShortDir(t), "file")
	testkit.Must(t, os.WriteFile(file, nil, 0o600))
	_, err := New(Config{RunDir: file, Warn: warn})
	testkit.WantCode(t, err, schemas.CodeUnavailable)
}

func TestCreateCleansUpWhenSupervisorFails(t *testing.T) {
	var warnings []string
	p, err := New(Config{RunDir: testkit.ShortDir(t), Supervisor: []string{"/no/such/supervisor"}, Warn: func(s string) { warnings = append(warnings, s) }})
	testkit.Must(t, err)
	testkit.Equal(t, "warnings", warnings, []string{Warning})
	for _, command := range [][]string{{"/no/such/supervisor"}, {"/bin/true"}} {
		p.command = command
		_, err := p.Create(t.Context(), sandbox.Spec{ID: "x", Workspace: filepath.Join(p.dir, "ws")})
		testkit.WantCode(t, err, schemas.CodeUnavailable)
		for pattern, want := range map[string][]string{"kept/*": nil, "*": {filepath.Join(p.dir, "kept")}} {
			files, err := filepath.Glob(filepath.Join(p.dir, pattern))
			testkit.Must(t, err)
			testkit.Equal(t, strings.Join(command, " ")+" leaves "+pattern, files, want)
		}
	}
}
