package embedded

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/sluice-dev/sluice/schemas"
)

// Durability says what a write has reached when it is acked.
type Durability string

// The durabilities.
const (
	// DurabilityInterval acks once the operating system has the write, and syncs to disk every 100 ms: a killed process
	// loses nothing acked, a machine that loses power at most its last 100 ms.
	DurabilityInterval Durability = "interval"
	// DurabilityFsync acks once the disk has the write.
	DurabilityFsync Durability = "fsync"
)

// Config sets up a server.
type Config struct {
	// Dir is where the streams are kept. Required; created with mode 0700.
	Dir string
	// Listen is the TCP address to listen on, such as 127.0.0.1:4222. Default: none; the server is then reached in this
	// process alone. Port 0 or -1 picks a free one.
	Listen string
	// Token is what clients must present. Required with Listen.
	Token string
	// Durability is [DurabilityInterval] by default.
	Durability Durability
	// StoreBytes bounds all streams together. Default: four fifths of what is free on Dir's disk, and what is in Dir already.
	StoreBytes int64
}

// Validate checks the configuration. Errors: invalid_argument.
func (c Config) Validate() error {
	if c.Dir == "" {
		return schemas.Errorf(schemas.CodeInvalidArgument, "dir: missing: say where the streams are kept")
	}
	if c.Listen != "" && c.Token == "" {
		return schemas.Errorf(schemas.CodeInvalidArgument, "token: missing: a server that listens on %s must ask for one", c.Listen)
	}
	switch c.Durability {
	case "", DurabilityInterval, DurabilityFsync:
		return nil
	default:
		return schemas.Errorf(schemas.CodeInvalidArgument, "durability: unknown %q: interval or fsync", string(c.Durability))
	}
}

// Server is a NATS server with JetStream in this process.
type Server struct {
	ns    *server.Server
	cfg   Config
	js    server.JetStreamConfig
	logs  *complaint
	bytes int64
}

// Start starts a server and returns once it takes connections. Errors: invalid_argument, unavailable when the address is taken or the
// folder cannot be written.
func Start(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "create the data folder of NATS: %w", err)
	}
	s := &Server{cfg: cfg, bytes: cfg.StoreBytes}
	if s.bytes == 0 {
		s.bytes = freeBytes(cfg.Dir)/5*4 + usedBytes(cfg.Dir)
	}
	opts := &server.Options{
		ServerName: "sluice", JetStream: true, StoreDir: cfg.Dir, JetStreamMaxStore: s.bytes, JetStreamMaxMemory: 64 << 20,
		SyncInterval: syncInterval, SyncAlways: cfg.Durability == DurabilityFsync,
		DontListen: cfg.Listen == "", Authorization: cfg.Token,
		NoSigs: true, NoLog: true, DisableShortFirstPing: true, MaxPayload: 1 << 20,
	}
	if cfg.Listen != "" {
		host, port, err := splitAddress(cfg.Listen)
		if err != nil {
			return nil, err
		}
		if err := free(host, port); err != nil {
			return nil, err
		}
		opts.Host, opts.Port = host, port
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "set up the NATS server: %w", err)
	}
	s.ns = ns
	logs := &complaint{}
	s.logs = logs
	ns.SetLoggerV2(logs, false, false, false)
	ns.Start()
	if !ns.ReadyForConnections(30*time.Second) || !ns.JetStreamEnabled() {
		ns.Shutdown()
		ns.WaitForShutdown()
		return nil, schemas.Errorf(schemas.CodeUnavailable, "the NATS server in %s did not start: %s", cfg.Dir, logs.String())
	}
	if c := ns.JetStreamConfig(); c != nil {
		s.js = *c
	}
	return s, nil
}

// free fails early and clearly where the address is taken: the server itself would only log it.
func free(host string, port int) error {
	if port <= 0 {
		return nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, fmt.Sprint(port)))
	if err != nil {
		return schemas.Errorf(schemas.CodeUnavailable, "cannot listen on %s:%d: %w: stop what listens there, or choose another with --listen", host, port, err)
	}
	return l.Close()
}

func splitAddress(addr string) (string, int, error) {
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return "", 0, schemas.Errorf(schemas.CodeInvalidArgument, "listen: %q is not HOST:PORT: %w", addr, err)
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		host = "127.0.0.1"
	}
	if a.Port == 0 {
		return host, server.RANDOM_PORT, nil
	}
	return host, a.Port, nil
}

// InProcessConn is a connection to the server without a socket; it makes *Server what events.Options.InProcess wants.
func (s *Server) InProcessConn() (net.Conn, error) { return s.ns.InProcessConn() }

// URL is where the server listens; empty when it does not.
func (s *Server) URL() string {
	if s.cfg.Listen == "" {
		return ""
	}
	return s.ns.ClientURL()
}

// StoreBytes is the bound on all streams together.
func (s *Server) StoreBytes() int64 { return s.bytes }

// Run keeps the server going until ctx ends, then shuts it down and returns once its files are closed. A disk that was full
// leaves JetStream switched off, or streams that take nothing more: Run starts JetStream anew once there is room.
func (s *Server) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.Close()
			return nil
		case <-tick.C:
			if (s.logs.fault() || !s.ns.JetStreamEnabled()) && freeBytes(s.cfg.Dir) > minFree {
				s.repair()
			}
		}
	}
}

// repair starts JetStream anew. What fails is tried again a second later.
func (s *Server) repair() {
	s.logs.repaired() // before: what cannot be written from now on is another fault
	if s.ns.JetStreamEnabled() {
		if err := s.ns.ShutdownJetStream(); err != nil {
			return
		}
	}
	cfg := s.js
	cfg.StoreDir = s.cfg.Dir       // what the server reports has its own folder added, and would get it once more
	_ = s.ns.EnableJetStream(&cfg) // should it fail, it stays switched off, which brings it here again
}

// minFree is how much room there must be before JetStream is switched on again.
const minFree = 16 << 20

// Close shuts the server down and returns once its files are closed.
func (s *Server) Close() {
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
}

func usedBytes(dir string) int64 {
	var sum int64
	// What cannot be read counts as nothing: the bound errs to the safe side.
	_ = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil {
			if info, infoErr := d.Info(); infoErr == nil && info.Mode().IsRegular() {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}
