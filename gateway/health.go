package gateway

import (
	"net/http"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// healthAnswer is the state of the cell. Its pool is what its workers run at once.
type healthAnswer struct {
	Status         string `json:"status"`
	WorkerID       string `json:"worker_id"`
	PoolSize       int    `json:"pool_size"`
	PoolAvailable  int    `json:"pool_available"`
	ActiveSessions int    `json:"active_sessions"`
	UptimeSeconds  int64  `json:"uptime_seconds"`
	NATSConnected  bool   `json:"nats_connected"`
}

// health is the one endpoint that needs no token: without one it says that the gateway runs, and nothing else.
func (g *Gateway) health() http.HandlerFunc {
	detailed := g.authenticated(schemas.ScopeRead, g.detailedHealth)
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			g.authenticated(schemas.ScopeRead, g.noRoute)(w, r)
		case r.Header.Get("Authorization") == "":
			writeJSON(w, http.StatusOK, map[string]string{"status": "healthy"})
		default:
			detailed(w, r)
		}
	}
}

func (g *Gateway) detailedHealth(c *call) error {
	a := healthAnswer{Status: "unhealthy", UptimeSeconds: int64(time.Since(g.started) / time.Second)}
	if s, err := c.client.Status(c.r.Context()); err == nil {
		a.count(s)
	}
	if a.WorkerID == "" {
		writeJSON(c.w, http.StatusServiceUnavailable, a)
		return nil
	}
	a.Status = "healthy"
	writeJSON(c.w, http.StatusOK, a)
	return nil
}

// count adds what a cell has.
func (a *healthAnswer) count(s *schemas.Status) {
	a.NATSConnected, a.ActiveSessions = true, s.Sessions
	var workers []string
	for i := range s.Workers {
		w := &s.Workers[i]
		if !w.Alive {
			continue
		}
		workers = append(workers, w.ID)
		if w.Limits != nil {
			a.PoolSize += w.Limits.Processes
			a.PoolAvailable += max(0, w.Limits.Processes-w.Processes)
		}
	}
	a.WorkerID = strings.Join(workers, ",")
}
