package jail

import (
	"path/filepath"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// Config configures a Provider.
type Config struct {
	// RunDir is the folder for sockets and the files of jails. It is created with mode 0700. It must be absolute, owned by this user,
	// used by no other worker, and at most maxRunDir bytes long, because the path of a unix socket is bounded. Required.
	RunDir string
	// Warn receives the limits that this machine cannot enforce, in at most one call from New, and from Attach why a jail could not be
	// taken over. Default: no warning.
	Warn func(string)
	// ReattachWindow is how long a jail waits for another Provider after this process has died. Default sandbox.ReattachWindow;
	// negative: the jail ends at once.
	ReattachWindow time.Duration
	// Pool is the number of jails that Run prestarts and Create keeps ready, for root; an ordinary user has none. Each costs 0.2 MB
	// and a few hundred KiB in the kernel. Default: two, from the second jail on.
	Pool int
	// programDir has the supervisor's program, which Check shares with the worker. Default: RunDir.
	programDir string
	// withoutEtc omits /etc: Check starts a jail but runs nothing in it.
	withoutEtc bool
}

// Support is what Check found.
type Support struct {
	// Limits describes the limits that this machine enforces.
	Limits string
	// Partial reports that some limits are not enforced; Limits then says which, and why.
	Partial bool
}

// maxRunDir leaves room for a socket's name: sun_path holds 108 bytes, the last of them zero.
const maxRunDir = 107 - len("/0123456789abcdef0123.sock")

// Validate checks the configuration. Errors: invalid_argument.
func (c *Config) Validate() error {
	switch {
	case !filepath.IsAbs(c.RunDir):
		return schemas.Errorf(schemas.CodeInvalidArgument, "run folder: %q is not an absolute path", c.RunDir)
	case len(filepath.Clean(c.RunDir)) > maxRunDir:
		return schemas.Errorf(schemas.CodeInvalidArgument, "run folder: %q is too long: use at most %d bytes (a unix socket's path has at most 107)",
			c.RunDir, maxRunDir)
	}
	if c.Pool < 0 {
		return schemas.Errorf(schemas.CodeInvalidArgument, "pool: %d is negative", c.Pool)
	}
	return nil
}
