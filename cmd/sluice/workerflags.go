package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/internal/node"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// workerFlags are the flags that up and worker share.
type workerFlags struct {
	*globals
	provider  string
	image     string
	runtime   string
	limits    sandbox.Limits
	network   string
	pool      int
	topology  events.Topology
	processes int
	ofTenant  int
	ofThread  int
	quotas    processor.Quotas
	grace     time.Duration
	idle      time.Duration
	keep      time.Duration // of workspaces; 0 for without an end
	private   bool
	sealKeys  string
	metrics   string
	logFormat string
	logLevel  string
}

// The documented sizes of the pool.
const (
	standalonePool = 10 // of up
	fleetPool      = 5  // of each worker
)

// maxPlaces is the largest value of --max-processes, --max-sessions and --max-sandboxes, far above what a machine holds.
const maxPlaces = 1_000_000

// addTo adds the flags; pool is the default of --pool.
func (w *workerFlags) addTo(c *cobra.Command, pool int) {
	providerFlag(c, &w.provider, cmp.Or(w.Getenv("SLUICE_PROVIDER"), schemas.ProviderAuto), " (SLUICE_PROVIDER)")
	w.limitFlags(c, &w.limits, &w.network)
	graceFlag(c, &w.grace, 10*time.Second, ", for processes that run at shutdown")
	f := c.Flags()
	idle, err := fromEnv(w.Main, "SESSION_TIMEOUT_MINUTES", 0, unitsOf(int64(time.Minute)))
	idleTimeoutFlag(c, &w.idle, cmp.Or(time.Duration(idle), 30*time.Minute), " (SESSION_TIMEOUT_MINUTES)")
	annotate(f, "idle-timeout", err)
	keep, err := fromEnv(w.Main, "SLUICE_KEEP_WORKSPACES", 24*time.Hour, duration)
	spanVar(f, &w.keep, "keep-workspaces", keep, "time `DURATION` that a workspace is kept after its session; 0 for without an end (SLUICE_KEEP_WORKSPACES)")
	annotate(f, "keep-workspaces", err)
	f.StringVar(&w.image, "image", w.Getenv("SLUICE_IMAGE"), "default `IMAGE` of containers, with provider "+node.ImageProvider()+" (SLUICE_IMAGE)")
	f.StringVar(&w.runtime, "runtime", "", "OCI `RUNTIME` of containers, as the engine names it, such as runsc; needs --provider docker; default: the engine's")
	ready, err := fromEnv(w.Main, "POOL_SIZE", int64(pool), wholeNumber)
	f.IntVar(&w.pool, "pool", int(ready), "number `N` of sandboxes kept ready: jails, for root, and containers of --image (POOL_SIZE)")
	annotate(f, "pool", err)
	f.IntVar(&w.processes, "max-processes", 256, "most processes `N` that run at once; further commands are refused")
	f.IntVar(&w.ofTenant, "tenant-processes", 0, "most processes `N` of one tenant; default 0: seven times what it leaves free of --max-processes")
	f.IntVar(&w.ofThread, "thread-processes", 0, "most processes `N` of one thread; default 0: seven times what it leaves free to its tenant")
	f.IntVar(&w.quotas.MaxSessions, "max-sessions", 16384, "most sessions `N` at once; further ones are refused")
	f.IntVar(&w.quotas.TenantSessions, "tenant-sessions", 0, "most sessions `N` of one tenant; default 0: seven times what it leaves free of --max-sessions")
	f.IntVar(&w.quotas.MaxSandboxes, "max-sandboxes", 4096, "most sandboxes `N` at once; further commands that need one are refused")
	f.IntVar(&w.quotas.TenantSandboxes, "tenant-sandboxes", 0, "most sandboxes `N` of one tenant; default 0: seven times what it leaves free of --max-sandboxes")
	f.Var((*size)(&w.quotas.TenantMemoryBytes), "tenant-memory", "most memory `SIZE` that the limits of one tenant's sandboxes add up to; default 0: no bound")
	f.IntVar(&w.quotas.TenantCPUs, "tenant-cpus", 0, "most CPUs `N` that the limits of one tenant's sandboxes add up to; default 0: no bound")
	w.streamFlags(f)
	f.StringVar(&w.sealKeys, "seal-keys", w.Getenv("SLUICE_SEAL_KEYS"), "`FILE` with keys of `sluice keygen`, the same for all workers: commands wait sealed with the first one (SLUICE_SEAL_KEYS)")
	f.BoolVar(&w.private, "private-hooks", false, "allow HTTP hooks to reach loopback and private addresses")
	f.StringVar(&w.metrics, "metrics", "", "`ADDRESS` that serves Prometheus metrics at /metrics, HOST:PORT or a port of loopback; default: none")
	w.logFlags(f)
}

func (w *workerFlags) logFlags(f *pflag.FlagSet) {
	f.StringVar(&w.logFormat, "log-format", "auto", "log `FORMAT`: json, text, or auto, which is text on a terminal")
	f.StringVar(&w.logLevel, "log-level", "info", "log `LEVEL`: debug, info, warn or error")
}

func (w *workerFlags) logger() (zerolog.Logger, error) {
	if !slices.Contains([]string{"auto", "json", "text"}, w.logFormat) {
		return zerolog.Nop(), schemas.Errorf(schemas.CodeInvalidArgument, "unknown --log-format %q: use json, text or auto", w.logFormat)
	}
	level, err := zerolog.ParseLevel(w.logLevel) // which also knows numbers, and levels that nothing is logged at
	if err != nil || !slices.Contains([]string{"debug", "info", "warn", "error"}, w.logLevel) {
		return zerolog.Nop(), schemas.Errorf(schemas.CodeInvalidArgument, "unknown --log-level %q: use debug, info, warn or error", w.logLevel)
	}
	terminal, colours := w.terminal(w.Stderr)
	if w.logFormat == "text" || (w.logFormat == "auto" && terminal) {
		return zerolog.New(zerolog.ConsoleWriter{Out: w.Stderr, TimeFormat: time.TimeOnly, NoColor: !colours}).Level(level).With().Timestamp().Logger(), nil
	}
	return zerolog.New(w.Stderr).Level(level).With().Timestamp().Logger(), nil
}

// nodeConfig checks the flags and chooses the providers.
func (w *workerFlags) nodeConfig(ctx context.Context, runFolder string) (node.Config, error) {
	limits, err := w.limits.WithDefaults()
	if err != nil {
		return node.Config{}, err
	}
	if err := checkNetwork(w.network); err != nil {
		return node.Config{}, err
	}
	choice, err := node.Choose(ctx, w.provider, runFolder)
	if err == nil && w.runtime != "" {
		err = node.CheckRuntime(ctx, choice, w.runtime)
	}
	if err != nil {
		return node.Config{}, err
	}
	keys, err := w.readSealKeys()
	if err != nil {
		return node.Config{}, err
	}
	if w.pool < 0 {
		return node.Config{}, schemas.Errorf(schemas.CodeInvalidArgument, "--pool is %d: it must not be negative", w.pool)
	}
	for _, most := range []struct {
		flag string
		n    int
	}{{"max-processes", w.processes}, {"max-sessions", w.quotas.MaxSessions}, {"max-sandboxes", w.quotas.MaxSandboxes}} {
		if most.n < 1 || most.n > maxPlaces {
			return node.Config{}, schemas.Errorf(schemas.CodeInvalidArgument, "--%s is %d: it must be between 1 and %d", most.flag, most.n, maxPlaces)
		}
	}
	if w.ofTenant < 0 || w.ofThread < 0 {
		return node.Config{}, schemas.Errorf(schemas.CodeInvalidArgument, "--tenant-processes is %d and --thread-processes is %d: they must not be negative", w.ofTenant, w.ofThread)
	}
	if err := w.quotas.Validate(); err != nil {
		return node.Config{}, err
	}
	if err := w.checkStreams(); err != nil {
		return node.Config{}, err
	}
	if w.keep == 0 {
		w.keep = -1 // as node.Config has it
	}
	return node.Config{
		Topology: w.topology, Provider: choice.Default, Allowed: choice.Allowed, Image: w.image, Runtime: w.runtime, Limits: limits, Network: schemas.Network(w.network),
		PoolSize: w.pool, SealKeys: keys, Processes: w.processes, TenantProcesses: w.ofTenant, ThreadProcesses: w.ofThread, Quotas: w.quotas,
		Grace: w.grace, Idle: w.idle, KeepWorkspaces: w.keep, PrivateHooks: w.private, RunFolder: runFolder,
	}, nil
}
