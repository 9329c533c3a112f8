package local

import (
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// Config says how a Provider works.
type Config struct {
	// RunDir is the folder for sockets and the extracted supervisor; created with mode 0700. It must be absolute, the
	// user's own, and at most maxRunDir bytes long, since the path of a unix socket is bounded. Required.
	RunDir string
	// Supervisor is the command that is a supervisor. Default: the embedded one; where none is embedded, this program
	// with the argument "supervisor", which must then call supervisor.Main.
	Supervisor []string
	// ReattachWindow is how long a sandbox waits for another Provider when this one's process has died. Default sandbox.ReattachWindow; negative: it
	// ends at once.
	ReattachWindow time.Duration
	// Warn gets Warning once, from New. Required, so that nobody uses this provider unawares.
	Warn func(string)
}

// socketLength is the length of "/" and a socket's file name.
const socketLength = 1 + 20 + len(".sock")

// maxRunDir is what is left for the folder: sun_path holds 108 bytes on Linux and 104 on darwin, with a zero at the end.
func maxRunDir() int {
	if runtime.GOOS == "linux" {
		return 107 - socketLength
	}
	return 103 - socketLength
}

// Validate says what is wrong with the configuration: invalid_argument, or nil.
func (c *Config) Validate() error {
	switch {
	case !filepath.IsAbs(c.RunDir):
		return schemas.Errorf(schemas.CodeInvalidArgument, "run folder: %q is not an absolute path", c.RunDir)
	case len(filepath.Clean(c.RunDir)) > maxRunDir():
		return schemas.Errorf(schemas.CodeInvalidArgument, "run folder: %q is too long: a unix socket in it may have %d bytes in all, so it may have %d",
			c.RunDir, maxRunDir()+socketLength, maxRunDir())
	case c.Warn == nil:
		return schemas.Errorf(schemas.CodeInvalidArgument, "warn: this provider isolates nothing, and somebody must be told")
	}
	return nil
}

// self is this program as a supervisor.
func self() ([]string, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "find this program to run it as the supervisor: %w", err)
	}
	return []string{path, "supervisor"}, nil
}
