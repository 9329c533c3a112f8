package template_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/schemas"
)

// printed returns a template after printing and parsing.
func printed(t *testing.T, one *schemas.Template) *schemas.Template {
	t.Helper()
	body, err := template.YAML(one)
	testkit.Must(t, err)
	parsed, err := template.Parse("printed.yaml", body)
	if err != nil || len(parsed) != 1 {
		t.Fatalf("%d templates, want 1 (error: %v) in\n%s", len(parsed), err, body)
	}
	return parsed[0]
}

func write(t *testing.T, dir, name, body string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	testkit.Must(t, os.WriteFile(path, []byte(body), 0o600))
	return path
}

// wantError checks the code and a part of the text of an error.
func wantError(t *testing.T, err error, code schemas.Code, part string) {
	t.Helper()
	testkit.WantCode(t, err, code)
	if !strings.Contains(err.Error(), part) {
		t.Errorf("error = %q, want it to contain %q", err, part)
	}
}

func TestBuiltin(t *testing.T) {
	all, err := template.Builtin()
	testkit.Must(t, err)
	agents, err := template.Agents()
	testkit.Must(t, err)
	isAgent := func(one *schemas.Template) bool { return one.Network == schemas.NetworkHost || len(one.Secrets) > 0 }
	if slices.ContainsFunc(all, isAgent) {
		t.Error("a template that every worker has shares the machine's network or has a secret")
	}
	names := map[string]bool{}
	for _, one := range append(all, agents...) {
		names[one.Name] = true
		if err := one.Validate(); err != nil {
			t.Errorf("%s: %v", one.Name, err)
		}
		testkit.Equal(t, one.Name+" after printing and parsing", printed(t, one), one)
		if hasNetwork, hasKey := one.Network == schemas.NetworkHost, len(one.Secrets) > 0; hasNetwork != hasKey {
			t.Errorf("%s: network %v, secrets %v: agents that call a model need both, others none", one.Name, hasNetwork, hasKey)
		}
	}
	for _, name := range []string{template.Default, template.Documents, "sandbox-agent", "echo-agent", "claude-code", "codex", "gemini-cli", "aider", "opencode"} {
		if !names[name] {
			t.Errorf("template %s is missing", name)
		}
	}
}

func TestAgentsAreSwitchedOn(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", "name: aider\ndescription: of this place\n")
	for name, k := range map[string]struct {
		on, off []string
	}{
		"none": {nil, []string{"claude-code", "codex", "gemini-cli", "opencode"}},
		"two":  {[]string{"codex", "claude-code"}, []string{"gemini-cli", "opencode"}},
		"all":  {[]string{template.AllAgents}, nil},
	} {
		s, err := template.New(template.Config{Dir: dir, Agents: k.on})
		testkit.Must(t, err)
		testkit.Equal(t, name+": off", s.Off(), k.off)
		listed := map[string]bool{}
		for _, one := range s.List() {
			listed[one.Name] = true
		}
		for _, agent := range []string{"claude-code", "codex", "gemini-cli", "opencode", "aider"} {
			off := slices.Contains(k.off, agent)
			if _, err := s.Template(agent); off {
				wantError(t, err, schemas.CodePermissionDenied, "--agent-templates "+agent)
			} else {
				testkit.Must(t, err)
			}
			testkit.Equal(t, name+": list has "+agent, listed[agent], !off)
		}
		own, err := s.Template("aider")
		testkit.Must(t, err)
		testkit.Equal(t, "description of the operator's own", own.Description, "of this place")
	}
	_, err := template.New(template.Config{Agents: []string{"codex", "claude"}})
	wantError(t, err, schemas.CodeInvalidArgument, `"claude": use aider, claude-code, codex, gemini-cli, opencode, or all`)
}

func TestStore(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", "name: mine\n---\nname: default\ndescription: of this place\n")
	write(t, dir, "b.yml", "name: other\n")
	write(t, dir, ".hidden.yaml", "nonsense")
	write(t, dir, "README.md", "nonsense")
	s, err := template.New(template.Config{Dir: dir})
	testkit.Must(t, err)
	for name, want := range map[string]string{"": "default", "default": "default", "mine": "mine", "other": "other", "echo-agent": "echo-agent"} {
		got, err := s.Template(name)
		testkit.Must(t, err)
		testkit.Equal(t, "name of template "+name, got.Name, want)
	}
	defaults, err := s.Template("")
	testkit.Must(t, err)
	testkit.Equal(t, "description of the folder's default", defaults.Description, "of this place")
	_, err = s.Template("../a")
	testkit.WantCode(t, err, schemas.CodeNotFound)

	before := s.List()
	write(t, dir, "b.yml", "name: other\nprovider: none\n")
	wantError(t, s.Reload(), schemas.CodeInvalidArgument, "b.yml:2: provider: ")
	testkit.Equal(t, "templates after a failed reload", s.List(), before)

	write(t, dir, "b.yml", "name: another\n")
	testkit.Must(t, s.Reload())
	_, err = s.Template("other")
	testkit.WantCode(t, err, schemas.CodeNotFound)
	_, err = s.Template("another")
	testkit.Must(t, err)

	testkit.Must(t, os.RemoveAll(dir))
	testkit.WantCode(t, s.Reload(), schemas.CodeNotFound)
	_, err = s.Template("another")
	testkit.Must(t, err)
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	a := write(t, dir, "a.yaml", "name: one\n---\nname: two\n")
	b := write(t, dir, "b.yaml", "\nname: two\n")
	found, err := template.Check(a)
	testkit.Must(t, err)
	testkit.Equal(t, "number of templates", len(found), 2)
	_, err = template.Check(dir)
	wantError(t, err, schemas.CodeInvalidArgument, b+":2: name: template two is already defined at "+a+":3")
	for path, code := range map[string]schemas.Code{
		filepath.Join(dir, "none.yaml"): schemas.CodeNotFound, "/dev/zero": schemas.CodeUnavailable,
		write(t, t.TempDir(), "large.yaml", strings.Repeat("#", 1<<20)): schemas.CodeInvalidArgument,
	} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			_, err := template.Check(path)
			testkit.WantCode(t, err, code)
		})
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
	testkit.Must(t, err)
	testkit.Equal(t, "secrets", got, map[string]string{"A": "from-env", "B": "from-file"})
	got, err = template.Secrets(&schemas.Template{Name: "t"}, getenv)
	testkit.Must(t, err)
	testkit.Equal(t, "number of secrets of a template without any", len(got), 0)
	for name, ref := range map[string]schemas.SecretRef{
		"not set": {Env: "SLUICE_SECRET_B"}, "not a secret": {Env: "HOME"}, "nothing": {}, "no file": {File: filepath.Join(dir, "none")},
		"folder": {File: dir}, "device": {File: "/dev/zero"}, "empty": {File: write(t, dir, "empty", "\n")},
		"long": {File: write(t, dir, "long", strings.Repeat("k", 65<<10))}, "NUL": {File: write(t, dir, "nul", "a\x00b\n")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := template.Secrets(&schemas.Template{Name: "t", Secrets: map[string]schemas.SecretRef{"KEY": ref}}, getenv)
			wantError(t, err, schemas.CodeUnavailable, "template t: secret KEY: ")
			if strings.Contains(err.Error(), "kkkk") {
				t.Errorf("the error contains the secret: %v", err)
			}
		})
	}
}
