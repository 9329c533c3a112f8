package template_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/schemas"
)

func TestParse(t *testing.T) {
	body, err := os.ReadFile("testdata/full.yaml")
	testkit.Must(t, err)
	got, err := template.Parse("full.yaml", body)
	testkit.Must(t, err)
	yes, no := true, false
	want := []*schemas.Template{
		{
			Name: "writer", Description: "Answers in prose,\nand keeps its notes.\n", Provider: "jail", Rootfs: "/srv/rootfs/writer", Network: schemas.NetworkHost,
			Limits: schemas.TemplateLimits{
				MemoryBytes: 512 << 20, CPUs: 1.5, PIDs: 256, TmpBytes: 64 << 20, WorkspaceBytes: 1_500_000_000, WorkspaceFiles: 1000, FileBytes: 100_000_000,
			},
			Env: map[string]string{"LANG": "C.UTF-8", "CI": "1"},
			Secrets: map[string]schemas.SecretRef{
				"MODEL_KEY": {Env: "SLUICE_SECRET_MODEL_KEY"}, "OTHER_KEY": {File: "/run/secrets/other"},
			},
			Session: schemas.TemplateSession{IdleTimeoutMS: 1_800_000, ParkAfterMS: 300_000, MaxLifetimeMS: 86_400_000, StartTimeoutMS: 60_000, StopGraceMS: 2500},
			Sync:    &schemas.TemplateSync{Location: "s3://workspaces/{tenant}/{agent}/{thread}", Init: &no, OnConflict: "both"},
			Hooks: map[schemas.Phase][]schemas.HookSpec{
				schemas.PhaseColdStart: {
					{Builtin: "pull-workspace", TimeoutMS: 60_000, Critical: &yes},
					{Name: "prepare", Command: []string{"sh", "-c", "mkdir -p notes"}},
				},
				schemas.PhaseStreamFinish: {{URL: "https://hooks.example.org/done", Secret: &schemas.SecretRef{Env: "SLUICE_SECRET_HOOKS"}}},
			},
			Agent:  &schemas.TemplateAgent{Command: []string{"writer", "--prompt", "{prompt}"}, TimeoutMS: 600_000, Output: "jsonl"},
			Policy: &schemas.TemplatePolicy{Name: "documents", Deny: []string{"git-*"}},
		},
		{Name: "plain"},
	}
	testkit.Equal(t, "templates", got, want)
}

func TestParseReportsProblem(t *testing.T) {
	tests := []struct{ name, body, want string }{
		{"no name", "description: x\n", "f.yaml:1: name: "},
		{"unknown field", "name: a\nimag: x\n", "f.yaml:2: imag: unknown field: use one of name, description, "},
		{"unknown deep field", "name: a\nhooks:\n  cold_start:\n    - builtin: clean-up\n      retries: 3\n", "f.yaml:5: hooks.cold_start[0].retries: unknown field"},
		{"unknown phase", "name: a\nhooks:\n  warm_start: []\n", "f.yaml:3: hooks.warm_start: no such phase"},
		{"bad duration", "name: a\nhooks:\n  cold_start:\n    - builtin: clean-up\n      timeout: soon\n", `f.yaml:5: hooks.cold_start[0].timeout: "soon": not a duration`},
		{"duration without a unit", "name: a\nsession: {idle_timeout: 30}\n", `f.yaml:2: session.idle_timeout: "30": not a duration`},
		{"duration too long", "name: a\nsession:\n  idle_timeout: 9000h\n", "f.yaml:3: session.idle_timeout: 32400000000 is not between"},
		{"negative duration", "name: a\nagent:\n  command: [a]\n  timeout: -1s\n", "f.yaml:4: agent.timeout: -1000 is not between"},
		{"duration too fine", "name: a\nsession: {stop_grace: 1us}\n", "f.yaml:2: session.stop_grace: \"1us\": not a whole number of milliseconds"},
		{"millis as text", "name: a\nsession: {stop_grace_ms: 1s}\n", `f.yaml:2: session.stop_grace_ms: got the text "1s", want a whole number`},
		{"both spellings", "name: a\nsession:\n  stop_grace: 1s\n  stop_grace_ms: 1000\n", "f.yaml:4: session.stop_grace_ms: given twice"},
		{"bad size", "name: a\nlimits:\n  memory: 512 Mebibytes\n", `f.yaml:3: limits.memory: "512 Mebibytes": not a size`},
		{"size over int64", "name: a\nlimits: {memory: 9000000TiB}\n", "f.yaml:2: limits.memory: \"9000000TiB\": not a size"},
		{"negative size", "name: a\nlimits: {memory: -1GB}\n", "f.yaml:2: limits.memory: \"-1GB\": not a size"},
		{"number for text", "name: 5\n", "f.yaml:1: name: got the number 5, want text: put it in quotes"},
		{"number in env", "name: a\nenv:\n  CI: 1\n", "f.yaml:3: env.CI: got the number 1, want text"},
		{"boolean in env", "name: a\nenv: {CI: true}\n", "f.yaml:2: env.CI: got the boolean true, want text"},
		{"text for a list", "name: a\nagent: {command: claude}\n", `f.yaml:2: agent.command: got the text "claude", want a list`},
		{"list for a field", "name: a\nagent: [claude]\n", "f.yaml:2: agent: got a list, want fields"},
		{"list for text", "name: [a]\n", "f.yaml:1: name: got a list, want text"},
		{"null", "name: a\nagent:\n", "f.yaml:2: agent: empty"},
		{"null in a list", "name: a\nagent:\n  command:\n    - claude\n    -\n", "f.yaml:5: agent.command[1]: empty"},
		{"null for a duration", "name: a\nsession: {stop_grace: }\n", "f.yaml:2: session.stop_grace: "},
		{"given twice", "name: a\nname: b\n", "f.yaml:2: name: given twice"},
		{"env given twice", "name: a\nenv:\n  A: x\n  A: y\n", "f.yaml:4: env.A: given twice"},
		{"fraction", "name: a\nlimits: {pids: 1.5}\n", "f.yaml:2: limits.pids: got the number 1.5, want a whole number"},
		{"number over int64", "name: a\nlimits: {pids: 99999999999999999999}\n", "f.yaml:2: limits.pids: "},
		{"not a number", "name: a\nlimits: {cpus: .nan}\n", "f.yaml:2: limits.cpus: NaN is not between"},
		{"infinite number", "name: a\nlimits: {cpus: .inf}\n", "f.yaml:2: limits.cpus: +Inf is not between"},
		{"an alias", "name: &n a\ndescription: *n\n", "f.yaml:2: description: aliases are not supported"},
		{"an alias bomb", aliasBomb(), ": aliases are not supported"},
		{"a merge", "name: a\nenv: &e {A: x}\nlimits:\n  <<: *e\n", "f.yaml:4: limits: "},
		{"a tag", "name: !!binary YQ==\n", "f.yaml:1: name: got a value of kind !!binary"},
		{"a key that is a list", "name: a\nenv:\n  ? [a]\n  : b\n", "f.yaml:3: env: a list is not a field name"},
		{"a scalar", "just text\n", `f.yaml:1: got the text "just text", want fields`},
		{"a tab", "name: a\n\tdescription: b\n", "f.yaml:2: not valid YAML: "},
		{"not YAML", "name: [a\n", "not valid YAML: "},
		{"not UTF-8", "name: \xff\n", "f.yaml: not valid UTF-8"},
		{"too large", "description: " + strings.Repeat("x", 128<<10), "f.yaml: 131085 bytes, the limit is 131072"},
		{"second document", "name: a\n---\n\nname: b\nprovider: dokcer\n", `f.yaml:5: provider: unknown "dokcer": one of`},
		{"invalid location", "name: a\nsync:\n  location: s3://b/all\n", "f.yaml:3: sync.location: no {thread} in it"},
		{"missing location", "name: a\nsync:\n  layout: packed\n", "f.yaml:3: sync.location: missing"},
		{"hook without a kind", "name: a\nhooks:\n  message:\n    - name: x\n", "f.yaml:4: hooks.message[0]: set exactly one of"},
		{"secret in plain text", "name: a\nsecrets:\n  KEY: hunter2\n", `f.yaml:3: secrets.KEY: got the text "hunter2", want fields`},
		{"secret of the worker", "name: a\nsecrets:\n  KEY:\n    env: HOME\n", `f.yaml:4: secrets.KEY.env: "HOME" does not begin with SLUICE_SECRET_`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := template.Parse("f.yaml", []byte(tt.body))
			testkit.WantCode(t, err, schemas.CodeInvalidArgument)
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %s\nwant it to contain %s", err, tt.want)
			}
		})
	}
}

// aliasBomb returns a file in which each line expands to ten times the one before.
func aliasBomb() string {
	var b strings.Builder
	b.WriteString("name: a\nenv:\n  A0: &a0 [lol]\n")
	for i := range 20 {
		a, next := string(rune('a'+i)), string(rune('a'+i+1))
		b.WriteString("  " + next + ": &" + next + "1 [" + strings.Repeat("*"+a+"0,", 9) + "*" + a + "0]\n")
		b.WriteString("  x" + next + ": &" + next + "0 [" + strings.Repeat("*"+a+"0,", 9) + "*" + a + "0]\n")
	}
	return b.String() + "description: *b0\n"
}

func TestParseReportsEveryProblem(t *testing.T) {
	_, err := template.Parse("f.yaml", []byte("name: a\nimag: x\nlimits:\n  memory: lots\n---\nname: b\n---\nname: ../c\n"))
	want := []string{"f.yaml:2: imag: ", "f.yaml:4: limits.memory: ", "f.yaml:8: name: "}
	problems, ok := errors.AsType[template.Problems](err)
	if !ok || len(problems) != len(want) {
		t.Fatalf("error = %v, want %d problems", err, len(want))
	}
	for i, p := range problems {
		if !strings.HasPrefix(p.Error(), want[i]) {
			t.Errorf("problem %d = %s, want %s", i, p.Error(), want[i])
		}
	}
}

func FuzzParse(f *testing.F) {
	full, err := os.ReadFile("testdata/full.yaml")
	testkit.Must(f, err)
	f.Add(full)
	f.Add([]byte("name: a\nenv: {A: \"\\u2028\", B: '0x1', C: \"~\", D: \" x\\n\"}\n"))
	f.Add([]byte("name: a\nlimits: {cpus: 1e-9, memory: 1.5GiB}\n---\n---\nname: b\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		found, err := template.Parse("f.yaml", body)
		if err != nil && !errors.Is(err, schemas.ErrInvalidArgument) {
			t.Fatalf("error = %v, want invalid_argument", err)
		}
		for _, one := range found {
			if err := one.Validate(); err != nil {
				t.Fatalf("the parsed template is not valid: %v", err)
			}
			testkit.Equal(t, "template after printing and parsing", printed(t, one), one, cmpopts.EquateEmpty())
		}
	})
}
