package processor_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

// templates are templates by name.
type templates map[string]*schemas.Template

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

// hookExec runs a command in the sandbox.
type hookExec = func(ctx context.Context, command []string, stdin []byte) error

// hookFunc is what the hooks of a test do. It returns the names of those that failed.
type hookFunc func(ctx context.Context, data schemas.HookData, dir string, exec hookExec) ([]string, error)

// failIn makes one hook fail in a phase, and the phase too unless err is nil.
func failIn(phase schemas.Phase, hook string, err error) hookFunc {
	return func(_ context.Context, data schemas.HookData, _ string, _ hookExec) ([]string, error) {
		if data.Phase == phase {
			return []string{hook}, err
		}
		return nil, nil
	}
}

// hooks record their calls, and call the test's function.
type hooks struct {
	do      hookFunc
	outcome schemas.HookOutcome // of what do does not report

	mu    sync.Mutex
	calls []ran
	owed  *schemas.OwedPush
	asked func() // called by Owed, under the lock
	sync  func(*schemas.SyncRequest) (schemas.SessionReply, error)
}

// Sync calls the test's function.
func (h *hooks) Sync(_ context.Context, _ *schemas.Template, _ schemas.HookData, _ string, req *schemas.SyncRequest) (schemas.SessionReply, error) {
	return h.sync(req)
}

// Owed returns what the test says is owed.
func (h *hooks) Owed(_, _ string) *schemas.OwedPush {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asked != nil {
		h.asked()
	}
	return h.owed
}

func (h *hooks) Run(ctx context.Context, _ *schemas.Template, data schemas.HookData, dir string, exec hookExec) (done schemas.HookOutcome, err error) {
	h.mu.Lock()
	h.calls = append(h.calls, ran{data, dir})
	do := h.do
	done = h.outcome
	h.mu.Unlock()
	if do != nil {
		done.Failed, err = do(ctx, data, dir, exec)
	}
	return done, err
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

// once returns the data of a phase's only call.
func (h *hooks) once(tb testing.TB, phase schemas.Phase) schemas.HookData {
	tb.Helper()
	calls := h.of(phase)
	if len(calls) != 1 {
		tb.Fatalf("phase %s ran %d times, want once", phase, len(calls))
	}
	return calls[0].data
}

// pushed is a workspace store: cold_start pulls from it, terminate pushes to it.
func pushed(store string) hookFunc {
	return func(_ context.Context, data schemas.HookData, dir string, _ hookExec) ([]string, error) {
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
