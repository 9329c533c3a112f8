package mcp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/gateway/mcp"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// site is a handler behind an HTTP server. The header Owner says who calls.
type site struct {
	*httptest.Server
	handler *mcp.Handler
}

func newSite(t *testing.T, c *client.Client) *site {
	t.Helper()
	s := &site{handler: mcp.NewHandler(func(r *http.Request) (mcp.Caller, error) {
		owner := r.Header.Get("Owner")
		if owner == "" {
			return mcp.Caller{}, schemas.Errorf(schemas.CodeUnauthenticated, "there is no token")
		}
		return mcp.Caller{Owner: owner, Config: mcp.Config{Client: c, Thread: "t", ReadOnly: owner == "reader"}}, nil
	})}
	s.Server = httptest.NewServer(s.handler)
	t.Cleanup(func() {
		s.handler.Close()
		s.Close()
	})
	return s
}

// as is a client whose requests have an owner. gone ends its connections.
func (s *site) as(owner string) *http.Client {
	return &http.Client{Transport: &owned{owner: owner, RoundTripper: &http.Transport{}}}
}

// owned sets the owner of requests.
type owned struct {
	http.RoundTripper
	owner string
}

func (o *owned) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Owner", o.owner)
	return o.RoundTripper.RoundTrip(r)
}

// connect connects an agent by a version of the protocol.
func (s *site) connect(t *testing.T, owner, version string) *agent {
	t.Helper()
	c := s.as(owner)
	a := connect(t, &sdk.StreamableClientTransport{Endpoint: s.URL, HTTPClient: c, MaxRetries: -1}, version)
	t.Cleanup(c.CloseIdleConnections)
	return a
}

// versions are the versions of the protocol that differ over HTTP: without sessions, and with them.
func versions() []string { return []string{"2026-07-28", "2025-11-25", "2025-06-18"} }

func TestHTTPServesEveryVersion(t *testing.T) {
	t.Parallel()
	c := cell(t)
	s := newSite(t, c)
	for _, version := range versions() {
		a := s.connect(t, "ann", version)
		ended := a.background(a.ctx, "run_command", args{"command": "rm -f go; echo one; until test -e go; do sleep 0.05; done"})
		a.waitForProgress("one")
		testkit.Equal(t, "another call meanwhile, by "+version, a.run("touch go; echo two").Stdout.Text, "two\n")
		testkit.Must(t, <-ended)
		a.fails(schemas.CodeNotFound, "read_file", args{"path": "none"})
		testkit.Must(t, a.Close())
	}
}

func TestCommandOverHTTPEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	for _, version := range versions() {
		for _, leave := range []string{"canceled", "gone"} {
			t.Run(version+"/"+leave, func(t *testing.T) {
				c := cell(t)
				a := newSite(t, c).connect(t, "ann", version)
				ctx, cancel := context.WithCancel(a.ctx)
				defer cancel()
				script, child := sleeper()
				if leave == "canceled" {
					ended := a.background(ctx, "run_command", args{"command": script})
					a.waitForProgress("waiting")
					cancel()
					if err := <-ended; !errors.Is(err, context.Canceled) {
						t.Errorf("error %v, want that of the context", err)
					}
				} else {
					s := newSite(t, c)
					leaveIn(t, s, version, script)
				}
				killed(t, c, child)
			})
		}
	}
}

// leaveIn sends a call, and drops its connection once the command has printed.
func leaveIn(t *testing.T, s *site, version, script string) {
	t.Helper()
	ctx, cancel := context.WithCancel(testkit.Context(t))
	defer cancel()
	c := s.as("ann")
	defer c.CloseIdleConnections()
	meta := `"progressToken":"p"`
	header := http.Header{"Mcp-Protocol-Version": {version}}
	if version >= "2026" {
		meta += `,"io.modelcontextprotocol/protocolVersion":"` + version + `","io.modelcontextprotocol/clientCapabilities":{}`
		header["Mcp-Method"], header["Mcp-Name"] = []string{"tools/call"}, []string{"run_command"}
	} else {
		r := post(ctx, t, c, s.URL, nil, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
		header.Set("Mcp-Session-Id", r.Header.Get("Mcp-Session-Id"))
		_, _ = io.Copy(io.Discard, r.Body)
		testkit.Must(t, r.Body.Close())
		r = post(ctx, t, c, s.URL, header, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		testkit.Must(t, r.Body.Close())
	}
	r := post(ctx, t, c, s.URL, header, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"`+script+`"},"_meta":{`+meta+`}}}`)
	defer r.Body.Close()
	buf := make([]byte, 64<<10)
	for got := ""; !strings.Contains(got, "waiting"); {
		n, err := r.Body.Read(buf)
		testkit.Must(t, err)
		got += string(buf[:n])
	}
	cancel()
}

func post(ctx context.Context, t *testing.T, c *http.Client, url string, header http.Header, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	testkit.Must(t, err)
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	r, err := c.Do(req)
	testkit.Must(t, err)
	return r
}

// status sends a request and returns the status of its answer.
func status(t *testing.T, c *http.Client, url string, header http.Header, body string) int {
	t.Helper()
	r := post(testkit.Context(t), t, c, url, header, body)
	defer r.Body.Close()
	_, _ = io.Copy(io.Discard, r.Body)
	return r.StatusCode
}

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`

func TestSessionsServeTheirOwner(t *testing.T) {
	s := newSite(t, cell(t))
	a := s.connect(t, "ann", "2025-11-25")
	list := `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`
	ann, bob := s.as("ann"), s.as("bob")
	t.Cleanup(ann.CloseIdleConnections)
	t.Cleanup(bob.CloseIdleConnections)
	header := http.Header{"Mcp-Session-Id": {a.ID()}}
	testkit.Equal(t, "status for the owner", status(t, ann, s.URL, header, list), http.StatusOK)
	testkit.Equal(t, "status for another one", status(t, bob, s.URL, header, list), http.StatusNotFound)
	testkit.Equal(t, "status for a forged id", status(t, ann, s.URL, http.Header{"Mcp-Session-Id": {a.ID() + "x"}}, list), http.StatusNotFound)
	testkit.Equal(t, "status without a token", status(t, http.DefaultClient, s.URL, nil, hello), http.StatusUnauthorized)
	testkit.Equal(t, "status of a body of 9 MB", status(t, ann, s.URL, header, hello+strings.Repeat(" ", 9<<20)), http.StatusRequestEntityTooLarge)
	for _, body := range []string{"", "{", "[]", "null", `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, strings.Repeat("[", 1e5), `{"jsonrpc":"1.0"}`} {
		if code := status(t, ann, s.URL, nil, body); code >= 500 {
			t.Errorf("status %d for body %.20q", code, body)
		}
	}
	for range 64 {
		status(t, bob, s.URL, nil, hello)
	}
	testkit.Equal(t, "status of one session too many", status(t, bob, s.URL, nil, hello), http.StatusServiceUnavailable)
	testkit.Equal(t, "status for another owner", status(t, ann, s.URL, nil, hello), http.StatusOK)
	http.DefaultClient.CloseIdleConnections()
}

func TestClosedHandlerEndsItsCalls(t *testing.T) {
	t.Parallel()
	for _, version := range versions() {
		t.Run(version, func(t *testing.T) {
			c := cell(t)
			s := newSite(t, c)
			a := s.connect(t, "ann", version)
			script, child := sleeper()
			ended := a.background(a.ctx, "run_command", args{"command": script})
			a.waitForProgress("waiting")
			s.handler.Close()
			if err := <-ended; err == nil {
				t.Error("a call whose handler was closed returned no error")
			}
			killed(t, c, child)
			testkit.Equal(t, "status of a closed handler", status(t, s.as("ann"), s.URL, nil, hello), http.StatusServiceUnavailable)
		})
	}
}

func TestReadOnlyServerOnlyReads(t *testing.T) {
	a := newSite(t, cell(t)).connect(t, "reader", "")
	tools, err := a.ListTools(a.ctx, nil)
	testkit.Must(t, err)
	for _, tool := range tools.Tools {
		if !tool.Annotations.ReadOnlyHint {
			t.Errorf("%s is served", tool.Name)
		}
	}
	if len(tools.Tools) == 0 {
		t.Error("no tool is served")
	}
	if _, err := a.raw(a.ctx, "run_command", args{"command": "true"}, nil); err == nil {
		t.Error("a command ran")
	}
}
