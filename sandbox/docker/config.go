package docker

import (
	"cmp"
	"path/filepath"
	"regexp"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/registry"
	"github.com/sluice-dev/sluice/schemas"
)

// Config configures a Provider.
type Config struct {
	// RunDir is the folder for the subfolder docker, which holds sockets and the supervisor; created with mode 0700. An absolute
	// path of at most 72 bytes, because the path of a unix socket is bounded. The engine must see it at the same path. Required.
	RunDir string
	// Image is the image of a Spec that names none. Default: such a Spec is refused.
	Image string
	// Cell and Worker label the containers, as RunDir does. Run removes only containers with these labels, and does not remove what runs
	// for a Provider with another RunDir. Default: "local" each.
	Cell, Worker string
	// Host is the engine's address in the form of DOCKER_HOST. Default: DOCKER_HOST of the environment, or the local engine.
	Host string
	// Runtime is the engine's name of an OCI runtime, like runsc. Default: the engine's.
	Runtime string
	// Limits replace the zeros in a Spec's limits. Default: sandbox.DefaultLimits.
	Limits sandbox.Limits
	// OnPull gets the progress of an image's pull, from one goroutine at a time. Default: it is dropped.
	OnPull func(Progress)
	// SweepInterval is the time between two sweeps of Run. Default 1 min.
	SweepInterval time.Duration
	// StartTimeout bounds the creation of a container, without the pull of its image. Default 30 s.
	StartTimeout time.Duration
	// PullTimeout bounds the pull of an image. Default 10 min.
	PullTimeout time.Duration
	// ReattachWindow is how long a container waits for another Provider after this one's process has died. Default
	// sandbox.ReattachWindow; negative: it ends at once.
	ReattachWindow time.Duration
	// Warn gets errors that no call returns, like a container that could not be removed. Default: they are dropped.
	Warn func(error)
}

// Progress is the progress of an image's pull.
type Progress struct {
	// Layer is the layer of the Image; empty for the whole image.
	Image, Layer string
	// Status is the engine's text: Downloading, Extracting, Pull complete.
	Status string
	// Current of Total bytes are done; both are 0 when the engine does not report bytes.
	Current, Total int64
}

// socketLength is the length of "/docker/" and the file name of a socket.
const socketLength = len("/docker/") + 20 + len(".sock") + 2

// maxRunDir is the length that remains for the folder: sun_path has 108 bytes, including the final zero.
const maxRunDir = 107 - socketLength

var labelValue = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)

// Validate returns invalid_argument for a configuration that is not valid.
func (c *Config) Validate() error {
	switch {
	case !filepath.IsAbs(c.RunDir):
		return schemas.Errorf(schemas.CodeInvalidArgument, "run folder: %q is not an absolute path", c.RunDir)
	case len(filepath.Clean(c.RunDir)) > maxRunDir:
		return schemas.Errorf(schemas.CodeInvalidArgument, "run folder: %q is too long: use at most %d bytes, because the path of a unix socket is limited",
			c.RunDir, maxRunDir)
	case c.Cell != "" && !labelValue.MatchString(c.Cell):
		return schemas.Errorf(schemas.CodeInvalidArgument, "cell: %q is not a valid name: use letters, digits, _, . and -", c.Cell)
	case c.Worker != "" && !labelValue.MatchString(c.Worker):
		return schemas.Errorf(schemas.CodeInvalidArgument, "worker: %q is not a valid name: use letters, digits, _, . and -", c.Worker)
	case c.SweepInterval < 0 || c.StartTimeout < 0 || c.PullTimeout < 0:
		return schemas.Errorf(schemas.CodeInvalidArgument, "sweep interval, start timeout and pull timeout must not be negative")
	}
	return checkLimits(c.Limits)
}

func (c Config) withDefaults() Config {
	c.RunDir = filepath.Clean(c.RunDir)
	c.Cell = cmp.Or(c.Cell, "local")
	c.Worker = cmp.Or(c.Worker, "local")
	c.Limits = c.Limits.Or(sandbox.DefaultLimits())
	if c.OnPull == nil {
		c.OnPull = func(Progress) {}
	}
	if c.Warn == nil {
		c.Warn = func(error) {}
	}
	c.ReattachWindow = registry.ReattachWindow(c.ReattachWindow)
	c.SweepInterval = cmp.Or(c.SweepInterval, time.Minute)
	c.StartTimeout = cmp.Or(c.StartTimeout, 30*time.Second)
	c.PullTimeout = cmp.Or(c.PullTimeout, 10*time.Minute)
	return c
}

// minMemory is the least memory that an engine accepts.
const minMemory = 6 << 20

func checkLimits(l sandbox.Limits) error {
	if err := l.Validate(); err != nil {
		return err
	}
	if l.MemoryBytes > 0 && l.MemoryBytes < minMemory {
		return schemas.Errorf(schemas.CodeInvalidArgument, "limits: memory is %d bytes; docker needs at least %d", l.MemoryBytes, minMemory).With("path", "limits")
	}
	return nil
}
