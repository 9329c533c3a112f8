package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// hosted is the host of one service: its thread on this worker. One supervisor uses it.
type hosted struct {
	services *Services
	thread   *session.Thread
	spec     schemas.ServiceSpec
	name     string
	revision uint64
	reported schemas.ServiceState
}

var _ host = (*hosted)(nil)

// ServiceLabel is the label of a service's processes and of their events: its name.
const ServiceLabel = "service"

func (h *hosted) origin() schemas.Origin {
	return schemas.Origin{Labels: map[string]string{ServiceLabel: h.name}}
}

func (h *hosted) prepare() (id string, launch launcher) {
	key := ulid.Make().String()
	return schemas.ProcessID(h.thread.Tenant, h.thread.ID, key), func(ctx context.Context) (process, error) { return h.launch(ctx, key) }
}

func (h *hosted) launch(ctx context.Context, key string) (process, error) {
	if err := h.over(); err != nil {
		return nil, err
	}
	p, err := h.services.cfg.Launcher.Launch(ctx, h.thread, key, h.spec.Exec(), h.origin())
	if err != nil {
		return nil, err
	}
	dir := h.spec.Cwd
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(h.thread.Session.Workspace, dir)
	}
	publisher.LogSession(h.services.cfg.Publisher.Log.Info(), h.thread.ID, h.thread.Session.ID).Str("service", h.name).
		Str("process", p.ID()).Str("command", h.spec.Command).Str("dir", dir).Msg("service_launched")
	return p, nil
}

func (h *hosted) over() error {
	if h.thread.Ending() || h.services.cfg.Sessions.Find(h.thread.Tenant, h.thread.ID) != h.thread {
		return schemas.Errorf(schemas.CodeSessionExpired, "session %s of thread %s has ended", h.thread.Session.ID, h.thread.ID)
	}
	return nil
}

func (h *hosted) record(ctx context.Context, s *schemas.Service) error {
	p := h.services.cfg.Publisher
	if err := p.CheckLease(); err != nil {
		return err
	}
	// The end of the worker must not cut a record.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.services.cfg.Timeout)
	defer cancel()
	revision, err := h.services.cfg.Store.SaveService(ctx, h.thread.Tenant, s, h.revision)
	switch {
	case errors.Is(err, schemas.ErrConflict):
		return schemas.Errorf(schemas.CodeLost, "service %s of thread %s was changed by another worker: %w", h.name, h.thread.ID, err)
	case err != nil:
		p.Log.Warn().Err(err).Str("thread", h.thread.ID).Str("service", h.name).Msg("service not recorded")
		return err
	}
	h.revision = revision
	if h.reported == s.State {
		return nil
	}
	h.reported = s.State
	line := publisher.LogSession(p.Log.Info(), h.thread.ID, h.thread.Session.ID).Str("service", h.name).Str("process", s.Process())
	if s.State == schemas.ServiceRunning {
		line = line.Float64("healthy_ms", s.HealthyMS)
	} else if s.Error != nil {
		line = line.Str("reason", s.Error.Message)
	}
	line.Msg("service_" + string(s.State))
	p.Publish(ctx, p.Event(eventOf(s.State), h.thread.About(h.origin()), s.Public()))
	return nil
}

// eventOf is the event of a service that has entered a state.
func eventOf(s schemas.ServiceState) schemas.EventType {
	return schemas.EventType("service." + string(s))
}

// probe checks the health in the sandbox that runs. The server's answer is hostile: it ends with ctx, nothing of it is followed or kept,
// and its head is bounded.
func (h *hosted) probe(ctx context.Context) error {
	sb := h.thread.Standing()
	check := h.spec.Health
	switch {
	case sb == nil:
		return schemas.Errorf(schemas.CodeUnavailable, "the sandbox of thread %s does not run", h.thread.ID)
	case len(check.Command) > 0:
		if err := session.RunCommand(ctx, sb, check.Command, nil, nil); err != nil {
			code := schemas.CodeOf(err)
			if code == schemas.CodeInvalidArgument { // of the command alone: it ran, and says that the service is not healthy
				code = schemas.CodeUnavailable
			}
			return schemas.Errorf(code, "the health check failed: %w", err)
		}
		return nil
	}
	dialer, ok := sb.(sandbox.Dialer)
	if !ok {
		return schemas.Errorf(schemas.CodeUnavailable, "the sandbox of thread %s makes no connections", h.thread.ID)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.Dial(ctx, uint16(check.Port), check.Socket) //nolint:gosec // checked when the service was started
	}
	if check.Path != "" {
		return get(ctx, dial, check.Path)
	}
	conn, err := dial(ctx, "", "")
	if err != nil {
		return err
	}
	return conn.Close()
}

// maxHead is how many bytes the head of an answer may have.
const maxHead = 16 << 10

// get makes one request and wants a status from 200 to 299.
func get(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error), path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, http.NoBody)
	if err != nil {
		return schemas.Errorf(schemas.CodeInvalidArgument, "health path %q: %w", path, err)
	}
	resp, err := (&http.Transport{DialContext: dial, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHead}).RoundTrip(req)
	if err != nil {
		if ctx.Err() != nil {
			return schemas.Errorf(schemas.CodeDeadlineExceeded, "GET %s was not answered in time", path)
		}
		return schemas.Errorf(schemas.CodeUnavailable, "GET %s: %s", path, cut(err.Error()))
	}
	_ = resp.Body.Close() // it is not read
	if resp.StatusCode/100 != 2 {
		return schemas.Errorf(schemas.CodeUnavailable, "GET %s was answered with status %d", path, resp.StatusCode)
	}
	return nil
}

// cut bounds what a server has a part in.
func cut(s string) string { return fmt.Sprintf("%.200s", s) }
