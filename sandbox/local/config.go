package local

import (
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// Config configures a Provider.
type Config struct {
	// RunDir is the folder for sockets and the extracted supervisor; created with mode 0700. An absolute path, owned by this user,
	// and at most maxRunDir bytes long, because the path of a unix socket is bounded. Required.
	RunDir string
	// Supervisor is the command that runs a supervisor. Default: the embedded one; when none is embedded, this program with the
	// argument "supervisor", which must then call supervisor.Main.
	Supervisor []string
	// ReattachWindow is how long a sandbox waits for another Provider after this one's process has died. Default
	// sandbox.ReattachWindow; negative: it ends at once.
	ReattachWindow time.Duration
	// Warn is called by New, with Warning, and by Attach with why a sandbox could not be taken over. Required, so that this provider is
	// not used by accident.
	Warn func(string)
}

// socketLength is the length of "/" and the file name of a socket.
const socketLength = 1 + 20 + len(".sock")

// maxRunDir is the length that remains for the folder: sun_path has 108 bytes on Linux and 104 on darwin, including the final zero.
func maxRunDir() int {
	if runtime.GOOS == "linux" {
		return 107 - socketLength
	}
	return 103 - socketLength
}

// Validate returns invalid_argument for a configuration that is not valid.
func (c *Config) Validate() error {
	switch {
	case !filepath.IsAbs(c.RunDir):
		return schemas.Errorf(schemas.CodeInvalidArgument, "run folder: %q is not an absolute path", c.RunDir)
	case len(filepath.Clean(c.RunDir)) > maxRunDir():
		return schemas.Errorf(schemas.CodeInvalidArgument, "run folder: %q is too long: use at most %d bytes, because the path of a unix socket in it is limited to %d",
			c.RunDir, maxRunDir(), maxRunDir()+socketLength)
	case c.Warn == nil:
		return schemas.Errorf(schemas.CodeInvalidArgument, "warn: required, because this provider isolates nothing")
	}
	return nil
}

// ownProgram is the command that runs this program as the supervisor.
func ownProgram() ([]string, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "find this program to run it as the supervisor: %w", err)
	}
	return []string{path, "supervisor"}, nil
}
