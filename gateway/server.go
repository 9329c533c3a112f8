package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/gateway/dashboard"
	"github.com/sluice-dev/sluice/schemas"
)

// Bounds of a request. A body that is streamed, such as an upload, may take longer, as long as it does not pause.
const (
	headerTimeout = 10 * time.Second
	headerBytes   = 32 << 10
	idleTimeout   = 2 * time.Minute // of a connection between two requests
	jsonBytes     = schemas.MaxCommandBytes
	// The defaults of a configuration.
	defaultGrace     = 10 * time.Second
	defaultPause     = 30 * time.Second
	defaultHeartbeat = 15 * time.Second
	defaultIdle      = 4 * time.Hour
)

// Config configures a gateway.
type Config struct {
	// Client talks to the cell. Its rights are those of the gateway: it must reach every tenant that has tokens. Required.
	Client *client.Client
	// MachineToken is valid as admin of MachineTenant, beside the tokens that were created. Default: there is none, of
	// [schemas.DefaultTenant].
	MachineToken, MachineTenant string
	// Hosts are the names under which clients reach the gateway, beside localhost and every IP address. Requests to another name are refused:
	// they come from a page whose name has come to lead here.
	Hosts []string
	// Grace is how long requests that are being answered may go on at the end. Default 10 s.
	Grace time.Duration
	// GraceFrom delays the grace until it is closed: what closes it has ended the commands that the requests wait for. Nil delays nothing.
	GraceFrom <-chan struct{}
	// Pause is how long a sender or a receiver may pause. The reader of an event stream that does not take an event for a third of it is cut
	// off, with the reason as its last event. Default 30 s.
	Pause time.Duration
	// Heartbeat is the time between two signs of life of an event stream or a terminal. Default 15 s.
	Heartbeat time.Duration
	// Idle is how long a terminal may have neither input nor output, up to a heartbeat more. Default 4 h.
	Idle time.Duration
	// Mounts are further handlers. Default: none.
	Mounts []Mount
	// Log gets one line per request. Default: nothing is logged.
	Log zerolog.Logger
}

// Mount is a handler for requests with a token; [ClientOf] and [TokenOf] return whose it is.
type Mount struct {
	// Pattern is that of [http.ServeMux], such as "/mcp".
	Pattern string
	// Scope is what the token must allow.
	Scope   schemas.Scope
	Handler http.Handler
}

// Gateway serves HTTP. See [New].
type Gateway struct {
	cfg     Config
	mux     *http.ServeMux
	started time.Time
	quotas  *quotas
	feeds   logFeeds
}

// New returns a gateway. It does nothing before Run.
func New(cfg Config) *Gateway {
	cfg.Grace, cfg.MachineTenant = cmp.Or(cfg.Grace, defaultGrace), cmp.Or(cfg.MachineTenant, schemas.DefaultTenant)
	cfg.Pause, cfg.Heartbeat, cfg.Idle = cmp.Or(cfg.Pause, defaultPause), cmp.Or(cfg.Heartbeat, defaultHeartbeat), cmp.Or(cfg.Idle, defaultIdle)
	g := &Gateway{
		cfg: cfg, mux: http.NewServeMux(), started: time.Now(), quotas: newQuotas(maxQuotas), feeds: logFeeds{open: make(map[feedKey]*logFeed)},
	}
	for _, r := range g.routes() {
		g.mux.Handle(r.pattern, g.authenticated(r.scope, r.serve))
	}
	for _, m := range cfg.Mounts {
		g.mux.Handle(m.Pattern, g.authenticated(m.Scope, func(c *call) error {
			m.Handler.ServeHTTP(c.w, c.r)
			return nil
		}))
	}
	g.mux.Handle("/health", g.health())
	g.mux.HandleFunc(dashboard.Path, dashboard.New(dashboard.Config{Client: cfg.Client, Verify: g.verify, Count: g.countPage, API: g.mux}).ServeHTTP)
	g.mux.HandleFunc("GET /{$}", g.front)
	g.mux.Handle("/", g.authenticated(schemas.ScopeRead, g.noRoute))
	return g
}

// ending is what a request knows of the end of its gateway.
type ending struct {
	begun <-chan struct{} // is closed when the gateway is about to end; nil in a test without Run
	taken *sync.WaitGroup // requests that have taken their connection from the server, which does not wait for them
}

// has reports that it has begun.
func (e ending) has() bool {
	select {
	case <-e.begun:
		return true
	default:
		return false
	}
}

type endKey struct{}

// ending is that of the gateway.
func (c *call) ending() ending {
	e, _ := c.r.Context().Value(endKey{}).(ending)
	return e
}

// Run serves the connections of l until ctx ends. Then it accepts no more, and returns when the requests that are being answered have
// ended, at most after the grace, which may begin later: see [Config]. It closes l. Errors: those of l.
func (g *Gateway) Run(ctx context.Context, l net.Listener) error {
	taken := new(sync.WaitGroup)
	defer taken.Wait()
	requests, cut := context.WithCancel(context.WithValue(context.WithoutCancel(ctx), endKey{}, ending{ctx.Done(), taken}))
	defer cut()
	server := &http.Server{
		Handler: g, ReadHeaderTimeout: min(headerTimeout, g.cfg.Pause), ReadTimeout: g.cfg.Pause, IdleTimeout: idleTimeout,
		MaxHeaderBytes: headerBytes, DisableGeneralOptionsHandler: true, // it needs no token
		BaseContext: func(net.Listener) context.Context { return requests },
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // broken connections and failed handshakes
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := g.grace(requests)
		defer cancel()
		if server.Shutdown(grace) != nil {
			cut()
			_ = server.Close() // its error is that of the listener, which is closed
		}
		stopCut := context.AfterFunc(grace, cut)
		taken.Wait()
		stopCut()
		close(ended)
	})
	err := server.Serve(l)
	if stop() {
		return errors.Join(err, server.Close())
	}
	<-ended
	return nil
}

// grace returns a context that ends with the grace. cancel ends it before.
func (g *Gateway) grace(ctx context.Context) (grace context.Context, cancel func()) {
	grace, end := context.WithCancel(ctx)
	var wait sync.WaitGroup
	wait.Go(func() {
		defer end()
		if g.cfg.GraceFrom != nil {
			select {
			case <-g.cfg.GraceFrom:
			case <-grace.Done():
			}
		}
		select {
		case <-time.After(g.cfg.Grace):
		case <-grace.Done():
		}
	})
	return grace, func() {
		end()
		wait.Wait()
	}
}
