package gateway

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// The regular API: everything that the SDK does for callers, with the types of the contract. [Document] describes it.

// endpoint is a route of it, with its description.
type endpoint struct {
	route
	summary string
	query   []string // "name: what it is"
	body    any      // a value of the type of the JSON body; nil for none
	content string   // the media type of a body that is no JSON
	answer  any      // a value of the type of the JSON answer; nil for none
	gives   string   // the media type of an answer that is no JSON
	events  bool     // it answers with a stream when the request accepts one
	status  int      // Default 200

	messages []any // values of the types of the JSON messages of a WebSocket; nil for none
}

func v1Endpoints() []endpoint {
	return slices.Concat(v1Threads(), v1Sessions(), v1Processes(), v1Control(), v1Terminals(), v1Services(), v1Files(), v1Sync(),
		v1Stored())
}

func v1Routes() []route {
	var all []route
	for _, e := range v1Endpoints() {
		all = append(all, e.route)
	}
	return append(all,
		route{"GET /v1/openapi.json", schemas.ScopeRead, serveDocument},
		route{"GET /v1/docs", schemas.ScopeRead, servePage})
}

// wantsEvents reports that the request accepts a stream of events.
func (c *call) wantsEvents() bool {
	return slices.ContainsFunc(c.r.Header.Values("Accept"), func(s string) bool { return strings.Contains(s, "text/event-stream") })
}

// flag is a field of the query that is true or false. Errors: invalid_argument.
func (c *call) flag(name string) (bool, error) {
	switch text := c.query(name); text {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, schemas.Errorf(schemas.CodeInvalidArgument, "%s: %.20q is neither true nor false", name, text).With("path", name)
	}
}

// pairs are the fields of the query that are name=value. Errors: invalid_argument.
func (c *call) pairs(field string) (map[string]string, error) {
	all := map[string]string{}
	for _, text := range c.r.URL.Query()[field] {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "%s: %.100q is not name=value", field, text).With("path", field)
		}
		all[name] = value
	}
	return all, nil
}

func (c *call) thread() string { return c.r.PathValue("thread") }

// give answers with a value, or with an error.
func give[T any](c *call, status int, v T, err error) error {
	if err == nil {
		writeJSON(c.w, status, v)
	}
	return err
}

// sessionBody is a session to create.
type sessionBody struct {
	// Template is the template, Provider the kind of sandbox and Image its image. Default: the worker's choice.
	Template string `json:"template,omitempty"`
	Provider string `json:"provider,omitempty"`
	Image    string `json:"image,omitempty"`
	// User is the owner, and Tags are labels to find the session by.
	User string            `json:"user,omitempty"`
	Tags map[string]string `json:"tags,omitempty"`
	// IdleTimeoutMS ends the session when nothing ran for that long, and MaxLifetimeMS ends it even while something runs, in milliseconds.
	// Default: the template's.
	IdleTimeoutMS int64 `json:"idle_timeout_ms,omitempty"`
	MaxLifetimeMS int64 `json:"max_lifetime_ms,omitempty"`
	// Start starts the sandbox before the answer. Default: the first command starts it.
	Start bool `json:"start,omitempty"`
}

// renewBody is a session that is used.
type renewBody struct {
	// IdleTimeoutMS replaces the session's idle timeout, in milliseconds. Default: it stays.
	IdleTimeoutMS int64 `json:"idle_timeout_ms,omitempty"`
}

// sessionList is sessions of the tenant.
type sessionList struct {
	// Sessions has the last changed one last.
	Sessions []schemas.Session `json:"sessions"`
}

// sandboxAnswer is the sandbox of a session.
type sandboxAnswer struct {
	// ID is the id of the sandbox; absent before its first start.
	ID string `json:"id,omitempty"`
	// Session is the id of its session, and Provider its kind.
	Session  string `json:"session"`
	Provider string `json:"provider"`
	// State is what it does; empty before its first start.
	State schemas.SandboxState `json:"state"`
}

func v1Sessions() []endpoint {
	const one = "/v1/threads/{thread}/session"
	return []endpoint{
		{route: route{"GET /v1/status", schemas.ScopeRead, v1Status}, summary: "The server, the workers and the streams",
			answer: schemas.Status{}},
		{
			route: route{"GET /v1/sessions", schemas.ScopeRead, v1ListSessions}, summary: "The sessions of the tenant", answer: sessionList{},
			query: []string{"user: of this user", "template: of this template", "state: whose sandbox is in this state",
				"tag: name=value, which its tags have; several", "limit: at most so many, 1000 unless set"},
		},
		{
			route:   route{"POST " + one, schemas.ScopeExec, v1CreateSession},
			summary: "Create the session of a thread, or return the one that is there, with 200",
			body:    sessionBody{}, answer: schemas.Session{}, status: http.StatusCreated,
		},
		{route: route{"GET " + one, schemas.ScopeRead, v1GetSession}, summary: "The session of a thread", answer: schemas.Session{}},
		{
			route: route{"POST " + one + "/renew", schemas.ScopeExec, v1RenewSession}, summary: "Restart the idle time of a session",
			body:   renewBody{},
			answer: schemas.Session{},
		},
		{
			route: route{"DELETE " + one, schemas.ScopeExec, v1StopSession}, summary: "End a session; the answer is its last state",
			answer: schemas.Session{},
			query: []string{"snapshot: true pushes the workspace first", "delete: true removes the workspace from the worker",
				"grace_ms: time between SIGTERM and SIGKILL"},
		},
		{route: route{"GET /v1/threads/{thread}/sandbox", schemas.ScopeRead, v1Sandbox(false)}, summary: "The sandbox of a thread",
			answer: sandboxAnswer{}},
		{
			route: route{"POST /v1/threads/{thread}/sandbox", schemas.ScopeExec, v1Sandbox(true)}, answer: sandboxAnswer{},
			summary: "Start the sandbox of a thread, and wait until it runs",
		},
	}
}

func v1Status(c *call) error {
	s, err := c.client.Status(c.r.Context())
	return give(c, http.StatusOK, s, err)
}

func v1ListSessions(c *call) error {
	limit, err := c.queryNumber("limit", 1000, 1, maxListed)
	if err != nil {
		return err
	}
	tags, err := c.pairs("tag")
	if err != nil {
		return err
	}
	list, err := c.client.Sessions(c.r.Context(), client.SessionQuery{
		User: c.query("user"), Template: c.query("template"), State: schemas.SandboxState(c.query("state")), Tags: tags, Limit: limit,
	})
	return give(c, http.StatusOK, sessionList{list}, err)
}

func v1CreateSession(c *call) error {
	var b sessionBody
	if err := c.readJSON(&b); err != nil {
		return err
	}
	s, created, err := c.client.CreateSession(c.r.Context(), client.SessionRequest{
		Thread: c.thread(), Template: b.Template, Provider: b.Provider, Image: b.Image, User: b.User, Tags: b.Tags, Start: b.Start,
		IdleTimeout: millis(b.IdleTimeoutMS), MaxLifetime: millis(b.MaxLifetimeMS),
	})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	info, err := s.Info(c.r.Context())
	return give(c, status, info, err)
}

// millis is a time of a request. One that is too long for the type is too long for a worker as well.
func millis(ms int64) time.Duration {
	return time.Duration(max(min(ms, schemas.MaxTimeoutMS+1), -1)) * time.Millisecond
}

func v1GetSession(c *call) error {
	s, err := c.client.SessionInfo(c.r.Context(), c.thread())
	return give(c, http.StatusOK, s, err)
}

func v1RenewSession(c *call) error {
	var b renewBody
	if err := c.readJSON(&b); err != nil {
		return err
	}
	s, err := c.client.RenewSession(c.r.Context(), c.thread(), millis(b.IdleTimeoutMS))
	return give(c, http.StatusOK, s, err)
}

func v1StopSession(c *call) error {
	snapshot, err := c.flag("snapshot")
	if err != nil {
		return err
	}
	remove, err := c.flag("delete")
	if err != nil {
		return err
	}
	grace, err := c.queryNumber("grace_ms", -1, 0, int(schemas.MaxTimeoutMS))
	if err != nil {
		return err
	}
	var opts []client.StopOption
	if snapshot {
		opts = append(opts, client.StopSnapshot())
	}
	if grace >= 0 {
		opts = append(opts, client.StopGrace(millis(int64(grace))))
	}
	stop := c.client.StopSession
	if remove {
		stop = c.client.DeleteSession
	}
	s, err := stop(c.r.Context(), c.thread(), opts...)
	return give(c, http.StatusOK, s, err)
}

func v1Sandbox(start bool) func(*call) error {
	return func(c *call) error {
		info, err := c.client.SessionInfo(c.r.Context(), c.thread())
		if start {
			info, err = c.startSandbox(c.r.Context())
		}
		if err != nil {
			return err
		}
		writeJSON(c.w, http.StatusOK, sandboxAnswer{info.Sandbox, info.ID, info.Provider, info.State})
		return nil
	}
}

// startSandbox returns the session with the state of its sandbox: what is stored follows a moment later.
func (c *call) startSandbox(ctx context.Context) (*schemas.Session, error) {
	s, _, err := c.client.CreateSession(ctx, client.SessionRequest{Thread: c.thread(), Start: true})
	if err != nil {
		return nil, err
	}
	sandbox := s.Sandbox()
	if err := sandbox.Wait(ctx); err != nil {
		return nil, err
	}
	info, err := s.Info(ctx)
	if err == nil {
		info.State = sandbox.Status()
	}
	return info, err
}
