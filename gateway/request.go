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
	client *client.Client // of the token's tenant
	token  *schemas.Token
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
	if r.Body == http.NoBody {
		_ = out.control.SetReadDeadline(time.Time{}) // the server's is for the body
	} else {
		r.Body = &body{ReadCloser: r.Body, control: out.control, pause: g.cfg.Pause}
	}
	if err := g.checkHost(r); err != nil {
		writeError(out, err)
		return
	}
	g.mux.ServeHTTP(out, r)
}

func (g *Gateway) logPanic(id string, r *http.Request, v any) {
	g.cfg.Log.Error().Str("request", id).Str("method", r.Method).Str("path", r.URL.Path).Any("panic", v).Bytes("stack",
		debug.Stack()).Msg("http_panic")
}

// authenticated serves requests whose token has a scope.
func (g *Gateway) authenticated(scope schemas.Scope, serve func(*call) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := &call{g: g, w: w, r: r}
		var err error
		if c.token, err = g.authenticate(r); err == nil && !c.token.Allows(scope) {
			err = schemas.Errorf(schemas.CodePermissionDenied, "the token has scope %s, and this needs %s", c.token.Scope, scope)
		}
		if err == nil {
			c.client, err = client.ForTenant(g.cfg.Client, c.token.Tenant)
		}
		if err == nil {
			c.r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
			err = serve(c)
		}
		if err != nil {
			writeError(w, err)
		}
	}
}

// response is an http.ResponseWriter that knows its status, and whose receiver must not pause for too long.
type response struct {
	http.ResponseWriter
	control *http.ResponseController
	pause   time.Duration
	status  int
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
	return w.ResponseWriter.Write(p)
}

func (w *response) extend() {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.pause)) // a recorder of a test has none
}

// body is the body of a request, whose sender must not pause for too long.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	pause   time.Duration
}

// Read extends the deadline, and removes it at the end: the server ends a request whose deadline passes while it is answered. After an
// error it stays, for what the server reads of the body after the answer.
func (b *body) Read(p []byte) (int, error) {
	_ = b.control.SetReadDeadline(time.Now().Add(b.pause))
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
