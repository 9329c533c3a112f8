package processor

import (
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// kind is what sandbox a command asks for. Empty parts leave it to the worker.
type kind struct {
	provider string
	image    string
}

// auto is the provider's name by which a caller leaves it to the worker in so many words.
const auto = "auto"

func kindOf(c *schemas.Command) kind { return kind{c.Provider, c.Image} }

// resolve is the kind of sandbox that a request for this one gets. Errors: unavailable where the worker has no default,
// permission_denied where it does not offer the provider that is asked for, invalid_argument for an image that this provider has
// no use for.
func (w *Worker) resolve(k kind) (kind, error) {
	if k.provider == "" || k.provider == auto {
		k.provider = w.cfg.DefaultProvider
		if k.image != "" && w.cfg.ImageProvider != "" {
			k.provider = w.cfg.ImageProvider
		}
	}
	switch {
	case k.provider == "":
		return k, schemas.Errorf(schemas.CodeUnavailable, "worker %s has no provider that isolates: ask for --provider local (it isolates nothing), or see `sluice doctor`", w.cfg.Worker)
	case w.cfg.Providers[k.provider] == nil:
		return k, schemas.Errorf(schemas.CodePermissionDenied, "worker %s does not offer provider %q: start it with --provider %s, or see `sluice doctor`", w.cfg.Worker, k.provider, k.provider)
	case k.image != "" && k.provider != w.cfg.ImageProvider:
		return k, schemas.Errorf(schemas.CodeInvalidArgument, "image: provider %s of worker %s makes no sandboxes from images: ask for --provider docker, or name no image", k.provider, w.cfg.Worker).With("path", "image")
	case k.image == "" && k.provider == w.cfg.ImageProvider:
		k.image = w.cfg.Image
	}
	return k, nil
}

// fits says whether a session's sandbox is of the kind that is asked for. Errors: conflict.
func (k kind) fits(s *schemas.Session) error {
	if k.provider != "" && k.provider != auto && k.provider != s.Provider {
		return schemas.Errorf(schemas.CodeConflict, "thread %s has a session with provider %s, not %s: use another thread, or stop that session first", s.Thread, s.Provider, k.provider)
	}
	if k.image != "" && k.image != s.Image {
		has := "made from image " + s.Image
		if s.Image == "" {
			has = "of provider " + s.Provider + ", made from no image"
		}
		return schemas.Errorf(schemas.CodeConflict, "thread %s has a sandbox %s, not from %s: use another thread, or stop that session first", s.Thread, has, k.image)
	}
	return nil
}

// creation is how long the thread's sandbox may take to be made, where its template does not say.
func (w *Worker) creation(t *thread) time.Duration {
	if t.session.Image != "" {
		return w.cfg.patience.pull
	}
	return w.cfg.patience.start
}
