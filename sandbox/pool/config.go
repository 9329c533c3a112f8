package pool

import (
	"context"
	"path/filepath"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Config says how a Pool works.
type Config struct {
	// Provider makes the sandboxes. Its sandboxes must be Rebinders, or none is kept ready. The Pool closes it. Required.
	Provider sandbox.Provider
	// Dir is the folder for the members' workspaces, created with mode 0700: absolute, on the file system of the sessions'
	// workspaces (elsewhere every claim is a miss), and no other Pool's. Required.
	Dir string
	// Templates say what to keep ready. Specs that fit none are passed on to the Provider.
	Templates []Template
	// Max is how many sandboxes there may be at a time: in use, ready and being made. Default 0: any number.
	Max int
	// Parallel is how many members are made at a time. Default 2.
	Parallel int
	// Ready is asked before a member counts as ready; an error ends the member. Default: its supervisor answering is enough.
	Ready func(ctx context.Context, s sandbox.Sandbox) error
	// Retry is the wait after a member could not be made; it doubles up to 32 times that. Default 1 s.
	Retry time.Duration
	// Warn is told why a member could not be made or claimed. Default: nobody is.
	Warn func(error)
}

// Template is a kind of sandbox to keep ready, for the Specs with the same Image and Limits.
type Template struct {
	// Image and Limits are the Spec's.
	Image  string
	Limits sandbox.Limits
	// Size is how many are kept ready. Default 10.
	Size int
}

// DefaultSize is how many of a template are kept ready where nothing else is said.
const DefaultSize = 10

const (
	defaultParallel = 2
	defaultRetry    = time.Second
	maxRetry        = 32 // times the first
)

// Rebinder is a sandbox that can be made a session's after it was created: its id, thread and environment become the
// Spec's, and its workspace is the folder it has, which has been renamed to the Spec's. Nothing has run in it. When Rebind
// fails, the sandbox is of no more use.
type Rebinder interface {
	Rebind(spec sandbox.Spec) error
}

// Validate says what is wrong with the configuration: invalid_argument, or nil.
func (c *Config) Validate() error {
	switch {
	case c.Provider == nil:
		return schemas.Errorf(schemas.CodeInvalidArgument, "pool: there is no provider")
	case !filepath.IsAbs(c.Dir):
		return schemas.Errorf(schemas.CodeInvalidArgument, "pool: folder: %q is not an absolute path", c.Dir)
	case c.Max < 0 || c.Parallel < 0 || c.Retry < 0:
		return schemas.Errorf(schemas.CodeInvalidArgument, "pool: a number is negative")
	}
	seen := make(map[kind]bool)
	for _, t := range c.Templates {
		k := kind{t.Image, t.Limits}
		switch {
		case t.Size < 0:
			return schemas.Errorf(schemas.CodeInvalidArgument, "pool: size: %d of image %q", t.Size, t.Image)
		case seen[k]:
			return schemas.Errorf(schemas.CodeInvalidArgument, "pool: two templates have image %q and the same limits", t.Image)
		}
		seen[k] = true
	}
	return nil
}

func (c Config) withDefaults() Config {
	c.Dir = filepath.Clean(c.Dir)
	if c.Parallel == 0 {
		c.Parallel = defaultParallel
	}
	if c.Retry == 0 {
		c.Retry = defaultRetry
	}
	if c.Ready == nil {
		c.Ready = func(context.Context, sandbox.Sandbox) error { return nil }
	}
	if c.Warn == nil {
		c.Warn = func(error) {}
	}
	return c
}
