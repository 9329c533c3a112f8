package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/cmd/internal/node"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// workerFlags are the flags of a worker, wherever it runs.
type workerFlags struct {
	provider  string
	image     string
	limits    sandbox.Limits
	pool      int
	processes int
	grace     time.Duration
	idle      time.Duration
	private   bool
	metrics   string
	logFormat string
	logLevel  string
}

func (m *Main) addWorkerFlags(c *cobra.Command, w *workerFlags) {
	f := c.Flags()
	f.StringVar(&w.provider, "provider", or(m.Getenv("SLUICE_PROVIDER"), node.Auto), "kind of sandbox: `PROVIDER` auto, jail, docker or local; local isolates nothing (SLUICE_PROVIDER)")
	f.StringVar(&w.image, "image", m.Getenv("SLUICE_IMAGE"), "`IMAGE` of provider docker's containers (SLUICE_IMAGE)")
	m.addLimitFlags(c, &w.limits)
	f.IntVar(&w.pool, "pool", 0, "keep `N` containers of provider docker ready")
	f.IntVar(&w.processes, "max-processes", 256, "refuse commands beyond `N` running ones")
	f.DurationVar(&w.grace, "stop-grace", 10*time.Second, "time `D` between SIGTERM and SIGKILL for what runs at shutdown")
	f.DurationVar(&w.idle, "session-timeout", m.sessionTimeout(), "end a session that has run nothing for `D` (SESSION_TIMEOUT_MINUTES)")
	f.BoolVar(&w.private, "private-hooks", false, "let templates' HTTP hooks reach loopback and private addresses")
	f.StringVar(&w.metrics, "metrics", "", "serve Prometheus metrics on `ADDRESS`/metrics; a port alone is one of loopback; default: nowhere")
	f.StringVar(&w.logFormat, "log-format", "auto", "`FORMAT` json or text; auto is text on a terminal")
	f.StringVar(&w.logLevel, "log-level", "info", "`LEVEL` debug, info, warn or error")
}

func (m *Main) sessionTimeout() time.Duration {
	if minutes := m.positive("SESSION_TIMEOUT_MINUTES"); minutes > 0 {
		return time.Duration(minutes) * time.Minute
	}
	return 30 * time.Minute
}

func (m *Main) logger(w *workerFlags) (zerolog.Logger, error) {
	level, err := zerolog.ParseLevel(w.logLevel)
	if err != nil {
		return zerolog.Nop(), schemas.Errorf(schemas.CodeInvalidArgument, "--log-level %q: debug, info, warn or error", w.logLevel)
	}
	text := w.logFormat == "text"
	if w.logFormat == "auto" {
		if f, ok := m.Stderr.(*os.File); ok {
			info, err := f.Stat()
			text = err == nil && info.Mode()&os.ModeCharDevice != 0
		}
	}
	if text {
		return zerolog.New(zerolog.ConsoleWriter{Out: m.Stderr, TimeFormat: time.TimeOnly}).Level(level).With().Timestamp().Logger(), nil
	}
	return zerolog.New(m.Stderr).Level(level).With().Timestamp().Logger(), nil
}

func (w *workerFlags) node(ctx context.Context) (node.Config, error) {
	limits, err := w.limits.WithDefaults()
	if err != nil {
		return node.Config{}, err
	}
	choice, err := node.Choose(ctx, w.provider)
	if err != nil {
		return node.Config{}, err
	}
	if w.processes < 1 {
		return node.Config{}, schemas.Errorf(schemas.CodeInvalidArgument, "--max-processes %d: at least 1", w.processes)
	}
	return node.Config{
		Provider: choice.Default, Allowed: choice.Allowed, Image: w.image, Limits: limits, PoolSize: w.pool,
		Processes: w.processes, Grace: w.grace, Idle: w.idle, PrivateHooks: w.private,
	}, nil
}

func (m *Main) upCommand(g *globals) *cobra.Command {
	var w workerFlags
	var listen, durability string
	c := &cobra.Command{
		Use:   "up",
		Short: "Run everything on this machine: a NATS server on loopback and a worker",
		Long: `Run everything on this machine: a NATS server with JetStream that listens on loopback and asks for the token in the data
folder (made at the first start, readable by you alone), and a worker. The other commands find both by themselves. Ctrl+C shuts down:
what runs gets SIGTERM, the grace, SIGKILL, and is recorded; a second one leaves at once.`,
		Example: `  sluice up --provider local
  sluice up --provider local --listen 127.0.0.1:4333 --durability fsync`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return m.up(cmd.Context(), g, &w, listen, embedded.Durability(durability))
		},
	}
	m.addWorkerFlags(c, &w)
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:4222", "`ADDRESS` of the NATS server; port 0 picks a free one")
	c.Flags().StringVar(&durability, "durability", string(embedded.DurabilityInterval), "`MODE` interval: a machine that loses power loses at most 100 ms; fsync: nothing")
	return c
}

func (m *Main) up(ctx context.Context, g *globals, w *workerFlags, listen string, durability embedded.Durability) error {
	ctx, stop := m.untilSignal(ctx)
	defer stop()
	collect := collectLater()
	defer collect()
	log, err := m.logger(w)
	if err != nil {
		return err
	}
	cfg, err := w.node(ctx)
	if err != nil {
		return err
	}
	dir, err := openFolder(g.data)
	if err != nil {
		return err
	}
	lock, ok, err := dir.lock()
	if err != nil {
		return err
	}
	if !ok {
		who := "another sluice"
		if a, known := dir.readAddress(); known {
			who = fmt.Sprintf("process %d", a.PID)
		}
		return schemas.Errorf(schemas.CodeConflict, "data folder %s is in use by %s: stop that first, or choose another with --data", dir.path, who)
	}
	if cfg.Worker, err = m.workerID(dir); err == nil {
		cfg.RunFolder, err = dir.runFolder()
	}
	if err != nil {
		lock.release()
		return err
	}
	var metrics string
	var endReload, endMetrics func()
	cfg.Reload, endReload = onHangup()
	defer endReload()
	if cfg.Metrics, metrics, endMetrics, err = serveMetrics(ctx, w.metrics); err != nil {
		lock.release()
		return err
	}
	defer endMetrics()
	cfg.Templates, cfg.Workspaces, cfg.Log = g.templates, dir.join("workspaces"), log.With().Str("worker", cfg.Worker).Logger()
	h, err := startHost(ctx, lock, hostConfig{folder: dir, listen: listen, durability: durability, node: cfg, cell: g.cell})
	if err != nil {
		lock.release()
		return err
	}
	if err := h.waitReady(ctx); err != nil {
		return errors.Join(ignoreCanceled(err), h.stop())
	}
	if err := h.announce(); err != nil {
		return errors.Join(err, h.stop())
	}
	fmt.Fprintf(m.Stdout, "sluice is up: %s, token in %s, provider %s%s\n", h.server.URL(), dir.join("token"), cfg.Provider, also(metrics))
	collect()
	select {
	case <-ctx.Done():
		log.Info().Msg("shutting down: Ctrl+C again leaves at once")
	case <-h.done:
	}
	return h.stop()
}

// startupGC is the percentage at which garbage is collected while a server starts: the heap comes to some 16 MB before the first
// time, which is more than a start makes on an empty folder. A quarter of its CPU went into collecting garbage.
const startupGC = 400

// collectLater puts the collection of garbage off until end is called, unless the user has it done less often still.
func collectLater() (end func()) {
	usual := debug.SetGCPercent(startupGC)
	if usual < 0 || usual > startupGC {
		debug.SetGCPercent(usual)
	}
	return sync.OnceFunc(func() { debug.SetGCPercent(usual) })
}

// also tells where metrics are, if anywhere.
func also(metrics string) string {
	if metrics == "" {
		return ""
	}
	return ", metrics " + metrics
}

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// workerID is WORKER_ID, or the data folder's.
func (m *Main) workerID(dir *folder) (string, error) {
	if id := m.Getenv("WORKER_ID"); id != "" {
		return id, schemas.CheckID("WORKER_ID", id)
	}
	return dir.workerID()
}

// untilSignal ends the context at the first SIGINT or SIGTERM. The second one finds the default again, which ends the program.
func (m *Main) untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// onHangup gives a word at each SIGHUP, until end is called.
func onHangup() (words <-chan struct{}, end func()) {
	signals, out, ended := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, unix.SIGHUP)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				return
			case <-signals:
			}
			select {
			case out <- struct{}{}:
			case <-ended:
				return
			}
		}
	}()
	return out, func() {
		signal.Stop(signals)
		close(ended)
		<-done
	}
}

func (m *Main) workerCommand(g *globals) *cobra.Command {
	var w workerFlags
	var topology events.Topology
	c := &cobra.Command{
		Use:     "worker",
		Short:   "Run a worker against a NATS server of yours",
		Example: `  sluice worker --nats nats://nats.example:4222 --creds worker.creds --provider local`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return m.worker(cmd.Context(), g, &w, topology)
		},
	}
	m.addWorkerFlags(c, &w)
	c.Flags().IntVar(&topology.Partitions, "partitions", 4, "`N` parts of the command queue; the same for every worker of a cell")
	c.Flags().IntVar(&topology.Replicas, "replicas", 1, "`N` replicas of each stream; 3 in a cluster")
	c.Flags().DurationVar(&topology.LeaseTTL, "lease", 10*time.Second, "take a worker that says nothing for `D` for dead; the same for every worker of a cell")
	return c
}

func (m *Main) worker(ctx context.Context, g *globals, w *workerFlags, topology events.Topology) error {
	ctx, stop := m.untilSignal(ctx)
	defer stop()
	log, err := m.logger(w)
	if err != nil {
		return err
	}
	if strings.TrimSpace(g.nats) == "" {
		return schemas.Errorf(schemas.CodeInvalidArgument, "--nats is missing: name the server, or use `sluice up` for one of its own")
	}
	if topology.LeaseTTL < time.Second {
		return schemas.Errorf(schemas.CodeInvalidArgument, "--lease %s: at least 1s", topology.LeaseTTL)
	}
	cfg, err := w.node(ctx)
	if err != nil {
		return err
	}
	dir, err := openFolder(g.data)
	if err != nil {
		return err
	}
	lock, ok, err := dir.lock()
	if err != nil {
		return err
	}
	if !ok {
		return schemas.Errorf(schemas.CodeConflict, "data folder %s is in use by another sluice: give each worker its own with --data", dir.path)
	}
	defer lock.release()
	if cfg.Worker, err = m.workerID(dir); err != nil {
		return err
	}
	if cfg.RunFolder, err = dir.runFolder(); err != nil {
		return err
	}
	var metrics string
	var endReload, endMetrics func()
	cfg.Reload, endReload = onHangup()
	defer endReload()
	if cfg.Metrics, metrics, endMetrics, err = serveMetrics(ctx, w.metrics); err != nil {
		return err
	}
	defer endMetrics()
	cfg.Templates, cfg.Workspaces, cfg.Topology, cfg.Log = g.templates, dir.join("workspaces"), topology, log.With().Str("worker", cfg.Worker).Logger()
	conn, err := events.Connect(events.Options{URL: g.nats, CredsFile: g.creds, Token: g.token, Cell: g.cell, Name: "worker " + cfg.Worker, Wait: true})
	if err != nil {
		return err
	}
	defer conn.Close()
	return ignoreCanceled(node.New(cfg, conn).Run(ctx, func() {
		fmt.Fprintf(m.Stdout, "worker %s is up: %s, provider %s%s\n", cfg.Worker, conn.ServerURL(), cfg.Provider, also(metrics))
	}))
}
