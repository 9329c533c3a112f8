package processor

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	"github.com/sluice-dev/sluice/schemas"
)

// recipes are templates by name.
type recipes map[string]*schemas.Template

// Template is the one of this name.
func (r recipes) Template(name string) (*schemas.Template, error) {
	if name == "" {
		name = "default"
	}
	if t := r[name]; t != nil {
		return t, nil
	}
	return nil, schemas.Errorf(schemas.CodeNotFound, "no template %q", name)
}

// with gives a worker templates; the default one is there in any case.
func with(list ...*schemas.Template) func(*Config) {
	r := recipes{"default": {Name: "default"}}
	for _, t := range list {
		r[t.Name] = t
	}
	return func(c *Config) { c.Templates = r }
}

// denies is a policy that refuses one program.
type denies string

// Check refuses it.
func (d denies) Check(_ *schemas.Template, command string, _ []string) error {
	if command == string(d) {
		return schemas.Errorf(schemas.CodePolicyDenied, "%s: denied by %q", command, string(d))
	}
	return nil
}

// ran is one call of the hooks.
type ran struct {
	data schemas.HookData
	dir  string
}

// hooks keep the calls, and do what a test says.
type hooks struct {
	do func(ctx context.Context, data schemas.HookData, dir string, exec func(context.Context, []string, []byte) error) ([]string, error)

	mu    sync.Mutex
	calls []ran
}

// Run keeps the call.
func (h *hooks) Run(ctx context.Context, _ *schemas.Template, data schemas.HookData, dir string, exec func(context.Context, []string, []byte) error) ([]string, error) {
	h.mu.Lock()
	h.calls = append(h.calls, ran{data, dir})
	do := h.do
	h.mu.Unlock()
	if do == nil {
		return nil, nil
	}
	return do(ctx, data, dir, exec)
}

func (h *hooks) of(phase schemas.Phase) (out []ran) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.calls {
		if c.data.Phase == phase {
			out = append(out, c)
		}
	}
	return out
}

// pushed is a store of workspaces: cold start pulls from it, terminate pushes to it.
func pushed(store string) func(context.Context, schemas.HookData, string, func(context.Context, []string, []byte) error) ([]string, error) {
	return func(_ context.Context, data schemas.HookData, dir string, _ func(context.Context, []string, []byte) error) ([]string, error) {
		from, to := filepath.Join(store, data.Conversation.Thread), filepath.Join(dir, "file")
		if data.Phase == schemas.PhaseTerminate {
			from, to = to, from
		}
		b, err := os.ReadFile(from)
		if os.IsNotExist(err) {
			return nil, nil
		}
		if err == nil {
			err = os.WriteFile(to, b, 0o600)
		}
		return nil, err
	}
}
