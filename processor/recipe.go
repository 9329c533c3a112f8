package processor

import (
	"context"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Templates gives recipes.
type Templates interface {
	// Template is the one of this name, the default one for an empty name. Errors: not_found.
	Template(name string) (*schemas.Template, error)
}

// Policy says which commands may be asked for.
type Policy interface {
	// Check says whether a template lets a command run. Errors: policy_denied, naming the command and the pattern.
	Check(t *schemas.Template, command string, args []string) error
}

// Hooks runs what a template wants run at certain points of a session.
type Hooks interface {
	// Run runs the hooks of data.Phase, in order. dir is the workspace's folder on this machine; exec runs a command in the
	// thread's sandbox, and is nil where there is none. failed names the hooks that failed; err is the first critical failure,
	// after which no further hook ran.
	Run(ctx context.Context, t *schemas.Template, data schemas.HookData, dir string,
		exec func(ctx context.Context, command []string, stdin []byte) error) (failed []string, err error)
}

// template is the recipe of this name. Errors: not_found.
func (w *Worker) template(name string) (*schemas.Template, error) {
	if w.cfg.Templates != nil {
		return w.cfg.Templates.Template(name)
	}
	if name == "" || name == defaultTemplate {
		return &schemas.Template{Name: name}, nil
	}
	return nil, schemas.Errorf(schemas.CodeNotFound, "worker %s has no template %q: it was started without any", w.cfg.Worker, name)
}

// defaultTemplate is what the template is called that every worker has.
const defaultTemplate = "default"

// specOf is the sandbox that a template describes. Errors: those of the secrets.
func (w *Worker) specOf(t *thread, id, workspace string) (sandbox.Spec, error) {
	r := t.template
	spec := sandbox.Spec{
		ID: id, Thread: t.thread, Workspace: workspace, Image: t.session.Image, Rootfs: r.Rootfs, Network: r.Network,
		Limits: w.limits(&r.Limits), Owner: t.mark().String(),
	}
	if w.cfg.Secrets == nil || len(r.Secrets) == 0 {
		spec.Env = r.Env
		return spec, nil
	}
	secrets, err := w.cfg.Secrets(r)
	if err != nil {
		return spec, err
	}
	spec.Env = make(map[string]string, len(r.Env)+len(secrets))
	for _, from := range []map[string]string{r.Env, secrets} {
		for name, value := range from {
			spec.Env[name] = value
		}
	}
	return spec, nil
}

// limits are a template's, and the worker's own where it has none.
func (w *Worker) limits(of *schemas.TemplateLimits) sandbox.Limits {
	l := w.cfg.Limits
	for _, f := range []struct {
		to   *int64
		from int64
	}{
		{&l.MemoryBytes, of.MemoryBytes}, {&l.PIDs, of.PIDs}, {&l.TmpBytes, of.TmpBytes},
		{&l.WorkspaceBytes, of.WorkspaceBytes}, {&l.WorkspaceFiles, of.WorkspaceFiles},
	} {
		if f.from != 0 {
			*f.to = f.from
		}
	}
	if of.CPUs != 0 {
		l.CPUs = of.CPUs
	}
	return l
}
