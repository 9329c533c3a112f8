package pool

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Config configures a Pool.
type Config struct {
	// Provider creates the sandboxes. They must be Rebinders, or none is kept ready. The Pool closes it. Required.
	Provider sandbox.Provider
	// Dir is the folder for the members' workspaces, created with mode 0700: an absolute path, used by no other Pool, and on the
	// file system of the sessions' workspaces (on another one every claim is a miss). Required.
	Dir string
	// Templates are the kinds of sandbox to keep ready. A Spec that matches none goes to the Provider.
	Templates []Template
	// Max is the number of sandboxes at a time: in use, ready and being created. Default 0: no limit.
	Max int
	// Parallel is the number of members created at a time. Default 2.
	Parallel int
	// Ready checks a new member; an error ends the member. Default: a supervisor that answers is enough.
	Ready func(ctx context.Context, s sandbox.Sandbox) error
	// Retry is the wait after a member could not be created. It doubles with each failure, up to 32 times this. Default 1 s.
	Retry time.Duration
	// Warn gets the errors of creating and claiming members. Default: they are dropped.
	Warn func(error)
}

// Template is a kind of sandbox to keep ready, for Specs with the same Image, Network and Limits.
type Template struct {
	// Image, Network and Limits are the Spec's.
	Image   string
	Network schemas.Network
	Limits  sandbox.Limits
	// Size is the number of members kept ready. Default 10.
	Size int
}

// DefaultSize is the default of Template.Size.
const DefaultSize = 10

const (
	defaultParallel = 2
	defaultRetry    = time.Second
	maxRetry        = 32 // times Config.Retry
)

// Rebinder is a sandbox that can be bound to a session after its creation: it gets the Spec's id, thread and environment, and keeps
// its workspace folder, which has been renamed to the Spec's. Nothing has run in it. After an error the sandbox is not usable.
type Rebinder interface {
	Rebind(spec sandbox.Spec) error
}

// Validate returns invalid_argument for a configuration that is not valid.
func (c *Config) Validate() error {
	switch {
	case c.Provider == nil:
		return schemas.Errorf(schemas.CodeInvalidArgument, "pool: provider is required")
	case !filepath.IsAbs(c.Dir):
		return schemas.Errorf(schemas.CodeInvalidArgument, "pool: folder: %q is not an absolute path", c.Dir)
	case c.Max < 0 || c.Parallel < 0 || c.Retry < 0:
		return schemas.Errorf(schemas.CodeInvalidArgument, "pool: max, parallel and retry must not be negative")
	}
	seen := make(map[templateKey]bool)
	for _, t := range c.Templates {
		k := keyOf(t.Image, t.Network, t.Limits)
		switch {
		case t.Size < 0:
			return schemas.Errorf(schemas.CodeInvalidArgument, "pool: size of image %q is negative: %d", t.Image, t.Size)
		case seen[k]:
			return schemas.Errorf(schemas.CodeInvalidArgument, "pool: two templates have image %q, and the same network and limits", t.Image)
		}
		seen[k] = true
	}
	return nil
}

func (c Config) withDefaults() Config {
	c.Dir = filepath.Clean(c.Dir)
	c.Parallel = cmp.Or(c.Parallel, defaultParallel)
	c.Retry = cmp.Or(c.Retry, defaultRetry)
	if c.Ready == nil {
		c.Ready = func(context.Context, sandbox.Sandbox) error { return nil }
	}
	if c.Warn == nil {
		c.Warn = func(error) {}
	}
	return c
}
