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

// metricsPatience bounds a scrape that is under way when the program ends.
const metricsPatience = 2 * time.Second

// serveMetrics serves /metrics on an address, until stop is called; a port alone is one of this machine's. An empty address serves
// nothing. Errors: invalid_argument, unavailable where the address is taken.
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
			return nil, "", nil, schemas.Errorf(schemas.CodeInvalidArgument, "--metrics %q: write HOST:PORT, or a port of this machine alone", address)
		}
		port = address
	}
	if host == "" { // who wants every network says so: 0.0.0.0:9464
		host = "127.0.0.1"
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, "", nil, schemas.Errorf(schemas.CodeUnavailable, "--metrics %s: %w", address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 15 * time.Second, MaxHeaderBytes: 16 << 10}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // it ends with Shutdown, or with the listener
	}()
	return registry, "http://" + listener.Addr().String() + "/metrics", func() {
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), metricsPatience)
		defer cancel()
		if err := server.Shutdown(patience); errors.Is(err, context.DeadlineExceeded) {
			_ = server.Close() // nobody waits for the rest
		}
		<-done
	}, nil
}
