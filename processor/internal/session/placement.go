package session

import (
	"cmp"
	"encoding/json"
	"errors"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/schemas"
)

// Placement is the sandbox that a command asks for. Empty fields leave the choice to the worker.
type Placement struct {
	Provider string
	Image    string
}

// offer is what a worker offers to sessions: providers, images and templates.
type offer struct{ cfg *Config }

// unserved marks an error with which this worker declines what another worker may serve.
func (of offer) unserved(err *schemas.Error) *schemas.Error {
	if of.cfg.Temporary {
		return err
	}
	return err.With(schemas.DetailDeclined, schemas.DeclinedUnserved)
}

// resolve fills in what a request leaves to the worker. Errors that another worker may not have, see unserved: unavailable when the
// worker has no default provider, permission_denied when it does not offer the one that is asked for, invalid_argument when its default
// provider uses no images. Invalid_argument for the image of a provider that never uses one.
func (of offer) resolve(p Placement) (Placement, error) {
	cfg, worker := of.cfg, of.cfg.Publisher.Worker
	named := p.Provider != "" && p.Provider != schemas.ProviderAuto
	if p.Provider == "" || p.Provider == schemas.ProviderAuto {
		p.Provider = cfg.DefaultProvider
		if p.Image != "" && cfg.ImageProvider != "" {
			p.Provider = cfg.ImageProvider
		}
	}
	switch {
	case p.Provider == "":
		return p, of.unserved(schemas.Errorf(schemas.CodeUnavailable, "worker %s has no provider that isolates: ask for --provider local (it isolates nothing), or see `sluice doctor`", worker).With("path", pathProvider))
	case cfg.Providers[p.Provider] == nil:
		return p, of.unserved(schemas.Errorf(schemas.CodePermissionDenied, "worker %s does not offer provider %q: start it with --provider %s, or see `sluice doctor`", worker, p.Provider, p.Provider).With("path", pathProvider))
	case p.Image != "" && p.Provider != cfg.ImageProvider:
		err := schemas.Errorf(schemas.CodeInvalidArgument, "image: provider %s of worker %s creates no sandboxes from images: ask for --provider docker, or name no image", p.Provider, worker).With("path", "image")
		if !named {
			err = of.unserved(err)
		}
		return p, err
	case p.Image == "" && p.Provider == cfg.ImageProvider:
		p.Image = cfg.Image
	}
	return p, nil
}

// pathProvider is the detail "path" of an error about the provider.
const pathProvider = "provider"

// Unserved reports that a claim failed because of what this worker lacks: another worker may serve the command.
func Unserved(err error) bool {
	e, ok := errors.AsType[*schemas.Error](err)
	return ok && e.Details[schemas.DetailDeclined] == schemas.DeclinedUnserved
}

// Full reports that a claim failed because this worker has no room for another sandbox of the tenant: another worker may have it.
func Full(err error) bool {
	e, ok := errors.AsType[*schemas.Error](err)
	return ok && e.Details[schemas.DetailDeclined] == schemas.DeclinedFull
}

// template returns a template. Errors, which another worker may not have: not_found; permission_denied for one that is switched off.
func (of offer) template(name string) (*schemas.Template, error) {
	t, err := of.cfg.Template(name)
	if errors.Is(err, schemas.ErrNotFound) || errors.Is(err, schemas.ErrPermissionDenied) {
		return nil, of.unserved(schemas.AsError(err))
	}
	return t, err
}

// allowed checks that the operator allows a tenant what a session has. The operator's own images, the template's and the worker's, need
// no entry. Errors: those of Lists.
func (of offer) allowed(tenant string, t *schemas.Template, image string) error {
	if of.cfg.Allow == nil {
		return nil
	}
	if image == t.Image || image == of.cfg.Image {
		image = ""
	}
	return of.cfg.Allow.Check(tenant, t.Name, cmp.Or(t.Network, of.cfg.Network, schemas.NetworkNone), image)
}

// fill sets a session's template, provider, image and source of the workspace, and the deadline. Errors: those of the template, of its
// source and of resolve.
func (of offer) fill(s *schemas.Session, name string, want *Request, lifetimeMS int64) error {
	template, err := of.template(name)
	if err != nil {
		return err
	}
	p := want.Placement
	if p.Provider == "" || p.Provider == schemas.ProviderAuto {
		p.Provider = template.Provider
	}
	p.Image = cmp.Or(p.Image, template.Image)
	if p, err = of.resolve(p); err != nil {
		return err
	}
	from, err := template.Workspace.Source(want.Origin.Labels)
	if err != nil {
		return err
	}
	s.Template, s.Provider, s.Image, s.From = template.Name, p.Provider, p.Image, from
	if lifetime := cmp.Or(lifetimeMS, template.Session.MaxLifetimeMS); lifetime > 0 {
		s.Deadline = s.Created.Add(time.Duration(lifetime) * time.Millisecond)
	}
	return nil
}

// newSession makes the session of a thread that has none. Errors: those of the template and of resolve, session_expired, not_found.
func (of offer) newSession(tenant, thread string, want *Request, now time.Time) (*schemas.Session, error) {
	switch {
	case want.Session != "":
		return nil, schemas.Errorf(schemas.CodeSessionExpired, "session %.128s of thread %s has ended: leave the session out to get a new one", want.Session, thread)
	case want.Existing:
		return nil, schemas.Errorf(schemas.CodeNotFound, "thread %s has no session: it never had one, or it has ended", thread)
	}
	s := &schemas.Session{
		ID: ulid.Make().String(), Tenant: tenant, Thread: thread, User: want.User, Tags: want.Tags, Created: now, IdleTimeoutMS: want.IdleTimeoutMS,
	}
	return s, of.fill(s, want.Template, want, want.LifetimeMS)
}

// Unreadable reports that a claim failed because the entry of the thread's session does not decode: another claim fails as well.
func Unreadable(err error) bool {
	e, ok := errors.AsType[*schemas.Error](err)
	return ok && e.Details[schemas.DetailUnreadable] != ""
}

// fits returns nil when a session's sandbox has this placement. Errors: conflict.
func (p Placement) fits(s *schemas.Session) error {
	if p.Provider != "" && p.Provider != schemas.ProviderAuto && p.Provider != s.Provider {
		return schemas.Errorf(schemas.CodeConflict, "thread %s has a session with provider %s, not %s: %s", s.Thread, s.Provider, p.Provider, wayOut(s.Thread))
	}
	if p.Image != "" && p.Image != s.Image {
		has := "created from image " + s.Image
		if s.Image == "" {
			has = "of provider " + s.Provider + ", created from no image"
		}
		return schemas.Errorf(schemas.CodeConflict, "thread %s has a sandbox %s, not from %s: %s", s.Thread, has, p.Image, wayOut(s.Thread))
	}
	return nil
}

// ownership is the record with which a sandbox names its session, for the next incarnation of its worker.
type ownership struct {
	Tenant  string `json:"tenant"`
	Session string `json:"session"`
	Epoch   uint64 `json:"epoch"`
	// Cold is set until the hooks of the sandbox's cold start have completed: no command has run in it.
	Cold bool `json:"cold,omitempty"`
}

func ownershipOf(t *Thread) ownership {
	return ownership{Tenant: t.Tenant, Session: t.Session.ID, Epoch: t.Session.Epoch}
}

// String is the record as a sandbox stores it.
func (o ownership) String() string {
	body, _ := json.Marshal(o) // it holds strings and a number alone
	return string(body)
}

func parseOwnership(s string) (o ownership, ok bool) {
	return o, json.Unmarshal([]byte(s), &o) == nil && schemas.ValidID(o.Tenant)
}

// fits reports whether the sandbox can go on: its cold start has completed, and no other worker has owned the session since the record
// was stored. The record may be one epoch ahead: it is stored before the session is.
func (o ownership) fits(s *schemas.Session, worker string) bool {
	return !o.Cold && s.ID == o.Session && s.Owner == worker && (s.Epoch == o.Epoch || s.Epoch+1 == o.Epoch)
}
