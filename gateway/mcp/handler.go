package mcp

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sluice-dev/sluice/schemas"
)

// Limits on the sessions of callers that speak a version of the protocol before 2026-07-28. Later versions have none.
const (
	maxSessions      = 1024
	maxOwnerSessions = 64
	sessionIdle      = 2 * time.Hour
)

// stateless is the first version of the protocol whose requests need no session.
const stateless = "2026-07-28"

// Headers of requests. The first two are the protocol's. The last is this package's own: it leads from a call to its HTTP request.
const (
	headerVersion = "Mcp-Protocol-Version"
	headerSession = "Mcp-Session-Id"
	headerCall    = "Sluice-Call"
)

// Caller is who has sent a request, and what it is served.
type Caller struct {
	Config
	// Owner is the identity of the caller, such as its tenant and token. A session serves the owner that began it, and no other. Required.
	Owner string
}

// Handler serves MCP over streamable HTTP. It authenticates no caller: mount it behind what does, and checks Origin and Host.
type Handler struct {
	caller   func(*http.Request) (Caller, error)
	key      []byte // of the signatures of session ids
	life     context.Context
	end      context.CancelFunc
	tools    *described
	sessions *sdk.StreamableHTTPHandler // for versions with sessions
	requests *sdk.StreamableHTTPHandler // for the others

	mu    sync.Mutex
	calls map[string]*http.Request // that are served, by the value of headerCall
	open  map[*sdk.ServerSession]struct{}
	owned map[string]int // how many sessions each owner has, or is beginning
	total int            // of owned
	left  sync.WaitGroup // for the ends of sessions
}

var _ http.Handler = (*Handler)(nil)

// NewHandler returns a handler. caller says who has sent a request, and what it is served; the status of its error is that of the code.
func NewHandler(caller func(*http.Request) (Caller, error)) *Handler {
	h := &Handler{
		caller: caller, key: []byte(rand.Text()), tools: newDescribed(),
		calls: map[string]*http.Request{}, open: map[*sdk.ServerSession]struct{}{}, owned: map[string]int{},
	}
	h.life, h.end = context.WithCancel(context.Background())
	served := func(r *http.Request) *sdk.Server {
		s, _ := r.Context().Value(serverKey{}).(*sdk.Server)
		return s
	}
	// Whatever mounts the handler checks the Host: it may be behind a proxy on this machine.
	h.sessions = sdk.NewStreamableHTTPHandler(served, &sdk.StreamableHTTPOptions{
		MaxRequestBodyBytes: maxMessage, DisableLocalhostProtection: true, SessionTimeout: sessionIdle,
	})
	h.requests = sdk.NewStreamableHTTPHandler(served, &sdk.StreamableHTTPOptions{
		MaxRequestBodyBytes: maxMessage, DisableLocalhostProtection: true, Stateless: true,
	})
	return h
}

// Close cancels the calls that run, ends the sessions, and waits for them. Later requests are refused.
func (h *Handler) Close() {
	h.end()
	h.mu.Lock()
	open := slices.Collect(maps.Keys(h.open))
	h.mu.Unlock()
	for _, s := range open {
		_ = s.Close() // it waits for the calls, which have been canceled
	}
	h.left.Wait()
}

// serverKey is the key of the server in the context of a request.
type serverKey struct{}

// ServeHTTP serves one request. When its client leaves, the call that it carries is canceled.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	caller, err := h.caller(r)
	if err != nil {
		refuse(w, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.life, cancel)()
	id := rand.Text()
	r = r.Clone(ctx)
	r.Header.Set(headerCall, id)
	h.mu.Lock()
	h.calls[id] = r
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.calls, id)
	}()
	session := r.Header.Get(headerSession)
	switch {
	case h.life.Err() != nil:
		refuse(w, schemas.Errorf(schemas.CodeUnavailable, "the server is shutting down"))
	case r.Header.Get(headerVersion) >= stateless:
		h.serveRequest(w, r, caller)
	case session == "":
		h.begin(w, r, caller)
	case !h.signed(session, caller.Owner):
		// The same answer as for a session that has ended: the caller begins another one.
		http.Error(w, "session not found", http.StatusNotFound)
	default:
		h.sessions.ServeHTTP(w, r)
	}
}

// serveRequest serves a request that needs no session.
func (h *Handler) serveRequest(w http.ResponseWriter, r *http.Request, caller Caller) {
	s, err := newServer(h.life, caller.Config, h.tools, door{call: h.call})
	if err != nil {
		refuse(w, err)
		return
	}
	h.requests.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), serverKey{}, s.sdk)))
}

// begin serves the request that begins a session.
func (h *Handler) begin(w http.ResponseWriter, r *http.Request, caller Caller) {
	release, err := h.admit(caller.Owner)
	if err != nil {
		refuse(w, err)
		return
	}
	var begun atomic.Bool
	s, err := newServer(h.life, caller.Config, h.tools, door{
		call: h.call, sessionID: func() string { return h.sign(rand.Text(), caller.Owner) },
		begun: func(session *sdk.ServerSession) {
			begun.Store(true)
			h.opened(session, release)
		},
	})
	if err != nil {
		release()
		refuse(w, err)
		return
	}
	h.sessions.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), serverKey{}, s.sdk)))
	if !begun.Load() {
		release()
	}
}

// call returns the context of the HTTP request that carries a call; nil when it has been served.
func (h *Handler) call(header http.Header) context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.calls[header.Get(headerCall)]; r != nil {
		return r.Context()
	}
	return nil
}

// admit counts a session that is beginning, until release is called. Errors: pool_exhausted.
func (h *Handler) admit(owner string) (release func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owned[owner] >= maxOwnerSessions || h.total >= maxSessions {
		return nil, schemas.Errorf(schemas.CodePoolExhausted,
			"too many MCP sessions are open: at most %d of one caller, and %d in all. A session ends with DELETE, or after %s without a request",
			maxOwnerSessions, maxSessions, sessionIdle)
	}
	h.owned[owner]++
	h.total++
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.total--
		if h.owned[owner]--; h.owned[owner] == 0 {
			delete(h.owned, owner)
		}
	}), nil
}

// opened keeps a session until it ends, and releases it then.
func (h *Handler) opened(session *sdk.ServerSession, release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open[session] = struct{}{}
	h.left.Go(func() {
		if h.life.Err() != nil {
			_ = session.Close() // Close may have missed it
		}
		_ = session.Wait() // how it ended concerns its caller
		h.mu.Lock()
		delete(h.open, session)
		h.mu.Unlock()
		release()
	})
}

// sign returns a session id for an owner alone.
func (h *Handler) sign(random, owner string) string {
	mac := hmac.New(sha256.New, h.key)
	_, _ = mac.Write([]byte(random + "\x00" + owner)) // never fails
	return random + "-" + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// signed reports whether a session id was signed for an owner.
func (h *Handler) signed(id, owner string) bool {
	random, _, _ := strings.Cut(id, "-")
	return hmac.Equal([]byte(id), []byte(h.sign(random, owner)))
}

// refuse answers a request with an error.
func refuse(w http.ResponseWriter, err error) {
	e, status := coded(err), http.StatusInternalServerError
	switch e.Code {
	case schemas.CodeInvalidArgument:
		status = http.StatusBadRequest
	case schemas.CodeUnauthenticated:
		status = http.StatusUnauthorized
	case schemas.CodePermissionDenied:
		status = http.StatusForbidden
	case schemas.CodePoolExhausted, schemas.CodeUnavailable:
		status = http.StatusServiceUnavailable
	}
	http.Error(w, string(e.Code)+": "+e.Error(), status)
}
