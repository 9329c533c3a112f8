package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

type templateList struct {
	Templates []*schemas.Template `json:"templates"`
}

type messageList struct {
	Messages []*schemas.Message `json:"messages"`
	Next     uint64             `json:"next,omitempty"`
}

type eventList struct {
	Events []*schemas.Event `json:"events"`
	Next   uint64           `json:"next,omitempty"`
}

// promptBody is a message to an agent.
type promptBody struct {
	Prompt    string            `json:"prompt"`
	Template  string            `json:"template,omitempty"`
	Session   string            `json:"session,omitempty"`
	User      string            `json:"user,omitempty"`
	Key       string            `json:"key,omitempty"`
	TimeoutMS int64             `json:"timeout_ms,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

type tokenBody struct {
	Name       string        `json:"name,omitempty"`
	Scope      schemas.Scope `json:"scope,omitempty"`
	LifetimeMS int64         `json:"lifetime_ms,omitempty"`
}

type createdToken struct {
	schemas.Token
	Secret string `json:"token"`
}

type tokenList struct {
	Tokens []schemas.Token `json:"tokens"`
}

func v1Stored() []endpoint {
	return []endpoint{
		{route: route{"GET /v1/templates", schemas.ScopeRead, v1Templates}, summary: "The templates of all workers", answer: templateList{}},
		{route: route{"GET /v1/templates/{name}", schemas.ScopeRead, v1Template}, summary: "A template", answer: schemas.Template{}},
		{
			route: route{"POST /v1/threads/{thread}/messages", schemas.ScopeExec, v1Prompt}, body: promptBody{}, answer: schemas.Result{},
			summary: "Send a prompt to the agent of a thread, and wait for its answer",
		},
		{
			route: route{"GET /v1/threads/{thread}/messages", schemas.ScopeRead, v1Messages}, summary: "The history of a conversation",
			answer: messageList{}, events: true,
			query: []string{"from: next of the last answer", "limit: at most so many, 100 unless set"},
		},
		{
			route: route{"GET /v1/events", schemas.ScopeRead, v1Events}, summary: "The events of the tenant, the oldest first",
			answer: eventList{}, events: true,
			query: []string{"thread: of this thread", "process: of this process", "from: next of the last answer",
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
	r, err := c.client.Message(c.r.Context(), client.Prompt{
		Thread: c.thread(), Text: b.Prompt, Template: b.Template, Session: b.Session, User: b.User, Key: b.Key,
		Timeout: millis(b.TimeoutMS), Origin: c.origin(b.Labels),
	})
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
	read := func(ctx context.Context, from uint64, follow bool, fn func(*schemas.Event) error) error {
		return c.client.Events(ctx, client.EventQuery{Thread: c.query("thread"), Process: c.query("process"), From: from, Follow: follow}, fn)
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
	var b tokenBody
	if err := c.readJSON(&b); err != nil {
		return err
	}
	if b.LifetimeMS < 0 || b.LifetimeMS > maxTokenLife.Milliseconds() {
		return schemas.Errorf(schemas.CodeInvalidArgument, "lifetime_ms: %d is not from 0 to %d", b.LifetimeMS,
			maxTokenLife.Milliseconds()).With("path", "lifetime_ms")
	}
	secret, info, err := client.NewTokens(c.client).Create(c.r.Context(), client.TokenRequest{
		Name: b.Name, Scope: b.Scope, Lifetime: time.Duration(b.LifetimeMS) * time.Millisecond,
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
