package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/gateway"
	"github.com/sluice-dev/sluice/internal/node"
	"github.com/sluice-dev/sluice/schemas"
)

// workerSetup is what up and worker have alike: a locked data folder, and the configuration of a node on it.
type workerSetup struct {
	folder  *dataFolder
	lock    *folderLock
	node    node.Config
	reload  reloads
	metrics string // the URL, for the line that reports the start
	undo    []func()
}

// setUp checks the flags, locks the data folder, and starts the metrics and the reload at SIGHUP. The caller calls close.
func (w *workerFlags) setUp(ctx context.Context) (_ *workerSetup, err error) {
	s := &workerSetup{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	log, err := w.logger()
	if err != nil {
		return nil, err
	}
	if s.folder, err = openFolder(w.data); err != nil {
		return nil, err
	}
	run, err := s.folder.runFolder()
	if err != nil {
		return nil, err
	}
	if s.node, err = w.nodeConfig(ctx, run); err != nil {
		return nil, err
	}
	if s.lock, err = s.folder.mustLock(ctx); err != nil {
		return nil, err
	}
	s.undo = append(s.undo, s.lock.release)
	if s.node.Worker, err = w.workerID(s.folder); err != nil {
		return nil, err
	}
	s.node.Begin = s.folder.begin
	s.reload = make(reloads)
	s.node.Reload, s.undo = s.reload, append(s.undo, s.reload.atHangup(ctx))
	var end func()
	if s.node.Metrics, s.metrics, end, err = serveMetrics(ctx, w.metrics); err != nil {
		return nil, err
	}
	s.undo = append(s.undo, end)
	if s.node.Documents, err = w.documentLimits(); err != nil {
		return nil, err
	}
	s.node.AgentTemplates, s.node.Allow = w.agents, w.allow
	s.node.Templates, s.node.Workspaces, s.node.Getenv, s.node.Log = w.templates, s.folder.join("workspaces"), w.Getenv, log.With().Str("worker", s.node.Worker).Logger()
	return s, nil
}

// announce lets other commands of this user find this worker, which has no server, until stop. Errors: unavailable.
func (s *workerSetup) announce(ctx context.Context) (stop func(), err error) {
	c, err := openControl(s.node.RunFolder)
	if err != nil {
		return nil, err
	}
	c.reload = s.reload.ask
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.run(ctx) // it returns no error
	}()
	return func() {
		s.folder.removeAddress()
		cancel()
		<-ended
	}, s.folder.writeAddress(address{PID: os.Getpid()})
}

func (s *workerSetup) close() {
	for _, f := range slices.Backward(s.undo) {
		f()
	}
}

// suffix completes the line that reports the start.
func (s *workerSetup) suffix() string {
	text := "provider " + s.node.Provider
	if s.metrics != "" {
		text += ", metrics " + s.metrics
	}
	return text
}

// workerID is WORKER_ID, or the data folder's id.
func (w *workerFlags) workerID(dir *dataFolder) (string, error) {
	if id := w.Getenv("WORKER_ID"); id != "" {
		if err := schemas.CheckID("WORKER_ID", id); err != nil {
			return "", err
		}
		return id, dir.setWorkerID(id)
	}
	return dir.workerID()
}

func upCommand(g *globals) *cobra.Command {
	w := &workerFlags{globals: g}
	var listen, durability string
	var tls tlsFlags
	http := httpFlags{tls: &tls}
	c := &cobra.Command{
		Use:   "up",
		Short: "Run a NATS server on loopback, a worker and an HTTP gateway, for this machine",
		Long: `Run a NATS server with JetStream, a worker and an HTTP gateway on this machine.

The server listens on loopback and requires the token in the data folder, which is created at the
first start and readable only by you. The other commands find both by themselves. HTTP requests need
the same token, or one that "sluice token create" has made. For other machines, --listen and --http
need TLS: the token and all data would cross the network in clear. SIGHUP and
"sluice reload" reload the folder of templates and the allow-lists. Ctrl+C shuts down:
running processes get SIGTERM, the grace and SIGKILL, and their ends are recorded. A second Ctrl+C
exits at once.

With SANDBOX_AGENT_BIN or SANDBOX_WORKSPACE, it also starts and supervises that agent, in that
folder and without isolation: see docs/services.md.`,
		Example: `  sluice up
  sluice up --listen 127.0.0.1:4333 --durability fsync
  sluice up --listen 0.0.0.0:4222 --tls-cert server.pem --tls-key server.key`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"nats", "creds"} {
				if cmd.Flags().Changed(name) {
					return schemas.Errorf(schemas.CodeInvalidArgument, "--%s is for another server: `sluice up` runs its own, and `sluice worker --nats URL` uses one that runs", name)
				}
			}
			if err := tls.check("--listen", listen); err != nil {
				return err
			}
			return w.up(cmd.Context(), hostConfig{listen: listen, tls: tls, durability: embedded.Durability(durability)}, &http)
		},
	}
	w.addTo(c, standalonePool)
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:4222", "`ADDRESS` of the NATS server; port 0 picks a free one")
	tls.addTo(c)
	http.addTo(c, g.Main, ", off serves none")
	c.Flags().StringVar(&durability, "durability", string(embedded.DurabilityInterval), "durability `MODE`: interval (a power failure loses at most 100 ms) or fsync (nothing)")
	return c
}

func (w *workerFlags) up(ctx context.Context, cfg hostConfig, http *httpFlags) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	restoreGC := delayGC()
	defer restoreGC()
	agent, err := w.newAgent()
	if err != nil {
		return err
	}
	s, err := w.setUp(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	web, err := http.listenHTTP(ctx, s.node.Log)
	if err != nil {
		return err
	}
	defer web.close()
	if agent != nil {
		s.node.Allowed = offerLocal(s.node.Allowed)
	}
	cfg.folder, cfg.node, cfg.reload, cfg.cell = s.folder, s.node, s.reload, w.cell
	h, err := startHost(ctx, s.lock, cfg)
	if err != nil {
		return err
	}
	if err := h.waitReady(ctx); err != nil {
		return errors.Join(ignoreCanceled(err), h.stop())
	}
	if err := h.announce(); err != nil {
		return errors.Join(err, h.stop())
	}
	stopHTTP, err := web.serve(ctx, w.globals, &events.Options{InProcess: h.server, URL: h.server.URL(), Token: s.folder.storedToken(), Cell: w.cell},
		gateway.Config{MachineToken: s.folder.storedToken(), Grace: w.grace, GraceFrom: h.workerDone, Log: s.node.Log})
	if err != nil {
		return errors.Join(err, h.stop())
	}
	end := func() error {
		h.stopWorker()
		err := stopHTTP() // the requests get the ends of their commands
		return errors.Join(h.stop(), err)
	}
	fmt.Fprintf(w.Stdout, "sluice is up: %s, token in %s, %s%s\n", h.server.URL(), s.folder.join("token"), s.suffix(), web.suffix())
	restoreGC()
	if agent != nil {
		if err := w.startAgent(ctx, h, agent); err != nil {
			return errors.Join(ignoreCanceled(err), end())
		}
	}
	select {
	case <-ctx.Done():
		s.node.Log.Info().Msg("shutting down: Ctrl+C again exits at once")
	case <-h.workerDone:
	}
	return end()
}

// startupGC is the garbage collection percentage while a server starts. The heap grows to about 16 MB before the first collection,
// more than a start on an empty folder allocates. At the default, collection took a quarter of the start's CPU time.
const startupGC = 400

// delayGC delays garbage collection until restore is called, unless the user delays it even more.
func delayGC() (restore func()) {
	usual := debug.SetGCPercent(startupGC)
	if usual < 0 || usual > startupGC {
		debug.SetGCPercent(usual)
	}
	return sync.OnceFunc(func() { debug.SetGCPercent(usual) })
}

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func workerCommand(g *globals) *cobra.Command {
	w := &workerFlags{globals: g}
	c := &cobra.Command{
		Use:     "worker",
		Short:   "Run a worker against a NATS server",
		Long:    "Run a worker against the NATS server that --nats names. It needs JetStream.\nEach worker needs its own data folder.",
		Example: `  sluice worker --nats nats://nats.example:4222 --creds worker.creds`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return w.worker(cmd.Context())
		},
	}
	w.addTo(c, fleetPool)
	c.Flags().IntVar(&w.topology.Partitions, "partitions", 4, "number `N` of partitions of the command queue; equal for all workers of a cell")
	c.Flags().IntVar(&w.topology.Replicas, "replicas", 1, "number `N` of replicas of each stream; 3 in a cluster")
	c.Flags().DurationVar(&w.topology.LeaseTTL, "lease", 10*time.Second, "worker lease TTL `DURATION`; equal for all workers of a cell")
	return c
}

func (w *workerFlags) worker(ctx context.Context) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	if strings.TrimSpace(w.nats) == "" {
		return schemas.Errorf(schemas.CodeInvalidArgument, "--nats is missing: name the NATS server, or use `sluice up`, which brings one")
	}
	if w.topology.LeaseTTL < time.Second {
		return schemas.Errorf(schemas.CodeInvalidArgument, "--lease is %s: it must be at least 1s", w.topology.LeaseTTL)
	}
	s, err := w.setUp(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	server := w.server()
	server.Name, server.Wait, server.LeaseTTL = "worker "+s.node.Worker, true, w.topology.LeaseTTL
	server.Tenant = "" // clients can read the inboxes of a tenant
	conn, err := events.Connect(*server)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop, err = s.announce(ctx)
	if err != nil {
		return err
	}
	defer stop()
	return ignoreCanceled(node.New(s.node, conn).Run(ctx, func() {
		fmt.Fprintf(w.Stdout, "worker %s is up: %s, %s\n", s.node.Worker, conn.ServerURL(), s.suffix())
	}))
}
