package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// call is one authenticated request.
type call struct {
	g      *Gateway
	w      http.ResponseWriter
	r      *http.Request
	id     string         // of the request
	client *client.Client // of the token's tenant, for what the token may begin
	token  *schemas.Token
	quota  *quota
}

type callKey struct{}

// ClientOf returns the client of the tenant whose token a request to one of [Config].Mounts had.
func ClientOf(ctx context.Context) *client.Client { return ctx.Value(callKey{}).(*call).client }

// TokenOf returns the token of such a request.
func TokenOf(ctx context.Context) *schemas.Token { return ctx.Value(callKey{}).(*call).token }

// headerRequest has the id of the request, which its log line has too.
const headerRequest = "X-Request-Id"

// ServeHTTP answers a request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start, out := time.Now(), &response{ResponseWriter: w, control: http.NewResponseController(w), pause: g.cfg.Pause}
	id := ulid.Make().String()
	h := w.Header()
	h.Set(headerRequest, id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	defer func() {
		v := recover()
		if v != nil && v != http.ErrAbortHandler { //nolint:errorlint // it is the value itself
			g.logPanic(id, r, v)
			if out.status == 0 {
				writeError(out, schemas.Errorf(schemas.CodeInternal, "the gateway failed: its log has request %s", id))
				v = nil
			}
		}
		g.cfg.Log.Debug().Str("request", id).Str("method", r.Method).Str("path", r.URL.Path).Int("status", out.status).
			Dur("duration", time.Since(start)).Msg("http_request")
		if v != nil {
			panic(http.ErrAbortHandler) // a response that is cut must not look whole
		}
	}()
	if len(r.TransferEncoding) > 0 {
		// It may have had a length too, by which a proxy before the gateway would find the next request elsewhere: there is no next one.
		h.Set("Connection", "close")
	}
	if r.Body == http.NoBody {
		_ = out.control.SetReadDeadline(time.Time{}) // the server's is for the body
	} else {
		// The server looks at the body of its own request to know whether the sender still sends, or waits to be asked.
		own := *r
		r = &own
		r.Body = &body{ReadCloser: r.Body, control: out.control, pause: g.cfg.Pause}
	}
	if err := g.checkHost(r); err != nil {
		writeError(out, err)
		return
	}
	if h, _ := g.mux.Handler(r); !isRoute(h) {
		g.authenticated(schemas.ScopeRead, unclean)(out, r)
		return
	}
	g.mux.ServeHTTP(out, r)
}

// isRoute reports that a handler is a registered one, no redirect of [http.ServeMux] to a path without empty, . and .. parts: that needs no
// token, and its answer is HTML.
func isRoute(h http.Handler) bool {
	_, ok := h.(http.HandlerFunc)
	return ok
}

// unclean answers a request for a path that is another one once it is cleaned.
func unclean(c *call) error {
	return schemas.Errorf(schemas.CodeNotFound, "there is no endpoint %.100q: write the path in full, without empty, . and .. parts", c.r.URL.Path)
}

func (g *Gateway) logPanic(id string, r *http.Request, v any) {
	g.cfg.Log.Error().Str("request", id).Str("method", r.Method).Str("path", r.URL.Path).Any("panic", v).Bytes("stack",
		debug.Stack()).Msg("http_panic")
}

// authenticated serves requests whose token has a scope.
func (g *Gateway) authenticated(scope schemas.Scope, serve func(*call) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := &call{g: g, w: w, r: r, id: w.Header().Get(headerRequest)}
		var err error
		if c.token, err = g.authenticate(r); err == nil && !c.token.Allows(scope) {
			err = schemas.Errorf(schemas.CodePermissionDenied, "the token has scope %s, and this needs %s", c.token.Scope, scope)
		}
		if err == nil {
			err = c.counted(serve)
		}
		if err != nil {
			writeError(w, err)
		}
	}
}

// counted serves a request within the limits of its token.
func (c *call) counted(serve func(*call) error) error {
	now := time.Now()
	used, release := c.g.quotas.get(c.token, now)
	defer release()
	done, err := used.begin(now, c.r.ContentLength)
	if err != nil {
		return err
	}
	defer done()
	c.quota = used
	if out, ok := c.w.(*response); ok {
		out.quota = used
	}
	if in, ok := c.r.Body.(*body); ok {
		in.quota = used
	}
	a := &admission{quota: used, tenant: c.token.Tenant}
	if a.client, err = client.ForTenant(c.g.cfg.Client, c.token.Tenant); err != nil {
		return err
	}
	if c.client, err = client.ForTenant(c.g.cfg.Client, c.token.Tenant, client.WithAdmission(a)); err != nil {
		return err
	}
	c.r = c.r.WithContext(context.WithValue(c.r.Context(), callKey{}, c))
	return serve(c)
}

// countPage has a page of the dashboard made within the limits of a token.
func (g *Gateway) countPage(w http.ResponseWriter, r *http.Request, t *schemas.Token, page func() error) error {
	c := &call{g: g, w: w, r: r, token: t}
	return c.counted(func(*call) error { return page() })
}

// response is an http.ResponseWriter that knows its status, and whose receiver must not pause for too long.
type response struct {
	http.ResponseWriter
	control *http.ResponseController
	pause   time.Duration
	status  int
	quota   *quota // of the request's token; nil before that is known
}

// Unwrap is for [http.ResponseController].
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush is for handlers that look for an [http.Flusher].
func (w *response) Flush() { _ = w.control.Flush() }

// WriteHeader notes the status.
func (w *response) WriteHeader(status int) {
	if w.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

// Write extends the deadline.
func (w *response) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.extend()
	n, err := w.ResponseWriter.Write(p)
	if w.quota != nil {
		w.quota.move(time.Now(), n)
	}
	return n, err
}

func (w *response) extend() {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.pause)) // a recorder of a test has none
}

// body is the body of a request, whose sender must not pause for too long.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	pause   time.Duration
	quota   *quota    // of the request's token; nil before that is known
	until   time.Time // by when it must have arrived; zero for no such time
}

// Read extends the deadline, and removes it at the end: the server ends a request whose deadline passes while it is answered. After an
// error it stays, for what the server reads of the body after the answer.
func (b *body) Read(p []byte) (int, error) {
	by := time.Now().Add(b.pause)
	if !b.until.IsZero() && b.until.Before(by) {
		by = b.until
	}
	_ = b.control.SetReadDeadline(by)
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		_ = b.control.SetReadDeadline(time.Time{})
	case err != nil:
		return n, bodyError(err) // it is the sender's, whatever reads
	}
	if b.quota != nil {
		now := time.Now()
		b.quota.move(now, n)
		if full := b.quota.room(now, 0); full != nil {
			return n, full
		}
	}
	return n, err
}
