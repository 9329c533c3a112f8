package template_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/schemas"
)

func equateEmpty() cmp.Option { return cmpopts.EquateEmpty() }

// printed is a template after it was printed and read again.
func printed(t *testing.T, one *schemas.Template) *schemas.Template {
	t.Helper()
	body, err := template.YAML(one)
	if err != nil {
		t.Fatal(err)
	}
	again, err := template.Parse("printed.yaml", body)
	if err != nil || len(again) != 1 {
		t.Fatalf("%v in\n%s", err, body)
	}
	return again[0]
}

func write(t *testing.T, dir, name, body string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBuiltin(t *testing.T) {
	all, err := template.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, one := range all {
		names[one.Name] = true
		if err := one.Validate(); err != nil {
			t.Errorf("%s: %v", one.Name, err)
		}
		if diff := cmp.Diff(one, printed(t, one)); diff != "" {
			t.Errorf("%s printed and read again differs:\n%s", one.Name, diff)
		}
		if (one.Network == schemas.NetworkHost) != (len(one.Secrets) > 0) {
			t.Errorf("%s: an agent that asks a model needs network and a key, and nothing else does", one.Name)
		}
	}
	for _, name := range []string{template.Default, "echo-agent", "claude-code", "codex", "gemini-cli", "aider", "opencode"} {
		if !names[name] {
			t.Errorf("there is no %s", name)
		}
	}
}

func TestStore(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", "name: mine\n---\nname: default\ndescription: of this place\n")
	write(t, dir, "b.yml", "name: other\n")
	write(t, dir, ".hidden.yaml", "nonsense")
	write(t, dir, "README.md", "nonsense")
	s, err := template.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"": "default", "default": "default", "mine": "mine", "other": "other", "echo-agent": "echo-agent"} {
		if got, err := s.Template(name); err != nil || got.Name != want {
			t.Errorf("%q gives %v, %v", name, got, err)
		}
	}
	if own, err := s.Template(""); err != nil || own.Description != "of this place" {
		t.Errorf("the folder's default is not taken: %v, %v", own, err)
	}
	if _, err := s.Template("../a"); !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("%v", err)
	}
	before := s.List()

	write(t, dir, "b.yml", "name: other\nprovider: none\n")
	if err := s.Reload(); err == nil || !strings.Contains(err.Error(), "b.yml:2: provider: ") {
		t.Errorf("a broken file is taken: %v", err)
	}
	if diff := cmp.Diff(before, s.List()); diff != "" {
		t.Errorf("a broken file changed something:\n%s", diff)
	}

	write(t, dir, "b.yml", "name: another\n")
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Template("other"); !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("a template that is gone is still there: %v", err)
	}
	if _, err := s.Template("another"); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); !errors.Is(err, schemas.ErrUnavailable) {
		t.Errorf("a folder that is gone: %v", err)
	}
	if _, err := s.Template("another"); err != nil {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	a := write(t, dir, "a.yaml", "name: one\n---\nname: two\n")
	b := write(t, dir, "b.yaml", "\nname: two\n")
	if found, err := template.Check(a); err != nil || len(found) != 2 {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := template.Check(dir); err == nil || !strings.Contains(err.Error(), b+":2: name: template two is at "+a+":3 already") {
		t.Errorf("two of one name: %v", err)
	}
	if _, err := template.Check(filepath.Join(dir, "none.yaml")); !errors.Is(err, schemas.ErrUnavailable) {
		t.Errorf("no file: %v", err)
	}
	if _, err := template.Check("/dev/zero"); !errors.Is(err, schemas.ErrUnavailable) {
		t.Errorf("an endless file: %v", err)
	}
	if _, err := template.Check(write(t, dir, "large.yaml", strings.Repeat("#", 1<<20))); !errors.Is(err, schemas.ErrInvalidArgument) {
		t.Errorf("a large file: %v", err)
	}
}

func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "key", "from-file\r\nsecond line\n")
	env := map[string]string{"SLUICE_SECRET_A": "from-env", "HOME": "/root"}
	getenv := func(name string) string { return env[name] }
	got, err := template.Secrets(&schemas.Template{Name: "t", Secrets: map[string]schemas.SecretRef{
		"A": {Env: "SLUICE_SECRET_A"}, "B": {File: file},
	}}, getenv)
	if diff := cmp.Diff(map[string]string{"A": "from-env", "B": "from-file"}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if got, err := template.Secrets(&schemas.Template{Name: "t"}, getenv); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	for name, ref := range map[string]schemas.SecretRef{
		"not set": {Env: "SLUICE_SECRET_B"}, "not a secret": {Env: "HOME"}, "nothing": {}, "no file": {File: filepath.Join(dir, "none")},
		"folder": {File: dir}, "device": {File: "/dev/zero"}, "empty": {File: write(t, dir, "empty", "\n")},
		"long": {File: write(t, dir, "long", strings.Repeat("k", 65<<10))}, "NUL": {File: write(t, dir, "nul", "a\x00b\n")},
	} {
		_, err := template.Secrets(&schemas.Template{Name: "t", Secrets: map[string]schemas.SecretRef{"KEY": ref}}, getenv)
		if err == nil || !strings.Contains(err.Error(), "template t: secret KEY: ") || strings.Contains(err.Error(), "kkkk") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
