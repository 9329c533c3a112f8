package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/gateway"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	// fuzzAnswer is the most bytes of an answer. Lists have at most 10,000 entries.
	fuzzAnswer = 64 << 20
	// fuzzStream is how long a stream is read: it need not end.
	fuzzStream = 50 * time.Millisecond
	// fuzzWait is how long a request may take that waits for a sandbox, a process or an agent. It is given up then.
	fuzzWait = 500 * time.Millisecond
	// fuzzLate is when the answer to a request is awaited beside the next ones: the fuzzer takes an input of 10 s for a deadlock. A request for
	// files may take a minute, while its thread changes its worker or its session.
	fuzzLate = 5 * time.Second
)

// panics notes the panics in a log.
type panics struct {
	mu   sync.Mutex
	text string
}

// Write looks at a line.
func (p *panics) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if strings.Contains(string(line), "http_panic") {
		p.text += string(line)
	}
	return len(line), nil
}

// String returns the panics so far.
func (p *panics) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text
}

// target is a gateway that requests are drawn for.
type target struct {
	*web
	log     *panics
	ops     []apiOperation
	address string
	late    []<-chan string // what is wrong with answers that are awaited beside
}

func newTarget(ctx context.Context, t testing.TB) *target {
	t.Helper()
	g := &target{log: &panics{}, ops: apiOperations(t)}
	g.web = newWebUntil(ctx, t, events.Topology{Partitions: 1}, func(c *gateway.Config) { c.Log, c.Pause = zerolog.New(g.log), 5*time.Second })
	g.address = strings.TrimPrefix(g.url, "http://")
	for _, thread := range []string{"t1", "t2", "default"} {
		g.request("PUT", "/v1/threads/"+thread+"/files/d/b", "content").is("a file", http.StatusCreated)
	}
	return g
}

// sessionID is the id of a session by its thread. One that has ended gives an id that was valid.
func (g *target) sessionID(thread string) string {
	s, err := g.SessionInfo(g.ctx, thread)
	if err != nil {
		return thread + ".01JWZ6Q2ZK3Q8F5T1V7X9B0C4D"
	}
	return thread + "." + s.ID
}

// send sends what an input draws, and fails the test for an answer that no request should have.
func (g *target) send(t testing.TB, input []byte) {
	d := &draws{data: input}
	d.sessions = func() string { return g.sessionID(d.of("t1", "t2", "t3")) }
	d.process = func() string { return g.ProcessID("t1", d.of("k1", "k2")) }
	if len(input) == 0 {
		return
	}
	op := &g.ops[d.number(len(g.ops))]
	text, method, cut := d.request(op, d.of(machineToken, machineToken, machineToken, "slt_none_x", ""))
	g.report(t, false)
	wrong := make(chan string, 1)
	go func() {
		failure := ""
		g.exchange(op, text, method, cut, func(format string, args ...any) {
			failure += fmt.Sprintf("%s\nrequest (%d bytes): %.2000q\n", fmt.Sprintf(format, args...), len(text), text)
		})
		wrong <- failure
	}()
	timer := time.NewTimer(fuzzLate)
	defer timer.Stop()
	select {
	case failure := <-wrong:
		if failure != "" {
			t.Error(failure)
		}
	case <-timer.C:
		g.late = append(g.late, wrong)
	}
	if found := g.log.String(); found != "" {
		t.Errorf("panic: %s\nrequest (%d bytes): %.2000q", found, len(text), text)
	}
}

// report reports what was wrong with late answers, and with wait all of them.
func (g *target) report(t testing.TB, wait bool) {
	t.Helper()
	g.late = slices.DeleteFunc(g.late, func(wrong <-chan string) bool {
		var failure string
		if wait {
			failure = <-wrong
		} else {
			select {
			case failure = <-wrong:
			default:
				return false
			}
		}
		if failure != "" {
			t.Error(failure)
		}
		return true
	})
}

// exchange sends a request and checks its answer.
func (g *target) exchange(op *apiOperation, text, method string, cut bool, fail func(format string, args ...any)) {
	conn, err := new(net.Dialer).DialContext(g.ctx, "tcp", g.address)
	if err != nil {
		fail("connect: %v", err)
		return
	}
	defer conn.Close()
	waits := strings.Contains(op.path, "exec") || strings.Contains(op.path, "start") || slices.ContainsFunc([]string{"messages", "sandbox", "session",
		"processes", "claude", "service"}, func(s string) bool { return strings.Contains(op.path, s) })
	wait := testkit.Timeout
	if waits {
		wait = fuzzWait
	}
	_ = conn.SetDeadline(time.Now().Add(wait))
	_, _ = io.WriteString(conn, text) // the gateway may answer, and close, before it has read all
	if cut {
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	from, asked := bufio.NewReader(conn), &http.Request{Method: method}
	resp, err := http.ReadResponse(from, asked)
	if err == nil && resp.StatusCode == http.StatusContinue {
		resp, err = http.ReadResponse(from, asked)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && !waits:
		fail("no answer")
	case err == nil:
		g.check(conn, resp, fail)
		_ = resp.Body.Close()
	} // otherwise it has closed the connection: what was sent is no request, or its answer was cut
}

// check checks an answer.
func (g *target) check(conn net.Conn, resp *http.Response, fail func(string, ...any)) {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "text/event-stream" {
		_ = conn.SetDeadline(time.Now().Add(fuzzStream))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, fuzzAnswer+1))
	id := resp.Header.Get("X-Request-Id")
	if id == "" { // the answer of the HTTP server to what is no request
		if resp.StatusCode < 400 || resp.StatusCode == http.StatusInternalServerError || (kind != "text/plain" && len(body) > 0) {
			fail("status %d of type %q without a request id: %.300q", resp.StatusCode, kind, body)
		}
		return
	}
	switch {
	case len(body) > fuzzAnswer:
		fail("the answer has more than %d bytes", fuzzAnswer)
	case resp.Header.Get("X-Content-Type-Options") != "nosniff":
		fail("the answer has no nosniff")
	case resp.Header.Get("X-Evil") != "":
		fail("a request has set a header of its answer")
	case kind == "text/html" && resp.Header.Get("Content-Security-Policy") == "":
		fail("status %d with HTML: %.300q", resp.StatusCode, body)
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		fail("status %d, to %q", resp.StatusCode, resp.Header.Get("Location"))
	case kind == "text/event-stream" && strings.Contains(string(body), `"code":"internal"`):
		fail("a stream ends with %.300q", body)
	case resp.StatusCode < 400 || resp.Request.Method == http.MethodHead || resp.StatusCode == http.StatusConflict && strings.Contains(string(body), "existing"):
		return
	case resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(body), `"uptime_seconds"`):
		return // of /health
	}
	if resp.StatusCode < 400 {
		return
	}
	var answer struct {
		Error     string       `json:"error"`
		Code      schemas.Code `json:"code"`
		RequestID string       `json:"request_id"`
	}
	if kind != "application/json" || err != nil || json.Unmarshal(body, &answer) != nil {
		fail("status %d of type %q (%v): %.300q", resp.StatusCode, kind, err, body)
	} else if answer.Error == "" || answer.RequestID != id || !slices.Contains(schemas.Codes(), answer.Code) {
		fail("status %d: no error as documented: %.300q", resp.StatusCode, body)
	}
	if resp.StatusCode == http.StatusInternalServerError || answer.Code == schemas.CodeInternal {
		fail("status %d: %.600q", resp.StatusCode, body)
	}
}

// FuzzHTTP sends requests that are drawn from the OpenAPI document, and those of the documented endpoints, to a gateway with a worker: near
// what is right, and far from it. None is answered with 500, and none ends a goroutine by a panic, or leaves one behind.
func FuzzHTTP(f *testing.F) {
	g := newTarget(f.Context(), f)
	for i := range g.ops {
		f.Add([]byte{byte(i)}) // the plain request
		for variant := range byte(3) {
			seed := make([]byte, 60)
			for k := range seed {
				seed[k] = byte(i*31+k*17)*(variant+3) + variant*5
			}
			seed[0] = byte(i)
			f.Add(seed)
		}
	}
	f.Cleanup(func() { g.report(f, true) })
	f.Fuzz(func(t *testing.T, input []byte) { g.send(t, input) })
}
