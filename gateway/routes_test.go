package gateway

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// No route answers without a token but /health, whatever the method.
func TestEveryRouteNeedsAToken(t *testing.T) {
	t.Parallel()
	g := New(Config{MachineToken: "secret", Mounts: []Mount{{
		Pattern: "/mcp", Scope: schemas.ScopeRead, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a mount was reached") }),
	}}})
	paths := []string{"/", "/mcp", "/metrics", "/debug/pprof/", "/v1", "/v1/", "/v1//docs", "/v1/threads/t/files", "/v1/x/../docs", "/health/", "//health", "*"}
	for _, r := range g.routes() {
		_, path, _ := strings.Cut(r.pattern, " ")
		for strings.Contains(path, "{") {
			before, rest, _ := strings.Cut(path, "{")
			_, after, _ := strings.Cut(rest, "}")
			path = before + "x" + after
		}
		paths = append(paths, path)
	}
	if len(paths) < 60 {
		t.Fatalf("%d paths, want all routes", len(paths))
	}
	for _, path := range paths {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"} {
			for _, authorization := range []string{"", "Bearer", "Basic secret", "secret"} {
				r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1/", nil)
				r.URL.Path, r.RequestURI, r.Host = path, path, "127.0.0.1"
				if authorization != "" {
					r.Header.Set("Authorization", authorization)
				}
				w := httptest.NewRecorder()
				g.ServeHTTP(w, r)
				if w.Code != http.StatusUnauthorized || w.Header().Get("Content-Type") != "application/json" {
					t.Errorf("%s %s with %q: status %d of type %s", method, path, authorization, w.Code, w.Header().Get("Content-Type"))
				}
			}
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), "GET", "http://127.0.0.1/health", nil)
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	testkit.Equal(t, "/health", strings.TrimSpace(w.Body.String()), `{"status":"healthy"}`)
}
