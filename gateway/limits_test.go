package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/gateway"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// limited returns a token of scope exec with limits, as a header.
func (w *web) limited(l schemas.TokenLimits) func(*http.Request) {
	w.t.Helper()
	secret, _ := w.token("default", client.TokenRequest{Scope: schemas.ScopeExec, Limits: &l})
	return bearer(secret)
}

// over fails the test unless the response says that a limit of the token is reached, and when to come back.
func (a *answer) over(limit string) *answer {
	a.t.Helper()
	a.is("over "+limit, http.StatusTooManyRequests)
	details, _ := a.json["details"].(map[string]any)
	testkit.Equal(a.t, "limit", details[schemas.DetailTokenLimit], any(limit))
	if n, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || n < 1 {
		a.t.Errorf("Retry-After = %q, want seconds", a.header.Get("Retry-After"))
	}
	return a.failed("over "+limit, http.StatusTooManyRequests, schemas.CodeLimitExceeded)
}

const runTrue = `{"command":"true"}`

func TestRateOfAToken(t *testing.T) {
	w := newWeb(t, func(c *gateway.Config) {
		c.Mounts = []gateway.Mount{{Pattern: "/mcp", Scope: schemas.ScopeRead, Handler: http.NotFoundHandler()}}
	})
	slow, other := w.limited(schemas.TokenLimits{Rate: 0.01, Burst: 3}), w.limited(schemas.TokenLimits{Rate: 0.01, Burst: 1})
	w.request("GET", "/v1/sessions", "", slow).is("the first request", http.StatusOK)
	w.request("POST", "/mcp", "{}", slow).is("a mount", http.StatusNotFound)
	w.request("GET", "/no/such/route", "", slow).is("no route", http.StatusNotFound)
	for _, path := range []string{"/v1/sessions", "/mcp", "/no/such/route", "/health"} {
		w.request("GET", path, "", slow).over("rate")
	}
	w.request("GET", "/health", "", func(r *http.Request) { r.Header.Del("Authorization") }).is("without a token", http.StatusOK)
	w.request("GET", "/v1/sessions", "", other).is("another token", http.StatusOK)
	w.request("GET", "/v1/sessions", "", other).over("rate")
	w.request("GET", "/v1/sessions", "").is("the token of the machine", http.StatusOK)
}

// Pages of the dashboard count as requests of the token of their cookie.
func TestPagesOfAToken(t *testing.T) {
	w := newWeb(t, nil)
	secret, _ := w.token("default", client.TokenRequest{Limits: &schemas.TokenLimits{Rate: 0.01, Burst: 2}})
	cookie := w.signedIn(secret)
	page := func(path string) *answer {
		return w.request("GET", path, "", func(r *http.Request) { r.Header.Del("Authorization") }, func(r *http.Request) { r.AddCookie(cookie) })
	}
	page("/ui/").is("the first page", http.StatusOK)
	page("/ui/static/app.js").is("a script", http.StatusOK) // counts as none
	page("/ui/processes").is("the second page", http.StatusOK)
	a := page("/ui/").is("the third page", http.StatusTooManyRequests)
	testkit.Contains(t, "its text", string(a.body), "The limit of your token is reached")
	if n, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || n < 1 {
		t.Errorf("Retry-After = %q, want seconds", a.header.Get("Retry-After"))
	}
}

func TestConcurrentStreamsOfAToken(t *testing.T) {
	w := newWeb(t, nil)
	token := w.limited(schemas.TokenLimits{Concurrent: 1})
	req, err := http.NewRequestWithContext(w.ctx, "GET", w.url+"/v1/events", http.NoBody)
	testkit.Must(t, err)
	token(req)
	req.Header.Set("Accept", "text/event-stream")
	s := w.follow(req)
	w.request("GET", "/v1/sessions", "", token).over("concurrent")
	testkit.Must(t, s.resp.Body.Close())
	w.waitForLog(`"path":"/v1/events"`) // it has ended
	w.request("GET", "/v1/sessions", "", token).is("after the stream", http.StatusOK)
}

func TestSessionsOfAToken(t *testing.T) {
	w := newWeb(t, nil)
	token := w.limited(schemas.TokenLimits{Sessions: 1})
	create := func(thread string) *answer {
		return w.request("POST", "/v1/threads/"+thread+"/session", "{}", token)
	}
	create("t1").is("the first session", http.StatusCreated)
	create("t1").is("the same session", http.StatusOK)
	create("t2").over("max_sessions")
	w.request("POST", "/create_session", `{"user_id":"a","thread_id":"t2"}`, token).over("max_sessions")
	w.request("POST", "/v1/threads/t2/exec", runTrue, token).over("max_sessions")
	w.request("POST", "/v1/threads/t2/messages", `{"prompt":"x","template":"echo-agent"}`, token).over("max_sessions")
	w.request("PUT", "/v1/threads/t2/files/a", "x", token).over("max_sessions")
	w.request("POST", "/api/service/start", `{"command":"sleep","args":["300"],"sessionId":"t2"}`, token).over("max_sessions")
	w.request("POST", "/v1/threads/t1/exec", runTrue, token).is("a command in the session that is there", http.StatusOK)
	w.request("GET", "/v1/threads/t2/session", "", token).is("what it may read", http.StatusNotFound)
	w.request("POST", "/v1/threads/t3/session", "{}").is("the token of the machine", http.StatusCreated)
	w.request("DELETE", "/v1/threads/t1/session", "", token).is("the end of a session", http.StatusOK)
	create("t2").over("max_sessions") // of the tenant, which has another one
	w.request("DELETE", "/v1/threads/t3/session", "", token).is("the end of the other", http.StatusOK)
	create("t2").is("in the place of those", http.StatusCreated)
}

func TestProcessesOfAToken(t *testing.T) {
	w := newWeb(t, func(c *gateway.Config) {
		c.Mounts = []gateway.Mount{{Pattern: "/mcp", Scope: schemas.ScopeExec, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := gateway.ClientOf(r.Context()).Exec(r.Context(), client.Request{Thread: "t1", Command: "true"})
			_, _ = io.WriteString(w, string(schemas.CodeOf(err)))
		})}}
	})
	token := w.limited(schemas.TokenLimits{Processes: 1})
	start := `{"command":"sleep","args":["300"],"key":"k1"}`
	id := w.request("POST", "/v1/threads/t1/processes", start, token).is("the first process", http.StatusCreated).text("process")
	w.request("POST", "/v1/threads/t1/processes", start, token).is("the same process", http.StatusCreated)
	w.request("POST", "/v1/threads/t1/exec", runTrue, token).over("max_processes")
	w.request("POST", "/v1/threads/t1/exec", runTrue, token, header("Accept", "text/event-stream")).over("max_processes")
	w.request("POST", "/api/process/start", runTrue, token).over("max_processes")
	w.request("POST", "/api/service/start", `{"command":"sleep","args":["300"]}`, token).over("max_processes")
	testkit.Equal(t, "a call of MCP", string(w.request("POST", "/mcp", "{}", token).body), string(schemas.CodeLimitExceeded))
	w.request("POST", "/v1/threads/t1/exec", runTrue).is("the token of the machine", http.StatusOK)
	p, err := w.Process(w.ctx, "t1", id)
	testkit.Must(t, err)
	w.request("DELETE", "/v1/processes/"+id+"?grace_ms=0", "", token).is("a kill", http.StatusNoContent)
	_, err = p.Wait(w.ctx)
	testkit.Must(t, err)
	for range 3 {
		w.request("POST", "/v1/threads/t1/exec", runTrue, token).is("one after the other", http.StatusOK)
	}
}

func TestBytesOfAToken(t *testing.T) {
	w := newWeb(t, nil)
	token := w.limited(schemas.TokenLimits{BytesPerHour: 100_000})
	file := "/v1/threads/t1/files/"
	content := strings.Repeat("x", 60_000)
	w.request("PUT", file+"a", content, token).is("the first file", http.StatusCreated)
	w.request("PUT", file+"b", content, token).over("bytes_per_hour")
	w.request("GET", file+"a", "", token).over("bytes_per_hour")
	unknown := func(r *http.Request) {
		r.ContentLength, r.Body = -1, io.NopCloser(strings.NewReader(strings.Repeat(content, 10)))
	}
	w.request("PUT", file+"b", "", token, unknown).over("bytes_per_hour")
	w.request("GET", "/v1/sessions", "", token).over("bytes_per_hour")
	w.request("GET", file+"a", "").is("the token of the machine", http.StatusOK)
	w.request("GET", file+"b", "").is("no part of the other file", http.StatusNotFound)

	id := w.newSession("t2")
	w.request("POST", "/upload_file", "", w.limited(schemas.TokenLimits{BytesPerHour: 1000}), func(r *http.Request) {
		r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		r.ContentLength, r.Body = -1, io.NopCloser(strings.NewReader("--b\r\nContent-Disposition: form-data; name=\"session_id\"\r\n\r\n"+id+
			"\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n"+content+"\r\n--b--\r\n"))
	}).over("bytes_per_hour")
	testkit.Equal(t, "files", w.request("GET", "/list_files?session_id="+id, "").number("total_files"), 0.0)

	req, err := http.NewRequestWithContext(w.ctx, "POST", w.url+"/v1/threads/t1/exec",
		strings.NewReader(`{"command":"sh","args":["-c","head -c 1000000 /dev/zero | tr '\\0' x; exec sleep 300"]}`))
	testkit.Must(t, err)
	w.limited(schemas.TokenLimits{BytesPerHour: 100_000})(req)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	all := w.follow(req).until("error")
	testkit.Equal(t, "code of the last event", all[len(all)-1].text("code"), string(schemas.CodeLimitExceeded))
}

func TestLimitsOfNewTokens(t *testing.T) {
	w := newWeb(t, nil)
	make := func(body string, change ...func(*http.Request)) *answer {
		return w.request("POST", "/v1/tokens", body, change...)
	}
	limits := func(a *answer) map[string]any {
		l, _ := a.is("create", http.StatusCreated).json["limits"].(map[string]any)
		return l
	}
	standard := limits(make("{}"))
	testkit.Equal(t, "the default rate", standard["rate"], any(float64(schemas.DefaultTokenRate)))
	testkit.Equal(t, "the default of sessions", standard["max_sessions"], any(float64(schemas.DefaultTokenSessions)))
	some := limits(make(`{"limits":{"max_sessions":3,"max_processes":0}}`))
	testkit.Equal(t, "sessions", some["max_sessions"], any(3.0))
	testkit.Equal(t, "no limit of processes", some["max_processes"], nil)
	testkit.Equal(t, "the default of what is not given", some["concurrent"], any(float64(schemas.DefaultTokenConcurrent)))
	for _, rate := range []float64{20, 0.5} {
		testkit.Equal(t, "the rate", limits(make(fmt.Sprintf(`{"limits":{"rate":%v}}`, rate)))["rate"], any(rate))
	}
	negative := make(`{"limits":{"rate":-1}}`).failed("a negative rate", http.StatusBadRequest, schemas.CodeInvalidArgument)
	testkit.Contains(t, "the error of a negative rate", string(negative.body), "limits.rate: -1 is neither")
	make(`{"limits":{"rate":"20"}}`).failed("a text for a rate", http.StatusBadRequest, schemas.CodeInvalidArgument)
	make(`{"limits":{"rate":1e999}}`).failed("a rate without end", http.StatusBadRequest, schemas.CodeInvalidArgument)
	admin := bearer(make(`{"scope":"admin","limits":{"max_sessions":2}}`).text("token"))
	make(`{"limits":{"max_sessions":3}}`, admin).failed("more than the creator", http.StatusForbidden, schemas.CodePermissionDenied)
	make(`{"limits":{"max_sessions":0}}`, admin).failed("no limit", http.StatusForbidden, schemas.CodePermissionDenied)
	testkit.Equal(t, "what its creator has", limits(make(`{}`, admin))["max_sessions"], any(2.0))
}

// A stream that is open when its token is revoked ends.
func TestRevokedTokenEndsItsStreams(t *testing.T) {
	w := newWeb(t, func(c *gateway.Config) { c.Heartbeat = testkit.Timeout / 2000 })
	secret, id := w.token("default", client.TokenRequest{})
	req, err := http.NewRequestWithContext(w.ctx, "GET", w.url+"/v1/events", http.NoBody)
	testkit.Must(t, err)
	bearer(secret)(req)
	req.Header.Set("Accept", "text/event-stream")
	s := w.follow(req)
	testkit.Must(t, client.NewTokens(w.Client).Revoke(w.ctx, id))
	all := s.until("error")
	testkit.Equal(t, "code of the last event", all[len(all)-1].text("code"), string(schemas.CodeUnauthenticated))
	w.request("GET", "/v1/sessions", "", bearer(secret)).failed("a replay", http.StatusUnauthorized, schemas.CodeUnauthenticated)
}
