package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/gateway"
	"github.com/sluice-dev/sluice/gateway/dashboard"
	"github.com/sluice-dev/sluice/gateway/mcp"
	"github.com/sluice-dev/sluice/schemas"
)

// httpFlags say where and how a gateway serves HTTP.
type httpFlags struct {
	listen string
	hosts  []string
	tls    *tlsFlags
}

const (
	defaultHTTP = "127.0.0.1:8080"
	httpOff     = "off"
)

func (f *httpFlags) addTo(c *cobra.Command, m *Main, further string) {
	c.Flags().StringVar(&f.listen, "http", cmp.Or(m.Getenv("SLUICE_HTTP"), defaultHTTP),
		"`ADDRESS` of the HTTP gateway; port 0 picks a free one"+further+" (SLUICE_HTTP)")
	c.Flags().StringArrayVar(&f.hosts, "http-host", nil,
		"`NAME` of this machine in URLs of the gateway, beside localhost and addresses; may be repeated")
}

// webListener is where a gateway serves; nil where it serves nothing.
type webListener struct {
	net.Listener
	url   string // for people
	hosts []string
}

// listenHTTP listens; nil for off. Errors: invalid_argument, unavailable.
func (f *httpFlags) listenHTTP(ctx context.Context, log zerolog.Logger) (*webListener, error) {
	if f.listen == httpOff {
		return nil, nil
	}
	host, port, err := net.SplitHostPort(f.listen)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "--http %q is no address: write HOST:PORT, or off", f.listen)
	}
	if err := f.tls.check("--http", f.listen); err != nil {
		return nil, err
	}
	pair := &keyPair{cert: f.tls.cert, key: f.tls.key, log: log}
	if pair.cert != "" {
		if _, err := pair.certificate(nil); err != nil {
			return nil, err
		}
	}
	// Without a host it would serve every network.
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port))
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "cannot serve HTTP on %s: %w: choose another address with --http", f.listen, err)
	}
	w := &webListener{Listener: l, url: "http://" + l.Addr().String(), hosts: f.hosts}
	if pair.cert != "" {
		w.Listener = tls.NewListener(l, &tls.Config{GetCertificate: pair.certificate, MinVersion: tls.VersionTLS12,
			NextProtos: []string{"h2", "http/1.1"}})
		w.url = "https://" + l.Addr().String()
	}
	return w, nil
}

// close is for a listener that may serve already, which closes it.
func (w *webListener) close() {
	if w != nil {
		_ = w.Close()
	}
}

// suffix completes the line that reports the start.
func (w *webListener) suffix() string {
	if w == nil {
		return ""
	}
	return ", dashboard " + w.url + dashboard.Path + ", HTTP " + w.url
}

// keyPair is a certificate that is read again when its file, or that of its key, has changed.
type keyPair struct {
	cert, key string
	log       zerolog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	seen    [2]time.Time // when the files had changed at the last read
	failed  string       // the error of the last read that is logged; empty for none
}

// certificate returns the current one. Files that do not make a pair leave the one before, with a warning in the log for each change of
// the files or of the error. Errors: invalid_argument, for the first one.
func (k *keyPair) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.read()
	if k.current == nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "--tls-cert or --tls-key: %w", err)
	}
	return k.current, nil
}

// read reads the files if they have changed. mu is held.
func (k *keyPair) read() error {
	changed, err := k.changed()
	if err == nil && changed == k.seen {
		return nil
	}
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.LoadX509KeyPair(k.cert, k.key)
	}
	switch {
	case err == nil:
		k.current, k.failed = &pair, ""
	case k.current != nil && (err.Error() != k.failed || changed != k.seen):
		k.log.Warn().Err(err).Str("cert", k.cert).Str("key", k.key).Msg("cannot read the changed certificate of HTTP: serving the one before; check the files of --tls-cert and --tls-key")
		k.failed = err.Error()
	}
	k.seen = changed
	return err
}

// changed returns when the files have changed; zero with an error.
func (k *keyPair) changed() (at [2]time.Time, err error) {
	for i, file := range []string{k.cert, k.key} {
		info, err := os.Stat(file)
		if err != nil {
			return [2]time.Time{}, err
		}
		at[i] = info.ModTime()
	}
	return at, nil
}

// serve runs a gateway on a server until ctx ends or stop is called, which waits for its end.
func (w *webListener) serve(ctx context.Context, g *globals, server *events.Options, cfg gateway.Config) (stop func() error, err error) {
	if w == nil {
		return func() error { return nil }, nil
	}
	server.Name = "sluice gateway"
	c, err := g.connectTo(server)
	if err != nil {
		return nil, err
	}
	cfg.Client, cfg.Hosts, cfg.MachineTenant = c.client, w.hosts, g.tenant
	tools := mcp.NewHandler(mcpCaller(cfg.Log))
	cfg.Mounts = []gateway.Mount{{Pattern: "/mcp", Scope: schemas.ScopeRead, Handler: tools}}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		stop := context.AfterFunc(ctx, tools.Close) // its sessions would hold up the end
		defer stop()
		ended <- gateway.New(cfg).Run(ctx, w)
	}()
	return func() error {
		defer c.conn.Close()
		cancel()
		defer tools.Close()
		return <-ended
	}, nil
}

// mcpCaller serves MCP to the tenant of a token; one that only reads has only the tools that read.
func mcpCaller(log zerolog.Logger) func(*http.Request) (mcp.Caller, error) {
	return func(r *http.Request) (mcp.Caller, error) {
		t := gateway.TokenOf(r.Context())
		return mcp.Caller{
			Config: mcp.Config{Client: gateway.ClientOf(r.Context()), ReadOnly: !t.Allows(schemas.ScopeExec), Version: version, Log: log},
			Owner:  t.Tenant + "/" + t.ID,
		}, nil
	}
}

func gatewayCommand(g *globals) *cobra.Command {
	f := &httpFlags{tls: &tlsFlags{}}
	var grace time.Duration
	w := &workerFlags{globals: g}
	c := &cobra.Command{
		Use:   "gateway",
		Short: "Serve HTTP for the workers of a NATS server",
		Long: `Serve the HTTP APIs for the cell of the NATS server that --nats names. It holds no state: run as
many as you like. Requests need a token that "sluice token create" has made. See docs/http.md.

Beyond loopback it needs TLS. A certificate that has changed is used for the next connection.`,
		Example: `  sluice gateway --nats nats://nats.example:4222 --creds gateway.creds
  sluice gateway --http 0.0.0.0:8443 --http-host sluice.example --tls-cert crt.pem --tls-key key.pem`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if strings.TrimSpace(g.nats) == "" {
				return schemas.Errorf(schemas.CodeInvalidArgument,
					"--nats is missing: name the NATS server, or use `sluice up`, which brings one and a gateway")
			}
			if f.listen == httpOff {
				return schemas.Errorf(schemas.CodeInvalidArgument, "--http is off: a gateway needs an address")
			}
			log, err := w.logger()
			if err != nil {
				return err
			}
			return f.gateway(cmd.Context(), g, gateway.Config{Grace: grace, Log: log})
		},
	}
	f.addTo(c, g.Main, "")
	f.tls.addTo(c)
	c.Flag("tls-cert").Usage = "certificate `FILE` of the gateway, in PEM"
	spanVar(c.Flags(), &grace, "grace", 10*time.Second, "time `DURATION` for requests that are being answered at shutdown")
	w.logFlags(c.Flags())
	return c
}

func (f *httpFlags) gateway(ctx context.Context, g *globals, cfg gateway.Config) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	web, err := f.listenHTTP(ctx, cfg.Log)
	if err != nil {
		return err
	}
	defer web.close()
	end, err := web.serve(ctx, g, g.server(), cfg)
	if err != nil {
		return err
	}
	fmt.Fprintf(g.Stdout, "gateway is up: %s\n", web.url)
	<-ctx.Done()
	return end()
}
