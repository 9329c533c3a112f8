package jail

import (
	"path/filepath"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// Name is what --provider and templates call this provider.
const Name = "jail"

// Config says how a Provider works.
type Config struct {
	// RunDir is the folder for sockets and what jails are made of; created with mode 0700. It must be absolute, the user's
	// own, no other worker's, and at most maxRunDir bytes long, since the path of a unix socket is bounded. Required.
	RunDir string
	// Warn is told what limits cannot be enforced here; at most once, from New. Default: nobody is.
	Warn func(string)
	// ReattachWindow is how long a jail waits for another Provider when this one's process has died. Default sandbox.ReattachWindow; negative: it
	// ends at once.
	ReattachWindow time.Duration
	// bare leaves /etc out: to see whether jails can be started, nothing in them is needed.
	bare bool
}

// maxRunDir is what is left for the folder: sun_path holds 108 bytes, with a zero at the end.
const maxRunDir = 107 - len("/0123456789abcdef0123.sock")

// Validate says what is wrong with the configuration: invalid_argument, or nil.
func (c *Config) Validate() error {
	switch {
	case !filepath.IsAbs(c.RunDir):
		return schemas.Errorf(schemas.CodeInvalidArgument, "run folder: %q is not an absolute path", c.RunDir)
	case len(filepath.Clean(c.RunDir)) > maxRunDir:
		return schemas.Errorf(schemas.CodeInvalidArgument, "run folder: %q is too long: a unix socket in it may have 107 bytes in all, so it may have %d",
			c.RunDir, maxRunDir)
	}
	return nil
}
