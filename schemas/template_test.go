package schemas_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestTemplateValidateRefusesInvalid(t *testing.T) {
	no := false
	long := func(n int) string { return strings.Repeat("x", n) }
	hook := func(h schemas.HookSpec) func(*schemas.Template) {
		return func(t *schemas.Template) {
			t.Hooks = map[schemas.Phase][]schemas.HookSpec{schemas.PhaseColdStart: {{Command: []string{"true"}}, h}}
		}
	}
	at := func(location string) func(*schemas.Template) {
		return func(t *schemas.Template) { t.Sync = &schemas.TemplateSync{Location: location} }
	}
	secret := func(r schemas.SecretRef) func(*schemas.Template) {
		return func(t *schemas.Template) { t.Secrets = map[string]schemas.SecretRef{"KEY": r} }
	}
	tests := []struct {
		path   string
		change func(*schemas.Template)
	}{
		{"name", func(t *schemas.Template) { t.Name = "" }},
		{"name", func(t *schemas.Template) { t.Name = "../x" }},
		{"description", func(t *schemas.Template) { t.Description = long(1025) }},
		{"provider", func(t *schemas.Template) { t.Provider = "dokcer" }},
		{"image", func(t *schemas.Template) { t.Provider, t.Image = "jail", "debian" }},
		{"image", func(t *schemas.Template) { t.Image = "debian --privileged" }},
		{"rootfs", func(t *schemas.Template) { t.Provider, t.Rootfs = "docker", "/srv/root" }},
		{"rootfs", func(t *schemas.Template) { t.Rootfs = "root" }},
		{"rootfs", func(t *schemas.Template) { t.Rootfs = "/srv/../etc" }},
		{"rootfs", func(t *schemas.Template) { t.Rootfs, t.Image = "/srv/root", "debian" }},
		{"network", func(t *schemas.Template) { t.Network = "all" }},
		{"limits.memory_bytes", func(t *schemas.Template) { t.Limits.MemoryBytes = -1 }},
		{"limits.open_files", func(t *schemas.Template) { t.Limits.OpenFiles = -1 }},
		{"limits.workspace_files", func(t *schemas.Template) { t.Limits.WorkspaceFiles = -1 }},
		{"limits.file_bytes", func(t *schemas.Template) { t.Limits.FileBytes = -1 }},
		{"limits.memory_bytes", func(t *schemas.Template) { t.Limits.MemoryBytes = schemas.MinMemoryBytes - 1 }},
		{"limits.tmp_bytes", func(t *schemas.Template) { t.Limits.TmpBytes = 1 }},
		{"limits.open_files", func(t *schemas.Template) { t.Limits.OpenFiles = 1 }},
		{"limits.pids", func(t *schemas.Template) { t.Limits.PIDs = 1 }},
		{"limits.pids", func(t *schemas.Template) { t.Limits.PIDs = schemas.MaxPIDs + 1 }},
		{"limits.cpus", func(t *schemas.Template) { t.Limits.CPUs = 0.001 }},
		{"limits.cpus", func(t *schemas.Template) { t.Limits.CPUs = -1 }},
		{"limits.cpus", func(t *schemas.Template) { t.Limits.CPUs = math.NaN() }},
		{"env", func(t *schemas.Template) { t.Env = map[string]string{"A=B": ""} }},
		{"env.SLUICE_X", func(t *schemas.Template) { t.Env = map[string]string{"SLUICE_X": ""} }},
		{"env.A", func(t *schemas.Template) { t.Env = map[string]string{"A": "\x00"} }},
		{"secrets.KEY", secret(schemas.SecretRef{})},
		{"secrets.KEY", secret(schemas.SecretRef{Env: "SLUICE_SECRET_A", File: "/a"})},
		{"secrets.KEY.env", secret(schemas.SecretRef{Env: "PATH"})},
		{"secrets.KEY.env", secret(schemas.SecretRef{Env: "SLUICE_TOKEN"})},
		{"secrets.KEY.env", secret(schemas.SecretRef{Env: "SLUICE_SECRET_"})},
		{"secrets.KEY.file", secret(schemas.SecretRef{File: "key"})},
		{"secrets.KEY.file", secret(schemas.SecretRef{File: "/run/../etc/shadow"})},
		{"secrets.KEY", func(t *schemas.Template) {
			secret(schemas.SecretRef{File: "/a"})(t)
			t.Env = map[string]string{"KEY": ""}
		}},
		{"session.idle_timeout_ms", func(t *schemas.Template) { t.Session.IdleTimeoutMS = -1 }},
		{"session.stop_grace_ms", func(t *schemas.Template) { t.Session.StopGraceMS = schemas.MaxTimeoutMS + 1 }},
		{"sync.location", at("")},
		{"sync.location", at("/srv/{thread}")},
		{"sync.location", at("http://x/{thread}")},
		{"sync.location", at("s3://bucket/all")},
		{"sync.location", at("s3://{thread}/all")},
		{"sync.location", at("s3://bucket/{user}/{thread}")},
		{"sync.location", at("s3://bucket/../{thread}")},
		{"sync.location", at("s3://bucket//{thread}")},
		{"sync.location", at("s3://bucket/{tenant}-{thread}")},
		{"sync.location", at("file://host/{thread}")},
		{"sync.location", at("file:///a/./{thread}")},
		{"sync.endpoint", func(t *schemas.Template) {
			t.Sync = &schemas.TemplateSync{Location: "s3://b/{thread}", Endpoint: "http://user:password@host"}
		}},
		{"sync.endpoint", func(t *schemas.Template) {
			t.Sync = &schemas.TemplateSync{Location: "file:///b/{thread}", Endpoint: "http://host"}
		}},
		{"sync.layout", func(t *schemas.Template) { t.Sync = &schemas.TemplateSync{Location: "s3://b/{thread}", Layout: "zip"} }},
		{"sync.on_conflict", func(t *schemas.Template) {
			t.Sync = &schemas.TemplateSync{Location: "s3://b/{thread}", OnConflict: "ask"}
		}},
		{"hooks.warm_start", func(t *schemas.Template) { t.Hooks = map[schemas.Phase][]schemas.HookSpec{"warm_start": nil} }},
		{"hooks.", func(t *schemas.Template) { t.Hooks = map[schemas.Phase][]schemas.HookSpec{"": nil} }},
		{"hooks.cold_start", func(t *schemas.Template) {
			t.Hooks = map[schemas.Phase][]schemas.HookSpec{schemas.PhaseColdStart: make([]schemas.HookSpec, 33)}
		}},
		{"hooks.cold_start[1]", hook(schemas.HookSpec{})},
		{"hooks.cold_start[1]", hook(schemas.HookSpec{Builtin: "clean-up", URL: "http://x"})},
		{"hooks.cold_start[1].builtin", hook(schemas.HookSpec{Builtin: "pull"})},
		{"hooks.cold_start[1].builtin", hook(schemas.HookSpec{Builtin: "pull-workspace"})},
		{"hooks.cold_start[1].name", hook(schemas.HookSpec{Builtin: "clean-up", Name: long(257)})},
		{"hooks.cold_start[1].command", hook(schemas.HookSpec{Command: []string{""}})},
		{"hooks.cold_start[1].command[1]", hook(schemas.HookSpec{Command: []string{"a", "\x00"}})},
		{"hooks.cold_start[1].subject", hook(schemas.HookSpec{Subject: "a.>"})},
		{"hooks.cold_start[1].subject", hook(schemas.HookSpec{Subject: "a..b"})},
		{"hooks.cold_start[1].subject", hook(schemas.HookSpec{Subject: "a b"})},
		{"hooks.cold_start[1].subject", hook(schemas.HookSpec{Subject: "$JS.API.STREAM.DELETE.x"})},
		{"hooks.cold_start[1].subject", hook(schemas.HookSpec{Subject: "sluice.v1.local.default.evt.t._.a.b"})},
		{"hooks.cold_start[1].url", hook(schemas.HookSpec{URL: "file:///etc/passwd"})},
		{"hooks.cold_start[1].url", hook(schemas.HookSpec{URL: "https://u:p@host/"})},
		{"hooks.cold_start[1].secret", hook(schemas.HookSpec{Subject: "a", Secret: &schemas.SecretRef{File: "/a"}})},
		{"hooks.cold_start[1].secret.env", hook(schemas.HookSpec{URL: "http://x", Secret: &schemas.SecretRef{Env: "HOME"}})},
		{"hooks.cold_start[1].subject", hook(schemas.HookSpec{Subject: "_INBOX.x"})},
		{"hooks.cold_start[1].timeout_ms", hook(schemas.HookSpec{Builtin: "clean-up", TimeoutMS: -1})},
		{"hooks.cold_start[1].timeout_ms", hook(schemas.HookSpec{Builtin: "clean-up", TimeoutMS: schemas.MaxHookTimeoutMS + 1})},
		{"agent.command", func(t *schemas.Template) { t.Agent = &schemas.TemplateAgent{} }},
		{"agent.command[0]", func(t *schemas.Template) { t.Agent = &schemas.TemplateAgent{Command: []string{"{prompt}"}} }},
		{"agent.command[2]", func(t *schemas.Template) {
			t.Agent = &schemas.TemplateAgent{Command: []string{"sh", "-c", "agent {prompt}"}}
		}},
		{"agent.stdin", func(t *schemas.Template) { t.Agent = &schemas.TemplateAgent{Command: []string{"a"}, Stdin: &no} }},
		{"agent.timeout_ms", func(t *schemas.Template) { t.Agent = &schemas.TemplateAgent{Command: []string{"a"}, TimeoutMS: -1} }},
		{"agent.output", func(t *schemas.Template) { t.Agent = &schemas.TemplateAgent{Command: []string{"a"}, Output: "xml"} }},
		{"policy.name", func(t *schemas.Template) { t.Policy = &schemas.TemplatePolicy{Name: "strict"} }},
		{"policy.allow[1]", func(t *schemas.Template) { t.Policy = &schemas.TemplatePolicy{Allow: []string{"a", ""}} }},
		{"policy.deny[0]", func(t *schemas.Template) { t.Policy = &schemas.TemplatePolicy{Deny: []string{"a\x00"}} }},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			var v schemas.Template
			testkit.Must(t, json.Unmarshal(examples(t)["template.minimal"], &v))
			testkit.Must(t, v.Validate())
			tt.change(&v)
			checkRefusal(t, v.Validate(), tt.path)
		})
	}
}

func TestSyncThreadLocation(t *testing.T) {
	for _, tt := range []struct{ location, tenant, template, thread, want string }{
		{"s3://b/{thread}", "default", "a", "t", "s3://b/t"},
		{"s3://b/x/{tenant}/{agent}/{thread}/", "acme", "writer", "t_1-x", "s3://b/x/acme/writer/t_1-x/"},
		{"file:///srv/w/t-{thread}", "default", "a", "t", "file:///srv/w/t-t"},
		{"s3://b/{thread}/{agent}", "default", "thread", "agent", "s3://b/agent/thread"},
	} {
		got, err := (&schemas.TemplateSync{Location: tt.location}).ThreadLocation(tt.tenant, tt.template, tt.thread)
		testkit.Must(t, err)
		testkit.Equal(t, "location of "+tt.location, got, tt.want)
	}
	for _, tt := range []struct{ location, tenant, template, thread string }{
		{"s3://b/{tenant}/{agent}/{thread}", "..", "a", "t"}, {"s3://b/{tenant}/{agent}/{thread}", "acme", "..", "t"},
		{"s3://b/{tenant}/{agent}/{thread}", "acme", "a", ".."}, {"s3://b/{tenant}/{agent}/{thread}", "acme", "a", "t/../../other"},
		{"s3://b/{tenant}/{agent}/{thread}", "acme", "a", ""}, {"s3://b/{tenant}/{agent}/{thread}", "acme", "a", "{tenant}"},
		{"s3://b/{tenant}/{agent}/{thread}", "acme", "a/b", "t"}, {"s3://b/{tenant}/{agent}/{thread}", "", "a", "t"},
		{"s3://b/{tenant}/{agent}/{thread}", "acme", "a", "t\n"}, {"s3://b/{tenant}/{agent}/{thread}", "acme", "a", "%2e%2e"},
		{"s3://b/{thread}", "acme", "a", "t"}, // tenants would share a workspace
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			_, err := (&schemas.TemplateSync{Location: tt.location}).ThreadLocation(tt.tenant, tt.template, tt.thread)
			testkit.WantCode(t, err, schemas.CodeInvalidArgument)
		})
	}
}

// FuzzSyncThreadLocation checks that every location is below its fixed part, and that two threads never share one.
func FuzzSyncThreadLocation(f *testing.F) {
	f.Add("s3://b/{tenant}/{agent}/{thread}", "acme", "writer", "t", "acme", "u")
	f.Add("file:///srv/x-{thread}/{tenant}", "default", "a", "b-c", "a-b", "c")
	f.Fuzz(func(t *testing.T, location, tenant, agent, thread, tenant2, thread2 string) {
		s := &schemas.TemplateSync{Location: location}
		one, err := s.ThreadLocation(tenant, agent, thread)
		if err != nil {
			return
		}
		fixed, _, _ := strings.Cut(location, "{")
		if !strings.HasPrefix(one, fixed) || strings.Contains(one, "/../") || strings.HasSuffix(one, "/..") || strings.ContainsAny(one, "{}\x00") {
			t.Fatalf("location %q of tenant %q, template %q, thread %q = %q", location, tenant, agent, thread, one)
		}
		if tenant == tenant2 && thread == thread2 {
			return
		}
		two, err := s.ThreadLocation(tenant2, agent, thread2)
		if err != nil {
			return
		}
		if (thread != thread2 || strings.Contains(location, "{tenant}")) && strings.TrimSuffix(one, "/")+"/" == strings.TrimSuffix(two, "/")+"/" {
			t.Fatalf("location %q: two threads share %q", location, one)
		}
	})
}
