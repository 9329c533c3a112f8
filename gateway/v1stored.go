package gateway

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// templateList is the templates of all workers.
type templateList struct {
	// Templates are sorted by name.
	Templates []*schemas.Template `json:"templates"`
}

// messageList is a page of a conversation.
type messageList struct {
	// Messages has the oldest one first.
	Messages []*schemas.Message `json:"messages"`
	// Next is the parameter from of the next page; absent on the last one.
	Next uint64 `json:"next,omitempty"`
}

// eventList is a page of events.
type eventList struct {
	// Events has the oldest one first.
	Events []*schemas.Event `json:"events"`
	// Next is the parameter from of the next page; absent on the last one.
	Next uint64 `json:"next,omitempty"`
}

// promptBody is a message to an agent.
type promptBody struct {
	// Prompt is the text of the message. Required.
	Prompt string `json:"prompt"`
	// Template is that of the session that the thread gets when it has none. Default: the worker's choice, which may have no agent.
	Template string `json:"template,omitempty"`
	// Session is the id that the session of the thread must have. Default: any.
	Session string `json:"session,omitempty"`
	// User is the author of the message.
	User string `json:"user,omitempty"`
	// Key makes the message be answered once, however often it is sent. Default: a new key.
	Key string `json:"key,omitempty"`
	// TimeoutMS ends the agent, in milliseconds from its start. Default: the template's.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// Labels are repeated by all events of the message.
	Labels map[string]string `json:"labels,omitempty"`
}

// tokenBody is a token to create.
type tokenBody struct {
	// Name is for its readers.
	Name string `json:"name,omitempty"`
	// Scope is what it allows. Default: read.
	Scope schemas.Scope `json:"scope,omitempty"`
	// LifetimeMS is how long it is valid, in milliseconds. Default: until it is revoked.
	LifetimeMS int64 `json:"lifetime_ms,omitempty"`
	// Limits that are not given are those of the creator, and at most the defaults.
	Limits schemas.TokenLimits `json:"limits,omitzero"`
}

// createdToken is a token with its secret.
type createdToken struct {
	schemas.Token
	// Secret is what requests send. It is shown this once.
	Secret string `json:"token"`
}

// tokenList is the tokens of the tenant.
type tokenList struct {
	// Tokens are without their secrets.
	Tokens []schemas.Token `json:"tokens"`
}

func v1Stored() []endpoint {
	return []endpoint{
		{route: route{"GET /v1/templates", schemas.ScopeRead, v1Templates}, summary: "The templates of all workers", answer: templateList{}},
		{route: route{"GET /v1/templates/{name}", schemas.ScopeRead, v1Template}, summary: "A template", answer: schemas.Template{}},
		{
			route: route{"POST /v1/threads/{thread}/messages", schemas.ScopeExec, v1Prompt}, body: promptBody{}, answer: schemas.Result{},
			summary: "Send a prompt to the agent of a thread, and wait for its answer. As a stream, the agent goes on when the request ends",
			events:  true,
		},
		{
			route: route{"GET /v1/threads/{thread}/messages", schemas.ScopeRead, v1Messages}, summary: "The history of a conversation",
			answer: messageList{}, events: true,
			query: []string{"from: next of the last answer", "limit: at most so many, 100 unless set"},
		},
		{
			route: route{"GET /v1/events", schemas.ScopeRead, v1Events}, summary: "The events of the tenant, the oldest first",
			answer: eventList{}, events: true,
			query: []string{"thread: of this thread", "process: of this process",
				"label: name=value, which the command's labels have; several", "from: next of the last answer",
				"limit: at most so many, 100 unless set"},
		},
		{route: route{"GET /v1/tokens", schemas.ScopeAdmin, v1Tokens}, summary: "The tokens of the tenant", answer: tokenList{}},
		{
			route: route{"POST /v1/tokens", schemas.ScopeAdmin, v1CreateToken}, summary: "Create a token, which is shown this once",
			body: tokenBody{}, answer: createdToken{},
			status: http.StatusCreated,
		},
		{route: route{"DELETE /v1/tokens/{id}", schemas.ScopeAdmin, v1RevokeToken}, summary: "Revoke a token", status: http.StatusNoContent},
	}
}

func v1Templates(c *call) error {
	list, err := c.client.Templates(c.r.Context())
	return give(c, http.StatusOK, templateList{append([]*schemas.Template{}, list...)}, err)
}

func v1Template(c *call) error {
	t, err := c.client.Template(c.r.Context(), c.r.PathValue("name"))
	return give(c, http.StatusOK, t, err)
}

func v1Prompt(c *call) error {
	var b promptBody
	if err := c.readJSON(&b); err != nil {
		return err
	}
	p := client.Prompt{
		Thread: c.thread(), Text: b.Prompt, Template: b.Template, Session: b.Session, User: b.User, Key: b.Key,
		Timeout: millis(b.TimeoutMS), Origin: c.origin(b.Labels),
	}
	if c.wantsEvents() {
		return c.streamExecution(c.client.MessageStream(c.r.Context(), p))
	}
	r, err := c.client.Message(c.r.Context(), p)
	return give(c, http.StatusOK, r, err)
}

func v1Messages(c *call) error {
	read := func(ctx context.Context, from uint64, follow bool, fn func(*schemas.Message) error) error {
		return c.client.Messages(ctx, client.MessageQuery{Thread: c.thread(), From: from, Follow: follow}, fn)
	}
	list, next, err := history(c, read, func(m *schemas.Message) uint64 { return m.Seq })
	if err != nil || list == nil {
		return err
	}
	writeJSON(c.w, http.StatusOK, messageList{list, next})
	return nil
}

func v1Events(c *call) error {
	labels, err := c.pairs("label")
	if err != nil {
		return err
	}
	read := func(ctx context.Context, from uint64, follow bool, fn func(*schemas.Event) error) error {
		return c.client.Events(ctx, client.EventQuery{
			Thread: c.query("thread"), Process: c.query("process"), Labels: labels, From: from, Follow: follow,
		}, fn)
	}
	list, next, err := history(c, read, func(e *schemas.Event) uint64 { return e.Seq })
	if err != nil || list == nil {
		return err
	}
	writeJSON(c.w, http.StatusOK, eventList{list, next})
	return nil
}

// history reads what a stream has stored: a page of it with the place of the next one, or all of it and what follows, as events; list is
// nil then.
func history[T any](
	c *call, read func(ctx context.Context, from uint64, follow bool, fn func(T) error) error, seq func(T) uint64,
) (list []T, next uint64, err error) {
	from, err := c.sequence("from")
	if err != nil {
		return nil, 0, err
	}
	limit, err := c.queryNumber("limit", 100, 1, maxListed)
	if err != nil {
		return nil, 0, err
	}
	if c.wantsEvents() {
		if last := c.lastEvent(); last != "" {
			n, err := strconv.ParseUint(last, 10, 63)
			if err != nil {
				return nil, 0, schemas.Errorf(schemas.CodeInvalidArgument, "Last-Event-ID: %.60q is no id of an event of this stream", last)
			}
			from = n + 1
		}
		return nil, 0, c.stream(func(ctx context.Context, send func(streamEvent) error) error {
			return read(ctx, from, true, func(v T) error {
				return send(streamEvent{id: strconv.FormatUint(seq(v), 10), data: v})
			})
		})
	}
	list, full := []T{}, errors.New("the page is full")
	err = read(c.r.Context(), from, false, func(v T) error {
		if len(list) == limit {
			next = seq(v)
			return full
		}
		list = append(list, v)
		return nil
	})
	if errors.Is(err, full) {
		err = nil
	}
	return list, next, err
}

func v1Tokens(c *call) error {
	list, err := client.NewTokens(c.client).List(c.r.Context())
	return give(c, http.StatusOK, tokenList{list}, err)
}

func v1CreateToken(c *call) error {
	b := tokenBody{Limits: schemas.DefaultTokenLimits().AtMost(&c.token.Limits)}
	if err := c.readJSON(&b); err != nil {
		return err
	}
	if err := cmp.Or(b.Limits.Validate(), b.Limits.Within(&c.token.Limits)); err != nil {
		return err
	}
	if b.LifetimeMS < 0 || b.LifetimeMS > maxTokenLife.Milliseconds() {
		return schemas.Errorf(schemas.CodeInvalidArgument, "lifetime_ms: %d is not from 0 to %d", b.LifetimeMS,
			maxTokenLife.Milliseconds()).With("path", "lifetime_ms")
	}
	secret, info, err := client.NewTokens(c.client).Create(c.r.Context(), client.TokenRequest{
		Name: b.Name, Scope: b.Scope, Lifetime: time.Duration(b.LifetimeMS) * time.Millisecond, Limits: &b.Limits,
	})
	if err != nil {
		return err
	}
	writeJSON(c.w, http.StatusCreated, createdToken{*info, secret})
	return nil
}

// maxTokenLife is the longest lifetime of a token that has one.
const maxTokenLife = 10 * 365 * 24 * time.Hour

func v1RevokeToken(c *call) error {
	return c.done(client.NewTokens(c.client).Revoke(c.r.Context(), c.r.PathValue("id")))
}
