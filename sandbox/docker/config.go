package docker

import (
	"context"
	"path/filepath"
	"regexp"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/registry"
	"github.com/sluice-dev/sluice/schemas"
)

// Config says how a Provider works.
type Config struct {
	// RunDir is the folder for sockets and the supervisor, in a folder docker of its own; created with mode 0700. Absolute, and
	// at most 72 bytes long, since the path of a unix socket is bounded. The engine must see it at the same path. Required.
	RunDir string
	// Image is for a Spec that names none. Default: such a Spec is refused.
	Image string
	// Cell and Worker label the containers, and tell Run which ones are this worker's to remove. Default: "local" each.
	Cell, Worker string
	// Host is the engine's address, as DOCKER_HOST has it. Default: DOCKER_HOST of the environment, or the local engine.
	Host string
	// Runtime is the engine's name of an OCI runtime, like runsc. Default: the engine's own default.
	Runtime string
	// UID and GID are the user in the container. The workspace is given to it. Default: 10001 each where the worker is
	// root; otherwise the worker's own, since it could not give its files away.
	UID, GID int
	// Limits are for a Spec that has none, field by field. Default: sandbox.Limits' own.
	Limits sandbox.Limits
	// Pulling is told the progress of an image's pull, from one goroutine at a time. Default: nobody is.
	Pulling func(Progress)
	// Live says which sandboxes, by Spec.ID, must not be removed though this Provider did not make them. Default: none.
	Live func(ctx context.Context) (map[string]bool, error)
	// SweepEvery is how often Run looks for containers that nobody owns. Default 1 min.
	SweepEvery time.Duration
	// StartTimeout is how long creating a container may take, without the pull of its image. Default 30 s.
	StartTimeout time.Duration
	// PullTimeout is how long pulling an image may take. Default 10 min.
	PullTimeout time.Duration
	// ReattachWindow is how long a container waits for another Provider when this one's process has died. Default sandbox.ReattachWindow; negative:
	// it ends at once.
	ReattachWindow time.Duration
	// Warn is told what went wrong with nobody to return it to, like a container that could not be removed. Default: nobody is.
	Warn func(error)
}

// Progress is how far the pull of an image has come.
type Progress struct {
	// Image is what is pulled; Layer the part of it that this is about, empty for the whole.
	Image, Layer string
	// Status is the engine's word for what it does: Downloading, Extracting, Pull complete.
	Status string
	// Current of Total bytes are done; both 0 where the engine does not count.
	Current, Total int64
}

// The defaults of Limits.
const (
	defaultMemory = 512 << 20
	defaultCPUs   = 1
	defaultPIDs   = 256
	defaultTmp    = 64 << 20
)

// sandboxUser is the id of the user in the container where the worker is root. It is nobody's on the usual systems.
const sandboxUser = 10001

// socketName is the length of "/docker/" and a socket's file name.
const socketName = len("/docker/") + 20 + len(".sock") + 2

// maxRunDir leaves room in sun_path, which holds 108 bytes with a zero at the end.
const maxRunDir = 107 - socketName

var labelValue = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)

// Validate says what is wrong with the configuration: invalid_argument, or nil.
func (c *Config) Validate() error {
	switch {
	case !filepath.IsAbs(c.RunDir):
		return schemas.Errorf(schemas.CodeInvalidArgument, "run folder: %q is not an absolute path", c.RunDir)
	case len(filepath.Clean(c.RunDir)) > maxRunDir:
		return schemas.Errorf(schemas.CodeInvalidArgument, "run folder: %q is too long: a unix socket's path is bounded, so it may have %d bytes",
			c.RunDir, maxRunDir)
	case c.Cell != "" && !labelValue.MatchString(c.Cell):
		return schemas.Errorf(schemas.CodeInvalidArgument, "cell: %q is not a name", c.Cell)
	case c.Worker != "" && !labelValue.MatchString(c.Worker):
		return schemas.Errorf(schemas.CodeInvalidArgument, "worker: %q is not a name", c.Worker)
	case c.UID < 0 || c.GID < 0:
		return schemas.Errorf(schemas.CodeInvalidArgument, "user: %d:%d is not one", c.UID, c.GID)
	case c.SweepEvery < 0 || c.StartTimeout < 0 || c.PullTimeout < 0:
		return schemas.Errorf(schemas.CodeInvalidArgument, "a time is negative")
	}
	return checkLimits(c.Limits)
}

// withDefaults fills in what is not set, for a worker that is this user.
func (c Config) withDefaults(uid, gid int) Config {
	c.RunDir = filepath.Clean(c.RunDir)
	if c.Cell == "" {
		c.Cell = "local"
	}
	if c.Worker == "" {
		c.Worker = "local"
	}
	if c.UID == 0 {
		if c.UID = uid; uid == 0 {
			c.UID = sandboxUser
		}
	}
	if c.GID == 0 {
		if c.GID = gid; gid == 0 {
			c.GID = sandboxUser
		}
	}
	c.Limits = limits(c.Limits, sandbox.Limits{MemoryBytes: defaultMemory, CPUs: defaultCPUs, PIDs: defaultPIDs, TmpBytes: defaultTmp})
	if c.Pulling == nil {
		c.Pulling = func(Progress) {}
	}
	if c.Live == nil {
		c.Live = func(context.Context) (map[string]bool, error) { return nil, nil }
	}
	if c.Warn == nil {
		c.Warn = func(error) {}
	}
	c.ReattachWindow = registry.ReattachWindow(c.ReattachWindow)
	if c.SweepEvery == 0 {
		c.SweepEvery = time.Minute
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = 30 * time.Second
	}
	if c.PullTimeout == 0 {
		c.PullTimeout = 10 * time.Minute
	}
	return c
}

// limits takes from l what is set, and the rest from below.
func limits(l, below sandbox.Limits) sandbox.Limits {
	if l.MemoryBytes == 0 {
		l.MemoryBytes = below.MemoryBytes
	}
	if l.CPUs == 0 {
		l.CPUs = below.CPUs
	}
	if l.PIDs == 0 {
		l.PIDs = below.PIDs
	}
	if l.TmpBytes == 0 {
		l.TmpBytes = below.TmpBytes
	}
	if l.WorkspaceBytes == 0 {
		l.WorkspaceBytes = below.WorkspaceBytes
	}
	if l.WorkspaceFiles == 0 {
		l.WorkspaceFiles = below.WorkspaceFiles
	}
	if l.FileBytes == 0 {
		l.FileBytes = below.FileBytes
	}
	return l
}

// minMemory is the least an engine lets a container have.
const minMemory = 6 << 20

func checkLimits(l sandbox.Limits) error {
	switch {
	case l.MemoryBytes < 0 || l.CPUs < 0 || l.PIDs < 0 || l.TmpBytes < 0 || l.WorkspaceBytes < 0 || l.WorkspaceFiles < 0 || l.FileBytes < 0:
		return schemas.Errorf(schemas.CodeInvalidArgument, "limits: a limit is negative").With("path", "limits")
	case l.MemoryBytes > 0 && l.MemoryBytes < minMemory:
		return schemas.Errorf(schemas.CodeInvalidArgument, "limits: %d bytes of memory are too few: at least %d", l.MemoryBytes, minMemory).With("path", "limits")
	}
	return nil
}
