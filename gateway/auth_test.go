package gateway_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/gateway"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func bearer(token string) func(*http.Request) { return header("Authorization", "Bearer "+token) }

// token creates a token of a tenant.
func (w *web) token(tenant string, req client.TokenRequest) (secret, id string) {
	w.t.Helper()
	c, err := client.ForTenant(w.Client, tenant)
	testkit.Must(w.t, err)
	secret, info, err := client.NewTokens(c).Create(w.ctx, req)
	testkit.Must(w.t, err)
	return secret, info.ID
}

func TestTokensOfAGateway(t *testing.T) {
	w := newWeb(t, nil)
	get := func(change ...func(*http.Request)) *answer {
		return w.request("GET", "/get_session?thread_id=none", "", change...)
	}
	run := func(token string) *answer {
		return w.request("POST", "/create_session", `{"user_id":"a","thread_id":"t1"}`, bearer(token))
	}
	reader, readerID := w.token("default", client.TokenRequest{Name: "looks"})
	runner, _ := w.token("default", client.TokenRequest{Scope: schemas.ScopeExec, Lifetime: time.Hour})
	other, _ := w.token("acme", client.TokenRequest{Scope: schemas.ScopeExec})
	expired := &events.StoredToken{Token: schemas.Token{ID: "old", Tenant: "default", Scope: schemas.ScopeRead,
		Expires: time.Now().Add(-time.Second)}}
	sum := []byte("\xe3\xb0\xc4\x42\x98\xfc\x1c\x14\x9a\xfb\xf4\xc8\x99\x6f\xb9\x24\x27\xae\x41\xe4\x64\x9b\x93\x4c\xa4\x95\x99\x1b\x78\x52\xb8\x55") // SHA-256 of nothing
	expired.Hash = sum
	testkit.Must(t, events.NewTokenStore(w.conn).CreateToken(w.ctx, expired))

	get(bearer(reader)).is("read", http.StatusNotFound)
	get(header("Authorization", "bearer "+reader)).is("the scheme in lower case", http.StatusNotFound)
	run(reader).failed("execute with read", http.StatusForbidden, schemas.CodePermissionDenied)
	run(runner).is("execute", http.StatusCreated)
	w.request("GET", "/get_session?thread_id=t1", "", bearer(other)).is("the thread of another tenant", http.StatusNotFound)
	run(other).is("the same thread of another tenant", http.StatusCreated)

	for name, change := range map[string]func(*http.Request){
		"no token":              func(r *http.Request) { r.Header.Del("Authorization") },
		"another scheme":        header("Authorization", "Basic "+reader),
		"no secret":             bearer("slt_" + readerID),
		"a wrong secret":        bearer("slt_" + readerID + "_WRONG"),
		"the secret of another": bearer("slt_" + readerID + "_" + runner[strings.LastIndex(runner, "_")+1:]),
		"an unknown id":         bearer("slt_none_" + reader[strings.LastIndex(reader, "_")+1:]),
		"an invalid id":         bearer("slt_a.>_x"),
		"a part of the token":   bearer(machineToken[:len(machineToken)-1]),
		"more than the token":   bearer(machineToken + "x"),
		"a huge token":          bearer(strings.Repeat("x", 20_000)),
		"an expired token":      bearer("slt_old_"),
	} {
		a := get(change).failed(name, http.StatusUnauthorized, schemas.CodeUnauthenticated)
		testkit.Contains(t, name+": WWW-Authenticate", a.header.Get("WWW-Authenticate"), "Bearer")
		w.request("GET", "/no/such/route", "", change).is(name+", no route", http.StatusUnauthorized)
	}
	tokens := client.NewTokens(w.Client)
	testkit.Must(t, tokens.Revoke(w.ctx, readerID))
	get(bearer(reader)).failed("a revoked token", http.StatusUnauthorized, schemas.CodeUnauthenticated)
	testkit.WantCode(t, tokens.Revoke(w.ctx, readerID), schemas.CodeNotFound)
	acme := other[len("slt_"):strings.LastIndex(other, "_")]
	testkit.WantCode(t, tokens.Revoke(w.ctx, acme), schemas.CodeNotFound) // of another tenant
	list, err := tokens.List(w.ctx)
	testkit.Must(t, err)
	testkit.Equal(t, "tokens", len(list), 2)

	stored := ""
	testkit.Must(t, events.NewTokenStore(w.conn).EachToken(w.ctx, func(k *schemas.Token) error {
		full, err := events.NewTokenStore(w.conn).Token(w.ctx, k.ID)
		stored += fmt.Sprintf("%+v %s", full, full.Hash)
		return err
	}))
	for _, secret := range []string{runner, other} {
		if strings.Contains(stored, secret[strings.LastIndex(secret, "_")+1:]) {
			t.Error("a secret is stored")
		}
	}
}

func TestForeignHostsAndOrigins(t *testing.T) {
	w := newWeb(t, func(c *gateway.Config) { c.Hosts = []string{"sluice.example"} })
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	own := strings.TrimPrefix(w.url, "http://")
	for _, tt := range []struct {
		name   string
		change func(*http.Request)
		status int
	}{
		{"its address", host(own), http.StatusOK},
		{"localhost", host("LOCALHOST:8080"), http.StatusOK},
		{"an address of IPv6", host("[::1]:8080"), http.StatusOK},
		{"a configured name", host("sluice.example"), http.StatusOK},
		{"its own page", header("Origin", w.url), http.StatusOK},
		{"a name that leads here", host("attacker.example"), http.StatusForbidden},
		{"a name that looks like an address", host("127.0.0.1.attacker.example:8080"), http.StatusForbidden},
		{"a name that looks like localhost", host("localhost.attacker.example"), http.StatusForbidden},
		{"a foreign page", header("Origin", "https://attacker.example"), http.StatusForbidden},
		{"a page of another port", header("Origin", "http://127.0.0.1:1"), http.StatusForbidden},
		{"its page by another scheme", header("Origin", "https://"+own), http.StatusForbidden},
		{"a page without an origin", header("Origin", "null"), http.StatusForbidden},
		{"an origin that is none", header("Origin", "http://%zz"), http.StatusForbidden},
	} {
		w.request("GET", "/health", "", tt.change).is(tt.name, tt.status)
	}
}

func TestBadRequests(t *testing.T) {
	w := newWeb(t, nil)
	id := w.newSession("t1")
	deep := strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000)
	for _, tt := range []struct {
		name, method, path, body string
		status                   int
		code                     schemas.Code
		change                   func(*http.Request)
	}{
		{"no route", "GET", "/nothing", "", 404, schemas.CodeNotFound, nil},
		{"another method", "GET", "/execute", "", 405, schemas.CodeInvalidArgument, nil},
		{"no JSON", "POST", "/execute", "no", 400, schemas.CodeInvalidArgument, nil},
		{"no body", "POST", "/execute", "", 400, schemas.CodeInvalidArgument, header("Content-Type", "application/json")},
		{"another content type", "POST", "/execute", "{}", 400, schemas.CodeInvalidArgument, header("Content-Type", "text/plain")},
		{"no content type", "POST", "/execute", "{}", 400, schemas.CodeInvalidArgument, func(r *http.Request) { r.Header.Del("Content-Type") }},
		{"an array", "POST", "/execute", "[]", 400, schemas.CodeInvalidArgument, nil},
		{"two objects", "POST", "/execute", "{}{}", 400, schemas.CodeInvalidArgument, nil},
		{"an unknown field", "POST", "/execute", `{"sesion_id":"x"}`, 400, schemas.CodeInvalidArgument, nil},
		{"a field twice", "POST", "/execute", `{"command":"a","command":"b"}`, 400, schemas.CodeInvalidArgument, nil},
		{"null", "POST", "/execute", `{"command":null}`, 400, schemas.CodeInvalidArgument, nil},
		{"a number for a text", "POST", "/execute", `{"command":1}`, 400, schemas.CodeInvalidArgument, nil},
		{"deep JSON", "POST", "/execute", deep, 400, schemas.CodeInvalidArgument, nil},
		{"huge JSON", "POST", "/execute", `{"command":"` + strings.Repeat("x", 1<<20) + `"}`, 413, schemas.CodeTooLarge, nil},
		{"no command", "POST", "/execute", `{"session_id":"` + id + `"}`, 400, schemas.CodeInvalidArgument, nil},
		{"no session", "POST", "/execute", `{"command":"echo"}`, 400, schemas.CodeInvalidArgument, nil},
		{"a negative timeout", "POST", "/execute", `{"session_id":"` + id + `","command":"echo","timeout":-1}`, 400,
			schemas.CodeInvalidArgument, nil},
		{"a huge timeout", "POST", "/execute", `{"session_id":"` + id + `","command":"echo","timeout":9223372036854775807}`, 400,
			schemas.CodeInvalidArgument, nil},
		{"no thread", "POST", "/create_session", `{"user_id":"a"}`, 400, schemas.CodeInvalidArgument, nil},
		{"no user", "POST", "/create_session", `{"thread_id":"a"}`, 400, schemas.CodeInvalidArgument, nil},
		{"a thread that is a path", "POST", "/create_session", `{"user_id":"a","thread_id":"../a"}`, 400, schemas.CodeInvalidArgument, nil},
		{"a thread that is a pattern", "GET", "/get_session?thread_id=a.%3E", "", 400, schemas.CodeInvalidArgument, nil},
		{"no thread to get", "GET", "/get_session", "", 400, schemas.CodeInvalidArgument, nil},
		{"no session to list", "GET", "/list_files", "", 400, schemas.CodeInvalidArgument, nil},
		{"no form", "POST", "/upload_file", `{}`, 400, schemas.CodeInvalidArgument, nil},
		{"a form without an end", "POST", "/upload_file", "--b\r\n", 400, schemas.CodeInvalidArgument, header("Content-Type",
			"multipart/form-data; boundary=b")},
	} {
		change := tt.change
		if change == nil {
			change = func(*http.Request) {}
		}
		w.request(tt.method, tt.path, tt.body, change).failed(tt.name, tt.status, tt.code)
	}
	session, file := field{name: "session_id", value: id}, field{"file", "a", "content"}
	for name, form := range map[string][]field{
		"no file":                 {session},
		"no session":              {file},
		"the session last":        {file, session},
		"a field that is unknown": {session, {name: "mode", value: "777"}},
		"a long field":            {session, {name: "filename", value: strings.Repeat("x", 10_000)}},
		"two files":               {session, file, file},
		"a traversal":             {session, file, {name: "filename", value: "../../a"}},
		"a traversal first":       {session, {name: "filename", value: "../../a"}, file},
		"an absolute path":        {session, file, {name: "filename", value: "/etc/passwd"}},
		"a folder":                {session, file, {name: "filename", value: "a/"}},
		"a line end in the name":  {session, {name: "filename", value: "a\r\nX-Evil: 1"}, file},
		"a NUL in the name":       {session, file, {name: "filename", value: "a\x00b"}},
	} {
		w.post("/upload_file", form...).failed(name, http.StatusBadRequest, schemas.CodeInvalidArgument)
	}
	testkit.Equal(t, "files after all of them", w.request("GET", "/list_files?session_id="+id, "").number("total_files"), 0.0)
}

// A body that ends before its announced length leaves no file, also not a part of one.
func TestCutUploadLeavesNothing(t *testing.T) {
	w := newWeb(t, nil)
	id := w.newSession("t1")
	conn, err := new(net.Dialer).DialContext(w.ctx, "tcp", strings.TrimPrefix(w.url, "http://"))
	testkit.Must(t, err)
	defer conn.Close()
	head := "--b\r\nContent-Disposition: form-data; name=\"session_id\"\r\n\r\n" + id +
		"\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nhalf"
	_, err = fmt.Fprintf(conn,
		"POST /upload_file HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000\r\n\r\n%s", machineToken, head)
	testkit.Must(t, err)
	testkit.Must(t, conn.(*net.TCPConn).CloseWrite())
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	testkit.Must(t, err)
	defer resp.Body.Close()
	testkit.Equal(t, "status", resp.StatusCode, http.StatusBadRequest)
	testkit.Equal(t, "files", w.request("GET", "/list_files?session_id="+id, "").number("total_files"), 0.0)

	_, err = w.Files("t1").Write(w.ctx, "b", io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF)))
	if err == nil {
		t.Error("write of a reader that was cut: no error")
	}
	testkit.Equal(t, "files", w.request("GET", "/list_files?session_id="+id, "").number("total_files"), 0.0)
}

// What pauses is cut off: a sender, and a connection that never sends a request. What only takes long is not.
func TestPausesEndARequest(t *testing.T) {
	w := newWeb(t, func(c *gateway.Config) { c.Pause = 500 * time.Millisecond })
	long := w.request("POST", "/v1/threads/t1/exec", `{"command":"sleep","args":["1.5"]}`).is("a command that takes longer than a pause",
		http.StatusOK)
	testkit.Equal(t, "exit code", long.number("exit_code"), 0.0)
	w.stream("GET", "/v1/processes/"+w.begin("sleep 1.5")+"/output", "", "").until("exit")
	auth := "POST /execute HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + machineToken + "\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
	for name, text := range map[string]string{
		"a body that pauses":         auth + `{"session_id":`,
		"a body without a token":     strings.Replace(auth, "Authorization", "X-Other", 1) + "{",
		"headers that pause":         "POST /execute HTTP/1.1\r\nHost: 127.0.0.1\r\n",
		"a length in two ways":       "POST /execute HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
		"two hosts":                  "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: b\r\n\r\n",
		"headers of a hundred KB":    "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + strings.Repeat("x", 100_000) + "\r\n\r\n",
		"a line end in a header":     "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\x00b\r\n\r\n",
		"a request without a host":   "GET /health HTTP/1.0\r\n\r\n",
		"an URL of another scheme":   "GET http://attacker.example/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
		"a method that is no method": "G ET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
	} {
		conn, err := new(net.Dialer).DialContext(w.ctx, "tcp", strings.TrimPrefix(w.url, "http://"))
		testkit.Must(t, err)
		testkit.Must(t, conn.SetDeadline(time.Now().Add(testkit.Timeout)))
		_, err = io.WriteString(conn, text)
		testkit.Must(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection stays open", name)
		}
		if err == nil { // otherwise the gateway has closed the connection
			if resp.StatusCode < 400 || resp.StatusCode >= 500 {
				t.Errorf("%s: status %d, want that of a bad request", name, resp.StatusCode)
			}
			_ = resp.Body.Close()
		}
		testkit.Must(t, conn.Close())
	}
}

func TestPanicIsAnErrorAndIsLogged(t *testing.T) {
	w := newWeb(t, func(c *gateway.Config) {
		c.Mounts = []gateway.Mount{{
			Pattern: "/mcp", Scope: schemas.ScopeExec, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Has("panic") {
					panic("broken")
				}
				_, _ = fmt.Fprint(w, gateway.TokenOf(r.Context()).ID, gateway.ClientOf(r.Context()) != nil)
			}),
		}}
	})
	a := w.request("POST", "/mcp?panic", "{}").failed("a panic", http.StatusInternalServerError, schemas.CodeInternal)
	testkit.Contains(t, "log", w.log.String(), a.text("request_id"))
	testkit.Contains(t, "log", w.log.String(), "broken")
	testkit.Equal(t, "a mounted handler", string(w.request("POST", "/mcp", "{}").body), "machinetrue")
	reader, _ := w.token("default", client.TokenRequest{})
	w.request("POST", "/mcp", "{}", bearer(reader)).is("a mount with read", http.StatusForbidden)
}
