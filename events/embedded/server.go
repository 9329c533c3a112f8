package embedded

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/sluice-dev/sluice/internal/shortage"
	"github.com/sluice-dev/sluice/schemas"
)

// Durability says what a write has reached when it is acked.
type Durability string

// The durabilities.
const (
	// DurabilityInterval acks once the operating system has the write, and syncs to disk every 100 ms. A killed process loses nothing
	// that was acked; a power failure loses at most the last 100 ms.
	DurabilityInterval Durability = "interval"
	// DurabilityFsync acks once the disk has the write.
	DurabilityFsync Durability = "fsync"
)

// Config configures a server.
type Config struct {
	// Dir is the folder of the streams. Required; created with mode 0700.
	Dir string
	// Listen is the TCP address, such as 127.0.0.1:4222. Port 0 or -1 picks a free port. Default: none; the server is then reachable
	// only in this process.
	Listen string
	// Token is the token that clients must present. Required with Listen.
	Token string
	// CertFile and KeyFile are the server's certificate and its key, in PEM. Connections to Listen must then use TLS. Default: none does.
	CertFile, KeyFile string
	// Durability is when a write is acked. Default [DurabilityInterval].
	Durability Durability
	// StoreBytes is the most bytes that the bounds of all streams add up to. Default: no bound. A stream is refused beyond it also when it exists
	// and the server starts again: a bound by what is free now would lose the streams of a disk that has filled since.
	StoreBytes int64
	// Warn is called when the server could not be replaced after a full disk, which Run tries again; once for each reason. Default: not called.
	Warn func(error)
}

// Validate checks the configuration. Errors: invalid_argument.
func (c Config) Validate() error {
	if c.Dir == "" {
		return schemas.Errorf(schemas.CodeInvalidArgument, "dir: missing: set the folder of the streams")
	}
	if c.Listen != "" && c.Token == "" {
		return schemas.Errorf(schemas.CodeInvalidArgument, "token: missing: a server that listens on %s must require one", c.Listen)
	}
	switch c.Durability {
	case "", DurabilityInterval, DurabilityFsync:
		return nil
	default:
		return schemas.Errorf(schemas.CodeInvalidArgument, "durability: unknown %q: use interval or fsync", string(c.Durability))
	}
}

// Server is a NATS server with JetStream in this process.
type Server struct {
	cfg  Config
	host string // where it listens; empty when it does not
	log  *errorLog
	room int64
	// reported is why the server could not be replaced the last time; empty when it was.
	reported string

	mu     sync.Mutex
	ns     *server.Server // Run replaces it after a full disk
	port   int
	closed bool
}

// Start starts a server and returns once it accepts connections. Errors: invalid_argument, unavailable when the address is in use or
// the folder is not writable.
func Start(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "create the data folder of NATS: %w", err)
	}
	s := &Server{cfg: cfg, log: &errorLog{}}
	s.room = cmp.Or(cfg.StoreBytes, freeBytes(cfg.Dir)/5*4+usedBytes(cfg.Dir))
	if cfg.Listen != "" {
		var err error
		if s.host, s.port, err = splitAddress(cfg.Listen); err != nil {
			return nil, err
		}
		if err := checkFree(s.host, s.port); err != nil {
			return nil, err
		}
	}
	if err := s.boot(); err != nil {
		return nil, err
	}
	return s, nil
}

// unbounded is a bound of the server's store that no sum of streams reaches: with 0 it would be what is free on the disk.
const unbounded = 1 << 62

// boot starts the server of NATS on the files of the folder and returns once it accepts connections. It listens where the one before it
// did.
func (s *Server) boot() error {
	opts := &server.Options{
		ServerName: "sluice", JetStream: true, StoreDir: s.cfg.Dir, JetStreamMaxStore: cmp.Or(s.cfg.StoreBytes, unbounded), JetStreamMaxMemory: 64 << 20,
		SyncInterval: syncInterval, SyncAlways: s.cfg.Durability == DurabilityFsync,
		DontListen: s.cfg.Listen == "", Host: s.host, Port: s.port, Authorization: s.cfg.Token, AuthTimeout: authTimeout.Seconds(),
		NoSigs: true, NoLog: true, DisableShortFirstPing: true, MaxPayload: 1 << 20,
	}
	if s.cfg.CertFile != "" {
		t, err := server.GenTLSConfig(&server.TLSConfigOpts{CertFile: s.cfg.CertFile, KeyFile: s.cfg.KeyFile})
		if err != nil {
			return schemas.Errorf(schemas.CodeInvalidArgument, "TLS certificate: %w", err)
		}
		opts.TLS, opts.TLSConfig, opts.TLSTimeout = true, t, tlsTimeout.Seconds()
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return schemas.Errorf(schemas.CodeInvalidArgument, "set up the NATS server: %w", err)
	}
	ns.SetLoggerV2(s.log, false, false, false)
	ns.Start()
	if !ns.ReadyForConnections(30*time.Second) || !ns.JetStreamEnabled() {
		shutDown(ns)
		return schemas.Errorf(schemas.CodeUnavailable, "the NATS server in %s did not start: %s", s.cfg.Dir, s.log.last())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		shutDown(ns)
		return schemas.Errorf(schemas.CodeUnavailable, "the NATS server in %s is closed", s.cfg.Dir)
	}
	s.ns = ns
	if a, ok := ns.Addr().(*net.TCPAddr); ok {
		s.port = a.Port
	}
	return nil
}

// current returns the server of NATS that runs now.
func (s *Server) current() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ns
}

// authTimeout bounds how long a client may take to send its credentials. NATS's default, 2 s, is too short for a client on a loaded machine.
const authTimeout = 10 * time.Second

// tlsTimeout bounds the handshake of a connection.
const tlsTimeout = 5 * time.Second

// checkFree fails early when the address is in use: the server itself would only log it.
func checkFree(host string, port int) error {
	if port <= 0 {
		return nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, fmt.Sprint(port)))
	if err != nil {
		return schemas.Errorf(schemas.CodeUnavailable, "cannot listen on %s:%d: %w: stop the program that uses the address, or set another one with --listen", host, port, err)
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

// InProcessConn connects to the server without a socket. With it a *Server can be events.Options.InProcess.
func (s *Server) InProcessConn() (net.Conn, error) { return s.current().InProcessConn() }

// URL returns the URL on which the server listens; empty when it does not listen.
func (s *Server) URL() string {
	if s.cfg.Listen == "" {
		return ""
	}
	return s.current().ClientURL()
}

// Consumers returns the number of consumers of all streams; 0 while JetStream is off.
func (s *Server) Consumers() int {
	js, err := s.current().Jsz(nil)
	if err != nil {
		return 0
	}
	return js.Consumers
}

// Room returns how many bytes new streams may take with those that exist: what was configured, else four fifths of the space that was
// free at the start on the disk of the folder, plus what the folder had.
func (s *Server) Room() int64 { return s.room }

// Run keeps the server running until ctx ends, then shuts it down and returns once its files are closed. A full disk, or a process that can
// open no more files, makes the server disable JetStream, or leaves streams that accept nothing: once that has passed Run replaces the
// server, and its clients connect again. Not before: a server that starts leaves out the streams whose files it cannot open.
func (s *Server) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.Close()
			return nil
		case <-tick.C:
			if (s.log.writeFailed() || !s.current().JetStreamEnabled()) && freeBytes(s.cfg.Dir) > minFree && shortage.Check() == nil {
				s.replace()
			}
		}
	}
}

// replace replaces the server of NATS. After a failure the old one has no JetStream, so that Run tries again a second later.
func (s *Server) replace() {
	reason := ""
	if err := s.restart(); err != nil {
		if reason = err.Error(); reason != s.reported && s.cfg.Warn != nil {
			s.cfg.Warn(fmt.Errorf("replace the server after a write error, tried again each second: %w", err))
		}
	}
	s.reported = reason
}

// restart shuts the server of NATS down and starts another one on its files. JetStream is not just enabled again: the server keeps
// what it subscribed to before, so that it would handle every request of JetStream's API twice (nats-server 2.15.2).
func (s *Server) restart() error {
	s.log.resetWriteFailed() // first: a write error from now on is a new one
	shutDown(s.current())
	return s.boot()
}

// minFree is the free disk space at which the server restarts, in bytes.
const minFree = 16 << 20

// Close shuts the server down and returns once its files are closed.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	shutDown(s.ns)
}

// shutDown returns once the server's files are closed.
func shutDown(ns *server.Server) {
	ns.Shutdown()
	ns.WaitForShutdown()
}

func usedBytes(dir string) int64 {
	var sum int64
	// A file that cannot be read counts as 0, which makes the bound smaller.
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

// errorLog is the server's logger. It keeps the last error, for the message of a failed start, and drops everything else: standard
// error belongs to the command line program.
type errorLog struct {
	mu         sync.Mutex
	text       string
	writeError bool
}

func (l *errorLog) keep(format string, v []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = fmt.Sprintf(format, v...)
	// A stream that had a write error answers no more requests. The server reports it only in its log.
	if strings.Contains(l.text, "write error") {
		l.writeError = true
	}
}

// writeFailed reports whether a stream had a write error since the last reset.
func (l *errorLog) writeFailed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writeError
}

func (l *errorLog) resetWriteFailed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writeError = false
}

// last returns the last error.
func (l *errorLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text == "" {
		return "no error was logged within 30 s"
	}
	return l.text
}

// Errorf keeps an error.
func (l *errorLog) Errorf(format string, v ...any) { l.keep(format, v) }

// Fatalf keeps an error.
func (l *errorLog) Fatalf(format string, v ...any) { l.keep(format, v) }

// Noticef drops the line.
func (*errorLog) Noticef(string, ...any) {}

// Warnf drops the line.
func (*errorLog) Warnf(string, ...any) {}

// Debugf drops the line.
func (*errorLog) Debugf(string, ...any) {}

// Tracef drops the line.
func (*errorLog) Tracef(string, ...any) {}
