package processor

import (
	"context"
	"net"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// connectTimeout bounds a connection to a server in a sandbox. The caller asks again after 5 s.
const connectTimeout = 3 * time.Second

// HandleConnect connects to a port in the sandbox of a thread that this worker owns. Errors: not_found when nothing listens there, or no
// sandbox runs; unavailable, marked as declined when the thread is another worker's.
func (w *Worker) HandleConnect(ctx context.Context, tenant, thread string, req schemas.ConnectRequest) (net.Conn, error) {
	t := w.sessions.Find(tenant, thread)
	if t == nil || w.publisher.Fenced() {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "worker %s does not own thread %s: ask again", w.cfg.Worker, thread).With(schemas.DetailDeclined, "owner")
	}
	dialer, ok := t.Standing().(sandbox.Dialer)
	if !ok {
		return nil, schemas.Errorf(schemas.CodeNotFound, "thread %s has no sandbox that runs: start a service or a command in it first", thread)
	}
	t.Hold() // the session is in use now
	defer t.Release()
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return dialer.Dial(ctx, uint16(req.Port), "") //nolint:gosec // checked when it was decoded
}
