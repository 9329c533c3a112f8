package processor_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

// templates are templates by name.
type templates map[string]*schemas.Template

// Template returns one, or not_found.
func (r templates) Template(name string) (*schemas.Template, error) {
	if name == "" {
		name = "default"
	}
	if t := r[name]; t != nil {
		return t, nil
	}
	return nil, schemas.Errorf(schemas.CodeNotFound, "no template %q", name)
}

// with configures a worker with templates, and the default one.
func with(list ...*schemas.Template) func(*processor.Config) {
	r := templates{"default": {Name: "default"}}
	for _, t := range list {
		r[t.Name] = t
	}
	return func(c *processor.Config) { c.Templates = r }
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

// hooks record their calls, and call the test's function.
type hooks struct {
	do func(ctx context.Context, data schemas.HookData, dir string, exec func(context.Context, []string, []byte) error) ([]string, error)

	mu    sync.Mutex
	calls []ran
}

// Run records the call.
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

// pushed is a workspace store: cold_start pulls from it, terminate pushes to it.
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
