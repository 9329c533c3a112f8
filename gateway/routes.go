package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/gateway/dashboard"
	"github.com/sluice-dev/sluice/schemas"
)

// route is an endpoint.
type route struct {
	pattern string // of [http.ServeMux]
	scope   schemas.Scope
	serve   func(*call) error
}

// routes are all endpoints but /health, which needs no token.
func (g *Gateway) routes() []route {
	return slices.Concat(sessionRoutes(), processRoutes(), conversationRoutes(), v1Routes())
}

// front leads browsers to the dashboard.
func (g *Gateway) front(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Redirect(w, r, dashboard.Path, http.StatusSeeOther)
		return
	}
	g.authenticated(schemas.ScopeRead, g.noRoute)(w, r)
}

// noRoute answers a request that no route matches.
func (g *Gateway) noRoute(c *call) error {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		r := c.r.Clone(c.r.Context())
		r.Method = method
		if _, pattern := g.mux.Handler(r); pattern != "/" && pattern != "GET /{$}" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		return schemas.Errorf(schemas.CodeNotFound, "there is no endpoint %.100q", c.r.URL.Path)
	}
	c.w.Header().Set("Allow", strings.Join(allowed, ", "))
	return &refusal{
		err: schemas.Errorf(schemas.CodeInvalidArgument, "%.100q has no method %.20q: use %s", c.r.URL.Path, c.r.Method,
			strings.Join(allowed, " or ")),
		status: http.StatusMethodNotAllowed,
	}
}
