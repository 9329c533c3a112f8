package service

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/internal/keymutex"
	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/run"
	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/schemas"
)

// Store stores the services of threads, which change by compare-and-swap.
type Store interface {
	// Service reads a service, and the revision to change it by, which comes with not_found too. Errors: not_found, unavailable.
	Service(ctx context.Context, tenant, thread, name string) (*schemas.Service, uint64, error)
	// SaveService writes a service over a revision, and returns the new one. Errors: conflict, unavailable.
	SaveService(ctx context.Context, tenant string, s *schemas.Service, revision uint64) (uint64, error)
	// EachService passes every service of every tenant to fn. A value may be stale.
	EachService(ctx context.Context, fn func(tenant string, s *schemas.Service)) error
}

// Config sets up the services of a worker. All fields are required.
type Config struct {
	Publisher  *publisher.Publisher
	Background *work.Background
	Sessions   *session.Sessions
	Launcher   *run.Launcher
	Store      Store
	Timeout    time.Duration // for one access to the Store
	Temporary  bool          // what an earlier incarnation started is the next one's to stop
}

// maxServices is how many services of one thread may run.
const maxServices = 64

// Services are the services that a worker supervises.
type Services struct {
	cfg    Config
	ctx    context.Context // of the supervisors that are not to stop their service
	cancel context.CancelFunc

	starts keymutex.Mutex // by name: one start at a time

	mu      sync.Mutex
	running map[name]*entry
	leaving bool
}

type name struct{ tenant, thread, service string }

type entry struct {
	*supervisor
	adopted bool
}

// New starts nothing.
func New(cfg Config) *Services {
	ss := &Services{cfg: cfg, running: make(map[name]*entry)}
	ss.ctx, ss.cancel = context.WithCancel(cfg.Background.Context())
	return ss
}

// Control carries out a request about a service and calls reply, once, with the outcome, now or later. A fenced worker calls nothing: the
// answer is for the thread's owner to give.
func (ss *Services) Control(req schemas.ServiceControl, reply func(schemas.ServiceReply)) {
	answer := func(s *schemas.Service, err error) {
		if ss.cfg.Publisher.Fenced() {
			return
		}
		r := schemas.ServiceReply{}
		if s != nil {
			r.Service = s.Public()
		}
		if err != nil {
			r.Error = schemas.AsError(err)
		}
		reply(r)
	}
	t := ss.cfg.Sessions.Find(req.Tenant, req.Thread)
	if t == nil {
		answer(nil, schemas.Errorf(schemas.CodeUnavailable, "worker %s does not own thread %s: ask again", ss.cfg.Publisher.Worker, req.Thread))
		return
	}
	if req.Session != "" && req.Session != t.Session.ID {
		answer(nil, schemas.Errorf(schemas.CodeSessionExpired, "session %.128s of thread %s has ended, and the thread has another", req.Session, req.Thread))
		return
	}
	carryOut := func() {
		defer ss.starts.Lock(req.Tenant + "." + req.Thread + "." + req.Name)()
		var err error
		if req.Start != nil {
			err = ss.start(t, req, answer)
		} else {
			err = ss.stop(t, req, answer)
		}
		if err != nil {
			answer(nil, err)
		}
	}
	if !ss.cfg.Background.Go(carryOut) {
		answer(nil, ss.leavingError())
	}
}

func (ss *Services) leavingError() error {
	return schemas.Errorf(schemas.CodeUnavailable, "worker %s is shutting down", ss.cfg.Publisher.Worker)
}

// start starts a service, or joins the one that runs in this session. answer gets the service once it is healthy or has ended.
func (ss *Services) start(t *session.Thread, req schemas.ServiceControl, answer func(*schemas.Service, error)) error {
	key := name{t.Tenant, t.ID, req.Name}
	e := ss.find(key)
	if e != nil && e.ends() {
		// It is not the one that was asked for: its process may be of the session before this one.
		select {
		case <-e.done:
			e = nil
		case <-ss.cfg.Background.Context().Done():
			return ss.leavingError()
		}
	}
	if e == nil {
		s, revision, err := ss.read(key)
		if err != nil && !errors.Is(err, schemas.ErrNotFound) {
			return err
		}
		if err == nil && !s.State.Ended() && s.Worker != ss.cfg.Publisher.Worker {
			ss.cfg.Publisher.Log.Info().Str("thread", t.ID).Str("service", req.Name).Str("dead_worker", s.Worker).Msg("service_replaced")
		}
		fresh := schemas.Service{Thread: t.ID, Name: req.Name, Session: t.Session.ID, Worker: ss.cfg.Publisher.Worker, Spec: *req.Start}
		if e, err = ss.supervise(t, fresh, revision, nil); err != nil {
			return err
		}
	}
	if current := e.current(); !reflect.DeepEqual(current.Spec, *req.Start) {
		return schemas.Errorf(schemas.CodeConflict, "thread %s has a service %s that was started otherwise: stop it first", t.ID, req.Name)
	}
	began := func(s schemas.ServiceState) bool { return s == schemas.ServiceRunning || s.Ended() }
	return ss.await(e, began, func(s *schemas.Service) {
		if s.State == schemas.ServiceRunning {
			answer(s, nil)
			return
		}
		err := schemas.Errorf(schemas.CodeUnavailable, "service %s of thread %s is %s", s.Name, s.Thread, s.State)
		if s.Error != nil {
			err = schemas.Errorf(s.Error.Code,
				"service %s of thread %s: %s at start %d: %s", s.Name, s.Thread, s.State, max(s.Starts, 1), s.Error.Message)
		}
		answer(s, err)
	})
}

// stop stops a service. answer gets it once it has ended.
func (ss *Services) stop(t *session.Thread, req schemas.ServiceControl, answer func(*schemas.Service, error)) error {
	key := name{t.Tenant, t.ID, req.Name}
	e := ss.find(key)
	if e == nil {
		s, _, err := ss.read(key)
		if err == nil {
			answer(s, nil) // it has ended
		}
		return err
	}
	e.stop()
	return ss.await(e, schemas.ServiceState.Ended, func(s *schemas.Service) { answer(s, nil) })
}

func (ss *Services) await(e *entry, in func(schemas.ServiceState) bool, reply func(*schemas.Service)) error {
	if !e.await(in, reply) {
		return schemas.Errorf(schemas.CodeUnavailable, "too many callers wait for the service: try again")
	}
	return nil
}

func (ss *Services) find(key name) *entry {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.running[key]
}

func (ss *Services) read(key name) (*schemas.Service, uint64, error) {
	ctx, cancel := context.WithTimeout(ss.cfg.Background.Context(), ss.cfg.Timeout)
	defer cancel()
	return ss.cfg.Store.Service(ctx, key.tenant, key.thread, key.service)
}

// supervise begins to supervise a service: a new one, or with its state on record, and its process unless that has ended. Errors:
// limit_exceeded, unavailable.
func (ss *Services) supervise(t *session.Thread, s schemas.Service, revision uint64, p process) (*entry, error) {
	h := &hosted{services: ss, thread: t, spec: s.Spec, name: s.Name, revision: revision, reported: s.State}
	first, key := occurStart, name{t.Tenant, t.ID, s.Name}
	switch {
	case p != nil:
		first = occurAdopt
	case s.State != "":
		first = occurEnd
	}
	e := &entry{newSupervisor(h, s, p), s.State != ""}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	of := 0
	for other := range ss.running {
		if other.tenant == t.Tenant && other.thread == t.ID && other != key {
			of++
		}
	}
	switch {
	case ss.leaving:
		return nil, ss.leavingError()
	case of >= maxServices:
		return nil, schemas.Errorf(schemas.CodeLimitExceeded, "thread %s has %d services: stop one first", t.ID, of)
	case !ss.cfg.Background.Go(func() {
		e.run(ss.ctx, first)
		ss.mu.Lock()
		defer ss.mu.Unlock()
		if ss.running[key] == e {
			delete(ss.running, key)
		}
	}):
		return nil, ss.leavingError()
	}
	ss.running[key] = e
	return e, nil
}

// Resume goes on with the services of an earlier incarnation whose threads this worker has again, and records those as lost whose
// sandbox is gone. Errors: unavailable.
func (ss *Services) Resume(ctx context.Context) error {
	return ss.each(ctx, ss.cfg.Publisher.Worker, func(tenant string, s *schemas.Service, revision uint64) {
		t := ss.cfg.Sessions.Find(tenant, s.Thread)
		if t == nil || t.Session.ID != s.Session {
			if !ss.cfg.Temporary { // it may be the next worker's
				ss.reportLost(ctx, tenant, s, revision)
			}
			return
		}
		var p process
		if found := ss.cfg.Launcher.Find(tenant, s.Process()); found != nil {
			p = found
		} else {
			s.Error = schemas.Errorf(schemas.CodeLost, "process %s ended while its worker was away", s.Process())
		}
		if _, err := ss.supervise(t, *s, revision, p); err != nil {
			ss.cfg.Publisher.Log.Warn().Err(err).Str("thread", s.Thread).Str("service", s.Name).Msg("resume service")
		}
	})
}

// ReportLost records the services of a worker as lost whose lease has lapsed. Errors: unavailable.
func (ss *Services) ReportLost(ctx context.Context, worker string) error {
	return ss.each(ctx, worker, func(tenant string, s *schemas.Service, revision uint64) { ss.reportLost(ctx, tenant, s, revision) })
}

// each passes the services of a worker that have not ended to fn, as the leader has them.
func (ss *Services) each(ctx context.Context, worker string, fn func(tenant string, s *schemas.Service, revision uint64)) error {
	var found []name
	err := ss.cfg.Store.EachService(ctx, func(tenant string, s *schemas.Service) {
		if s.Worker == worker && !s.State.Ended() {
			found = append(found, name{tenant, s.Thread, s.Name})
		}
	})
	for _, key := range found {
		s, revision, readErr := ss.read(key)
		switch {
		case errors.Is(readErr, schemas.ErrNotFound):
		case readErr != nil:
			err = errors.Join(err, readErr)
		case s.Worker == worker && !s.State.Ended():
			fn(key.tenant, s, revision)
		}
	}
	return err
}

func (ss *Services) reportLost(ctx context.Context, tenant string, s *schemas.Service, revision uint64) {
	s.State, s.Since = schemas.ServiceFailed, time.Now().UTC()
	s.Error = schemas.Errorf(schemas.CodeLost, "worker %s went away, and the sandbox of service %s with it: start it again", s.Worker, s.Name)
	if _, err := ss.cfg.Store.SaveService(ctx, tenant, s, revision); err != nil {
		ss.cfg.Publisher.Log.Debug().Err(err).Str("thread", s.Thread).Str("service", s.Name).Msg("record a lost service")
		return
	}
	about := publisher.About{Tenant: tenant, Thread: s.Thread, Session: s.Session}
	ss.cfg.Publisher.Publish(ctx, ss.cfg.Publisher.Event(eventOf(s.State), about, s.Public()))
}

// Leave stops the services at a shutdown, and starts no more. Those that a temporary worker has adopted, and all of a fenced worker, stay
// for the next incarnation.
func (ss *Services) Leave() {
	ss.mu.Lock()
	ss.leaving = true
	entries := make([]*entry, 0, len(ss.running))
	for _, e := range ss.running {
		entries = append(entries, e)
	}
	ss.mu.Unlock()
	if ss.cfg.Publisher.Fenced() {
		ss.cancel()
		return
	}
	for _, e := range entries {
		if e.adopted && ss.cfg.Temporary {
			e.leave()
		} else {
			e.stop()
		}
	}
}
