package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-dev/sluice/schemas"
)

// scrapeTimeout bounds the wait, at shutdown, for a scrape that is under way.
const scrapeTimeout = 2 * time.Second

// serveMetrics serves /metrics on an address until stop is called. A port without a host is on loopback. An empty address serves
// nothing. Errors: invalid_argument, unavailable where the address cannot be listened on.
func serveMetrics(ctx context.Context, address string) (registry *prometheus.Registry, url string, stop func(), err error) {
	registry = prometheus.NewRegistry()
	if address == "" {
		return registry, "", func() {}, nil
	}
	for _, c := range []prometheus.Collector{collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := registry.Register(c); err != nil {
			return nil, "", nil, schemas.Errorf(schemas.CodeInternal, "register metrics: %w", err)
		}
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		if strings.Contains(address, ":") {
			return nil, "", nil, schemas.Errorf(schemas.CodeInvalidArgument, "--metrics %q is no address: write HOST:PORT, or a port of loopback", address)
		}
		port = address
	}
	if host == "" { // 0.0.0.0:9464 serves every network
		host = "127.0.0.1"
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, "", nil, schemas.Errorf(schemas.CodeUnavailable, "cannot serve metrics on %s: %w: choose another address with --metrics", address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 15 * time.Second, MaxHeaderBytes: 16 << 10}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // it returns after Shutdown
	}()
	return registry, "http://" + listener.Addr().String() + "/metrics", func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), scrapeTimeout)
		defer cancel()
		if err := server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
			_ = server.Close() // cuts the scrape off
		}
		<-done
	}, nil
}
