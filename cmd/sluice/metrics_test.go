package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// The listener of the metrics serves nothing else. That the gateway serves none is in its own tests.
func TestMetricsHaveAListenerOfTheirOwn(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	_, address, stop, err := serveMetrics(ctx, "127.0.0.1:0")
	testkit.Must(t, err)
	defer stop()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	base := strings.TrimSuffix(address, "/metrics")
	for path, want := range map[string]int{
		"/metrics": http.StatusOK, "/": http.StatusNotFound, "/health": http.StatusNotFound, "/v1/sessions": http.StatusNotFound, "/mcp": http.StatusNotFound,
		"/metrics/": http.StatusNotFound, "/debug/pprof/": http.StatusNotFound,
	} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, http.NoBody)
		testkit.Must(t, err)
		resp, err := (&http.Client{Transport: transport}).Do(req)
		testkit.Must(t, err)
		testkit.Must(t, resp.Body.Close())
		testkit.Equal(t, "status of "+path, resp.StatusCode, want)
	}
}
