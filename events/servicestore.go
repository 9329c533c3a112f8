package events

import (
	"context"
	"encoding/json"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// ServiceStore stores the services of threads, which change by compare-and-swap. One that has ended expires with the events.
type ServiceStore struct{ conn *Conn }

func serviceKey(tenant, thread, name string) string {
	return servicePrefix + tenant + "." + thread + "." + name
}

// Service reads a service, and the revision to change it by, from the leader. With not_found, the revision is that for a new service.
// Errors: not_found, unavailable.
func (s *ServiceStore) Service(ctx context.Context, tenant, thread, name string) (*schemas.Service, uint64, error) {
	c, what := s.conn, "service "+name+" of thread "+thread
	m, err := c.leaderLast(ctx, kvStream(c.names.state), kvSubject(c.names.state, serviceKey(tenant, thread, name)))
	switch {
	case err != nil:
		return nil, 0, wrap(err, "read "+what)
	case kvDeleted(m):
		revision := uint64(0)
		if m != nil {
			revision = m.seq
		}
		return nil, revision, schemas.Errorf(schemas.CodeNotFound, "%s does not exist", what)
	}
	service := new(schemas.Service)
	if err := json.Unmarshal(m.data, service); err != nil {
		return nil, 0, schemas.Errorf(schemas.CodeInternal, "decode %s: %w", what, err)
	}
	return service, m.seq, nil
}

// SaveService writes a service over the revision that was read, and returns the new one. Errors: conflict, unavailable.
func (s *ServiceStore) SaveService(ctx context.Context, tenant string, service *schemas.Service, revision uint64) (uint64, error) {
	c := s.conn
	ttl := c.topology.EventAge
	if !service.State.Ended() {
		ttl = 0
	}
	key, what := serviceKey(tenant, service.Thread, service.Name), "service "+service.Name+" of thread "+service.Thread
	return saveState(ctx, c, key, what, service, revision, ttl)
}

// EachService passes every service of every tenant to fn. A value may be stale. Errors: unavailable, deadline_exceeded.
func (s *ServiceStore) EachService(ctx context.Context, fn func(tenant string, s *schemas.Service)) error {
	return eachService(ctx, s.conn, "*.*.*", fn)
}

// Services returns the services of a tenant, or of one thread of it. Errors: unavailable, deadline_exceeded.
func (r *Reader) Services(ctx context.Context, tenant, thread string) ([]schemas.Service, error) {
	services := []schemas.Service{}
	err := eachService(ctx, r.conn, tenant+"."+orAny(thread)+".*", func(_ string, s *schemas.Service) { services = append(services, *s) })
	return services, err
}

func eachService(ctx context.Context, c *Conn, keys string, fn func(tenant string, s *schemas.Service)) error {
	type placed struct {
		tenant string
		schemas.Service
	}
	list, err := listPlaced(ctx, c, servicePrefix+keys, "services", func(p *placed, tenant, thread, name string) {
		p.tenant, p.Thread, p.Name = tenant, thread, name
	})
	for i := range list {
		fn(list[i].tenant, &list[i].Service)
	}
	return err
}

// handleService handles a request about a service of a thread that this worker owns.
func (l *Listener) handleService(m *nats.Msg, tenant, thread string) {
	reply := func(r schemas.ServiceReply) {
		if body, err := json.Marshal(r); err == nil { // it holds only strings and numbers
			l.inboxes.respond(tenant, m, nil, body)
		}
	}
	req, err := schemas.DecodeServiceRequest(m.Data)
	if err != nil {
		reply(schemas.ServiceReply{Error: schemas.AsError(err)})
		return
	}
	handler, ctx := l.target()
	handler.HandleService(ctx, schemas.ServiceControl{Tenant: tenant, Thread: thread, ServiceRequest: *req}, reply)
}

// ControlService starts or stops a service, and waits until it is healthy or has ended. Errors: not_found, conflict, session_expired,
// invalid_argument, why it failed, ctx's, unavailable.
func (c *Caller) ControlService(ctx context.Context, tenant, thread string, req schemas.ServiceRequest) (*schemas.Service, error) {
	operation := "stop"
	if req.Start != nil {
		operation = "start"
	}
	operation += " service " + req.Name + " of thread " + thread
	answer, err := requestOwner(ctx, c, ownerRequest{tenant, thread, VerbService, operation, req}, func(r *schemas.ServiceReply) bool {
		return r.Service == nil && r.Error != nil && r.Error.Code == schemas.CodeUnavailable
	})
	switch {
	case err != nil:
		return nil, err
	case answer.Error != nil:
		return answer.Service, answer.Error
	}
	return answer.Service, nil
}
