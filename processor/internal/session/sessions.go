package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/internal/keymutex"
	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Store holds the sessions, changed by compare-and-swap.
type Store interface {
	// Session reads a session and the revision to change it by. Errors: not_found.
	Session(ctx context.Context, tenant, thread string) (*schemas.Session, uint64, error)
	// SaveSession replaces a revision, 0 for a new session. Errors: conflict.
	SaveSession(ctx context.Context, s *schemas.Session, revision uint64) (uint64, error)
	// DeleteSession deletes the session if it is still at this revision. Errors: conflict.
	DeleteSession(ctx context.Context, s *schemas.Session, revision uint64) error
	// EachSession calls fn with every session of every tenant, and the revision to change it by.
	EachSession(ctx context.Context, fn func(s *schemas.Session, revision uint64) error) error
}

// Subscriptions receive the commands of the threads that the worker owns.
type Subscriptions interface {
	// Subscribe receives the commands of a thread. A second call changes nothing.
	Subscribe(ctx context.Context, tenant, thread string) error
	// Unsubscribe ends that.
	Unsubscribe(tenant, thread string)
}

// Owed stores the pushes that workers owe.
type Owed interface {
	// SaveOwed stores or replaces the push that a worker owes for a thread. Errors: unavailable.
	SaveOwed(ctx context.Context, o *schemas.OwedPush) error
}

// Lists are what the operator allows each tenant.
type Lists interface {
	// Check refuses a template, the network of its sandboxes, and the image that the caller named; empty for the operator's own. Errors:
	// permission_denied, invalid_argument.
	Check(tenant, template string, network schemas.Network, image string) error
}

// Config sets up the sessions of a worker. The fields that a worker's configuration has as well mean the same there.
type Config struct {
	Publisher  *publisher.Publisher
	Background *work.Background
	Timeouts   work.Timeouts

	Store         Store
	Subscriptions Subscriptions
	LeaseAlive    func(ctx context.Context, worker string) (bool, error)
	// Template returns a template by name, the default one for an empty name. Errors: not_found.
	Template func(name string) (*schemas.Template, error)
	Hooks    Hooks // nil: none run
	Owed     Owed  // nil: a dead worker's workspace is not noted as owed
	Kept     Kept  // nil: workspaces stay without an end
	Secrets  func(t *schemas.Template) (map[string]string, error)
	Allow    Lists // nil: tenants may use everything
	Places   *Places

	Temporary       bool // no other worker can serve what this one cannot, and what it found is the next one's
	Providers       map[string]sandbox.Provider
	DefaultProvider string
	ImageProvider   string
	Image           string
	Limits          sandbox.Limits
	Network         schemas.Network
	Workspaces      string
	KeepWorkspaces  time.Duration // negative: without an end
	IdleTimeout     time.Duration
	StopGrace       time.Duration
}

// drainLimit is how many sessions a worker expires or parks at a time: all of them may be due at once.
const drainLimit = 64

// Sessions are the threads that a worker owns.
type Sessions struct {
	cfg        Config
	publisher  *publisher.Publisher
	background *work.Background

	mu      sync.Mutex
	threads map[string]*Thread // by key
	leaving bool

	claims     keymutex.Mutex // by key: one claim or one end at a time
	drainSlots chan struct{}

	offer      offer
	entries    *entries
	sandboxes  *sandboxes
	workspaces *Workspaces
}

// New starts nothing.
func New(cfg Config) *Sessions {
	ss := &Sessions{
		cfg: cfg, publisher: cfg.Publisher, background: cfg.Background,
		threads: make(map[string]*Thread), drainSlots: make(chan struct{}, drainLimit),
	}
	ss.offer = offer{&ss.cfg}
	ss.entries = &entries{store: cfg.Store, owed: cfg.Owed, template: cfg.Template, idleDefault: cfg.IdleTimeout, publisher: cfg.Publisher, background: cfg.Background}
	ss.sandboxes = &sandboxes{
		providers: cfg.Providers, places: cfg.Places, limits: cfg.Limits, network: cfg.Network, secrets: cfg.Secrets, hooks: cfg.Hooks, stopGrace: cfg.StopGrace, timeouts: cfg.Timeouts,
		allowed: ss.offer.allowed, publisher: cfg.Publisher, background: cfg.Background, entries: ss.entries, drainSlots: ss.drainSlots,
	}
	ss.workspaces = &Workspaces{
		root: cfg.Workspaces, keep: cfg.KeepWorkspaces, kept: cfg.Kept, sessions: ss, publisher: cfg.Publisher, background: cfg.Background,
		ended: make(map[string]time.Time),
	}
	ss.sandboxes.creating, ss.sandboxes.stopCreating = context.WithCancel(cfg.Background.Context())
	return ss
}

// Workspaces returns the folders of the threads.
func (ss *Sessions) Workspaces() *Workspaces { return ss.workspaces }

func key(tenant, thread string) string { return tenant + "." + thread }

// Find returns a thread that this worker owns, nil for any other.
func (ss *Sessions) Find(tenant, thread string) *Thread {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.threads[key(tenant, thread)]
}

// About is what an event of a thread is about, which may have no session here.
func (ss *Sessions) About(tenant, thread string) publisher.About {
	if t := ss.Find(tenant, thread); t != nil {
		return t.About(schemas.Origin{})
	}
	return publisher.About{Tenant: tenant, Thread: thread}
}

// ProviderOf returns the provider of a thread's session, whichever worker has it; empty for no session. Errors: unavailable.
func (ss *Sessions) ProviderOf(ctx context.Context, tenant, thread string) (string, error) {
	s, _, err := ss.cfg.Store.Session(ctx, tenant, thread)
	switch {
	case errors.Is(err, schemas.ErrNotFound), Unreadable(err):
		return "", nil
	case err != nil:
		return "", err
	}
	return s.Provider, nil
}

// IDOf returns the id of the session that a thread has here, empty for none.
func (ss *Sessions) IDOf(tenant, thread string) string {
	if t := ss.Find(tenant, thread); t != nil {
		return t.Session.ID
	}
	return ""
}

func (ss *Sessions) all() []*Thread {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	threads := make([]*Thread, 0, len(ss.threads))
	for _, t := range ss.threads {
		threads = append(threads, t)
	}
	return threads
}

// Leave stops new claims, and new ends of sessions.
func (ss *Sessions) Leave() {
	ss.mu.Lock()
	ss.leaving = true
	ss.mu.Unlock()
}

// StopCreating cancels the sandboxes that are being created.
func (ss *Sessions) StopCreating() { ss.sandboxes.stopCreating() }

// HandOver gives every thread up at shutdown: the next owner finds its session, and its workspace as the hooks leave it. A temporary
// worker leaves the sandboxes that it adopted.
func (ss *Sessions) HandOver() {
	ss.sandboxes.stopCreating()
	ctx, cancel := context.WithTimeout(context.Background(), ss.cfg.Timeouts.SandboxEnd)
	defer cancel()
	var group sync.WaitGroup
	for _, t := range ss.all() {
		group.Go(func() { ss.handOver(ctx, t) })
	}
	group.Wait()
}

// Sandbox returns the thread's sandbox, and creates one when there is none, or the last one has ended. The events of a sandbox carry the
// origin of the command for which it was created. Errors: the provider's, those of a cold start, session_expired.
func (ss *Sessions) Sandbox(ctx context.Context, t *Thread, origin schemas.Origin) (sandbox.Sandbox, error) {
	return ss.sandboxes.get(ctx, t, origin)
}

// RunHooks runs the template's hooks for an occasion. Errors: the first critical hook's.
func (ss *Sessions) RunHooks(ctx context.Context, t *Thread, o Occasion) (schemas.HookOutcome, error) {
	return ss.sandboxes.runHooks(ctx, t, o)
}

// Place claims a thread that no worker owns, and makes its session when it has none. room is that of Request.
func (ss *Sessions) Place(ctx context.Context, tenant string, req schemas.PlaceRequest, room func() bool) schemas.PlaceReply {
	want := Request{
		Placement: Placement{req.Provider, req.Image}, Template: req.Template, Existing: req.Existing, User: req.User, Tags: req.Tags, Sandbox: !req.WithoutRoom,
		IdleTimeoutMS: req.IdleTimeoutMS, LifetimeMS: req.MaxLifetimeMS, Origin: req.Origin, Room: room,
	}
	claim, err := ss.Claim(ctx, tenant, req.Thread, want)
	if err == nil && claim.Thread != nil && !req.Existing {
		claim, err = ss.claimAfterEnd(ctx, claim, want)
	}
	if err != nil {
		return schemas.PlaceReply{Error: schemas.AsError(err)}
	}
	reply := schemas.PlaceReply{Worker: claim.Owner, Session: claim.session, Created: claim.created}
	if claim.Thread == nil {
		return reply
	}
	defer claim.Thread.YieldPlace()
	if req.Start {
		if _, err := ss.Sandbox(ctx, claim.Thread, req.Origin); err != nil {
			reply.Error = schemas.AsError(StartError(err))
			return reply
		}
		claim.Thread.touch()
	}
	current := ss.Info(claim.Thread)
	reply.Session = &current
	if !claim.created && !req.Existing {
		ss.entries.reportReuse(claim.Thread, req.Origin, &current)
	}
	return reply
}

// claimAfterEnd claims again while the claimed session is being ended. Errors: those of Claim; unavailable when the end takes long.
func (ss *Sessions) claimAfterEnd(ctx context.Context, claim Claim, want Request) (Claim, error) {
	bound, cancel := context.WithTimeout(ctx, ss.cfg.Timeouts.Accept)
	defer cancel()
	for claim.Thread != nil {
		t := claim.Thread
		t.mu.Lock()
		end := t.termination
		t.mu.Unlock()
		if end == nil {
			return claim, nil
		}
		end.Wait(bound)
		if bound.Err() != nil {
			return Claim{}, schemas.Errorf(schemas.CodeUnavailable, "the session of thread %s is being ended: try again", t.ID)
		}
		var err error
		if claim, err = ss.Claim(ctx, t.Tenant, t.ID, want); err != nil {
			return claim, err
		}
	}
	return claim, nil
}

// Control carries out a request about a session and calls reply, once, with the outcome, now or later. A fenced worker calls
// nothing: the answer is for the thread's owner to give.
func (ss *Sessions) Control(ctx context.Context, req schemas.SessionControl, reply func(schemas.SessionReply)) {
	done := func(r schemas.SessionReply) {
		if !ss.publisher.Fenced() {
			reply(r)
		}
	}
	refuse := func(err error) { done(schemas.SessionReply{Error: schemas.AsError(err)}) }
	t := ss.Find(req.Tenant, req.Thread)
	if t == nil {
		// A request that was sent before this worker gave the thread up still arrives here.
		refuse(schemas.Errorf(schemas.CodeUnavailable, "worker %s does not own thread %s: ask again", ss.publisher.Worker, req.Thread))
		return
	}
	// What takes longer than the caller of this method may wait for.
	later := func(f func() schemas.SessionReply) {
		if !ss.background.Go(func() { done(f()) }) {
			refuse(schemas.Errorf(schemas.CodeUnavailable, "worker %s is shutting down", ss.publisher.Worker))
		}
	}
	id := ""
	switch {
	case req.Stop != nil:
		id = req.Stop.Session
	case req.Renew != nil:
		id = req.Renew.Session
	case req.Start != nil:
		id = req.Start.Session
	case req.Sync != nil:
		id = req.Sync.Session
	}
	if err := sameSession(id, &t.Session); err != nil {
		refuse(err)
		return
	}
	switch {
	case req.Stop != nil:
		end, err := ss.terminate(t, stopTermination(req.Stop), nil)
		if err != nil {
			refuse(err)
			return
		}
		end.onDone(done)
	case req.Renew != nil:
		later(func() schemas.SessionReply { return ss.renew(ctx, t, req.Renew) })
	case req.Start != nil:
		later(func() schemas.SessionReply { return ss.start(ctx, t, req.Start) })
	case req.Sync != nil:
		later(func() schemas.SessionReply { return ss.sync(ctx, t, req.Sync, req.Caller) })
	default:
		refuse(schemas.Errorf(schemas.CodeInvalidArgument, "the session request has no operation: set stop, renew, start or sync"))
	}
}

func (ss *Sessions) renew(ctx context.Context, t *Thread, req *schemas.RenewRequest) schemas.SessionReply {
	ctx, cancel := context.WithTimeout(ctx, ss.cfg.Timeouts.Accept)
	defer cancel()
	t.mu.Lock()
	ending := t.termination != nil
	if !ending {
		t.lastUsed = time.Now()
	}
	t.mu.Unlock()
	if ending {
		return schemas.SessionReply{Error: schemas.AsError(t.endingError())}
	}
	saved, err := ss.entries.change(ctx, t, func(s *schemas.Session) {
		if req.IdleTimeoutMS > 0 {
			s.IdleTimeoutMS = req.IdleTimeoutMS
		}
	})
	if err != nil {
		return schemas.SessionReply{Error: schemas.AsError(err)}
	}
	return schemas.SessionReply{Session: saved}
}

// start creates the thread's sandbox, or requests it.
func (ss *Sessions) start(ctx context.Context, t *Thread, req *schemas.StartRequest) schemas.SessionReply {
	var requested schemas.SandboxInfo
	var err error
	if req.NoWait {
		requested, err = ss.sandboxes.request(t)
	} else {
		_, err = ss.Sandbox(ctx, t, schemas.Origin{})
	}
	if err != nil {
		return notStarted(ss, t, err)
	}
	t.touch()
	current := ss.Info(t)
	if req.NoWait {
		current.State, current.Sandbox = requested.State, requested.ID
	}
	return schemas.SessionReply{Session: &current}
}

// Info returns the thread's session as it is now.
func (ss *Sessions) Info(t *Thread) schemas.Session { return ss.entries.info(t) }

// Amend changes the session of a thread that this worker owns. Errors: session_expired when the thread has another session or
// none here, lost, unavailable.
func (ss *Sessions) Amend(ctx context.Context, tenant, thread, session string, edit func(*schemas.Session)) error {
	t := ss.Find(tenant, thread)
	if t == nil || t.Session.ID != session {
		return schemas.Errorf(schemas.CodeSessionExpired, "worker %s does not own session %.128s of thread %s", ss.publisher.Worker, session, thread)
	}
	_, err := ss.entries.change(ctx, t, edit)
	return err
}

// Owns returns nil while this worker owns a thread under an epoch, by KV and by its lease. Errors: lost, unavailable.
func (ss *Sessions) Owns(ctx context.Context, tenant, thread string, epoch uint64) error {
	if !ss.publisher.Fenced() {
		s, _, err := ss.cfg.Store.Session(ctx, tenant, thread)
		if err != nil && !errors.Is(err, schemas.ErrNotFound) {
			return err
		}
		// The lease is checked last: the read may have taken long.
		if err == nil && s.Owner == ss.publisher.Worker && s.Epoch == epoch && !ss.publisher.Fenced() {
			return nil
		}
	}
	return schemas.Errorf(schemas.CodeLost, "worker %s no longer owns thread %s under epoch %d: another worker may", ss.publisher.Worker, thread, epoch)
}
