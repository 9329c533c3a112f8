package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/gateway"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// tty is a client of a terminal.
type tty struct {
	*web
	conn   *websocket.Conn
	out    []byte // all output
	offset int64  // as a client counts it
	seq    uint64 // of the last position
}

// dialTerminal opens a WebSocket; status is that of the response to the handshake.
func (w *web) dialTerminal(path string, change ...func(http.Header)) (conn *websocket.Conn, status int, err error) {
	h := http.Header{"Authorization": {"Bearer " + machineToken}}
	for _, f := range change {
		f(h)
	}
	protocols := h["Protocols"]
	h.Del("Protocols")
	conn, answer, err := websocket.Dial(w.ctx, "ws"+strings.TrimPrefix(w.url, "http")+path, &websocket.DialOptions{
		HTTPClient: w.http, HTTPHeader: h, Subprotocols: protocols})
	if answer == nil {
		return nil, 0, err
	}
	if answer.Body != nil { // a WebSocket has none
		_ = answer.Body.Close()
	}
	return conn, answer.StatusCode, err
}

// terminal opens a terminal with a first message.
func (w *web) terminal(path, first string, change ...func(http.Header)) *tty {
	w.t.Helper()
	conn, _, err := w.dialTerminal(path, change...)
	testkit.Must(w.t, err)
	w.t.Cleanup(func() { _ = conn.CloseNow() })
	k := &tty{web: w, conn: conn}
	k.send(first)
	return k
}

// shell starts a shell without a prompt, which prints READY, and returns its process.
func (w *web) shell(fields string) (k *tty, process string) {
	w.t.Helper()
	k = w.terminal("/v1/threads/t1/terminal", `{"type":"start","command":"sh","args":["-c","echo READY; exec sh"],"env":{"PS1":""}`+fields+`}`)
	process = k.until("ready").text("process")
	k.expect("READY\r\n")
	return k, process
}

func (w *web) attach(process, fields string) *tty {
	w.t.Helper()
	return w.terminal("/v1/processes/"+process+"/terminal", `{"type":"attach"`+fields+`}`)
}

func (k *tty) send(text string) {
	k.t.Helper()
	testkit.Must(k.t, k.conn.Write(k.ctx, websocket.MessageText, []byte(text)))
}

func (k *tty) keys(text string) {
	k.t.Helper()
	testkit.Must(k.t, k.conn.Write(k.ctx, websocket.MessageBinary, []byte(text)))
}

// next reads a message. It returns nil for output.
func (k *tty) next() (*answer, error) {
	k.t.Helper()
	kind, p, err := k.conn.Read(k.ctx)
	if err != nil {
		return nil, err
	}
	if kind == websocket.MessageBinary {
		k.out = append(k.out, p...)
		k.offset += int64(len(p))
		return nil, nil
	}
	a := &answer{t: k.t, body: p}
	testkit.Must(k.t, json.Unmarshal(p, &a.json))
	if a.json["type"] == "position" {
		k.offset, k.seq = int64(a.number("offset")), uint64(a.number("seq"))
	}
	return a, nil
}

// until returns the next text message of a type.
func (k *tty) until(kind string) *answer {
	k.t.Helper()
	for {
		a, err := k.next()
		if err != nil {
			k.t.Fatalf("wait for %s: %v, after %q", kind, err, string(k.out))
		}
		if a != nil && a.json["type"] == kind {
			return a
		}
	}
}

// expect waits for output.
func (k *tty) expect(text string) {
	k.t.Helper()
	for !bytes.Contains(k.out, []byte(text)) {
		a, err := k.next()
		if err != nil || (a != nil && a.json["type"] != "position" && a.json["type"] != "ready") {
			k.t.Fatalf("wait for %q: %v %v, after %q", text, a, err, string(k.out))
		}
	}
}

// closed waits for the end of the connection.
func (k *tty) closed(code websocket.StatusCode, reason string) {
	k.t.Helper()
	for {
		if _, err := k.next(); err != nil {
			if websocket.CloseStatus(err) != code || !strings.Contains(err.Error(), reason) {
				k.t.Errorf("the connection ended with %v, want %d and %q", err, code, reason)
			}
			return
		}
	}
}

func TestTerminal(t *testing.T) {
	w := newWeb(t, nil)
	k, process := w.shell(`,"rows":30,"cols":100`)
	k.keys("stty size; echo $TERM\r")
	k.expect("30 100\r\n")
	k.expect("xterm")
	k.send(`{"type":"resize","rows":40,"cols":120}`)
	k.keys("stty size\r")
	k.expect("40 120\r\n")
	k.keys("sleep 300\r")
	k.expect("sleep 300\r\n")
	other := w.attach(process, `,"rows":50,"cols":90`) // its size counts now
	other.expect("READY")
	other.keys("\x03")
	other.expect("^C")
	other.keys("echo status $?; stty size; echo both of $((40+2))\r")
	for _, each := range []*tty{k, other} {
		each.expect("status 130\r\n")
		each.expect("50 90\r\n")
		each.expect("both of 42\r\n")
	}
	other.keys("printf '\\377\\000.'; exit 3\r")
	for _, each := range []*tty{k, other} {
		e := each.until("exit")
		testkit.Contains(t, "bytes", string(each.out), "\xff\x00.")
		testkit.Equal(t, "exit code", e.number("exit_code"), 3.0)
		testkit.Equal(t, "reason", e.text("reason"), "exited")
		testkit.Equal(t, "offset", int64(e.number("offset")), each.offset)
		each.closed(websocket.StatusNormalClosure, "the process has ended")
	}
	ended := w.attach(process, "")
	testkit.Equal(t, "exit code of an ended one", ended.until("exit").number("exit_code"), 3.0)
	ended.closed(websocket.StatusNormalClosure, "")
	testkit.Contains(t, "screen of an ended one", string(ended.out), "both of 42")
}

// The process goes on without its client, which misses nothing when it comes back.
func TestTerminalGoesOnWhereItsClientLeft(t *testing.T) {
	w := newWeb(t, nil)
	k, process := w.shell("")
	k.keys("stty -echo; while read line; do echo got $line; done\r")
	k.expect("done\r\n")
	k.keys("one\r")
	k.expect("got one\r\n")
	before := string(k.out)
	testkit.Must(t, k.conn.Close(websocket.StatusNormalClosure, ""))
	second := w.attach(process, "")
	second.expect("READY") // the last screenful
	second.keys("two\r")
	second.expect("got two\r\n")
	_ = second.conn.CloseNow() // without a good-bye
	third := w.attach(process, fmt.Sprintf(`,"seq":%d,"offset":%d`, k.seq, k.offset))
	third.expect("got two\r\n")
	third.keys("\x04exit\r")
	all := int64(third.until("exit").number("offset"))
	testkit.Equal(t, "bytes", int64(len(before)+len(string(third.out))), all)
	testkit.Equal(t, "the first ones", string(third.out)[:9], "got two\r\n")
	last := w.attach(process, `,"offset":0`)
	last.until("exit")
	testkit.Equal(t, "from the beginning", string(last.out), before+string(third.out))
}

func TestTerminalIsKilledOnClose(t *testing.T) {
	w := newWeb(t, nil)
	k, process := w.shell(`,"on_close":"kill"`)
	k.keys("sleep 300\r")
	k.expect("sleep 300\r\n")
	follower := w.stream("GET", "/v1/processes/"+process+"/output", "", "")
	joined := w.attach(process, `,"on_close":"detach"`)
	joined.until("ready")
	testkit.Must(t, joined.conn.Close(websocket.StatusNormalClosure, ""))
	testkit.Equal(t, "status", w.request("GET", "/v1/processes/"+process, "").text("status"), "running")
	_ = k.conn.CloseNow()
	all := follower.until("exit")
	testkit.Equal(t, "reason", all[len(all)-1].text("reason"), "killed")
}

func TestTerminalOfTheWrongClient(t *testing.T) {
	w := newWeb(t, nil)
	reader, _ := w.token("default", client.TokenRequest{})
	runner, _ := w.token("default", client.TokenRequest{Scope: schemas.ScopeExec})
	set := func(name string, values ...string) func(http.Header) { return func(h http.Header) { h[name] = values } }
	none := func(h http.Header) { h.Del("Authorization") }
	const path = "/v1/threads/t1/terminal"
	for _, tt := range []struct {
		name   string
		status int
		change []func(http.Header)
	}{
		{"no token", http.StatusUnauthorized, []func(http.Header){none}},
		{"a wrong token", http.StatusUnauthorized, []func(http.Header){none, set("Protocols", "sluice.terminal.v1", "bearer.x")}},
		{"scope read", http.StatusForbidden, []func(http.Header){none, set("Protocols", "sluice.terminal.v1", "bearer."+reader)}},
		{"a foreign page", http.StatusForbidden, []func(http.Header){set("Origin", "https://attacker.example")}},
		{"a page of another port", http.StatusForbidden, []func(http.Header){set("Origin", "http://127.0.0.1:1")}},
	} {
		conn, status, err := w.dialTerminal(path, tt.change...)
		if err == nil {
			_ = conn.CloseNow()
			t.Errorf("%s: it is served", tt.name)
			continue
		}
		testkit.Equal(t, tt.name, status, tt.status)
	}
	k := w.terminal(path, `{"type":"start","command":"echo","args":["hi"]}`, none, set("Protocols", "sluice.terminal.v1", "bearer."+runner),
		set("Origin", w.url))
	testkit.Equal(t, "subprotocol", k.conn.Subprotocol(), "sluice.terminal.v1")
	k.until("exit")
	testkit.Equal(t, "output", string(k.out), "hi\r\n")

	w.request("GET", path, "").failed("no handshake", http.StatusUpgradeRequired, schemas.CodeInvalidArgument)
	w.request("GET", path, "", header("Sec-WebSocket-Protocol", "bearer."+runner),
		func(r *http.Request) { r.Header.Del("Authorization") }).is("a subprotocol without a WebSocket", http.StatusUnauthorized)
	if strings.Contains(w.log.String(), runner) {
		t.Error("the token is logged")
	}
}

func TestTerminalBadMessages(t *testing.T) {
	w := newWeb(t, func(c *gateway.Config) { c.Pause = 3 * time.Second })
	const thread = "/v1/threads/t1/terminal"
	_, process := w.shell("")
	process = "/v1/processes/" + process + "/terminal"
	for _, tt := range []struct{ name, path, first, code string }{
		{"no JSON", thread, `x`, "invalid_argument"},
		{"no type", thread, `{"command":"sh"}`, "invalid_argument"},
		{"another type", thread, `{"type":"attach"}`, "invalid_argument"},
		{"an unknown field", thread, `{"type":"start","comand":"sh"}`, "invalid_argument"},
		{"input", thread, `{"type":"start","command":"sh","stdin":"aGk="}`, "invalid_argument"},
		{"an unknown end", thread, `{"type":"start","command":"sh","on_close":"x"}`, "invalid_argument"},
		{"a huge size", thread, `{"type":"start","command":"sh","rows":5000}`, "invalid_argument"},
		{"an invalid thread", "/v1/threads/a.b/terminal", `{"type":"start","command":"sh"}`, "invalid_argument"},
		{"an unknown process", "/v1/processes/none/terminal", `{"type":"attach"}`, "not_found"},
		{"a negative size", process, `{"type":"attach","rows":-1}`, "invalid_argument"},
		{"a negative offset", process, `{"type":"attach","offset":-1}`, "invalid_argument"},
	} {
		k := w.terminal(tt.path, tt.first)
		e := k.until("error")
		testkit.Equal(t, tt.name+": "+e.text("error"), e.text("code"), tt.code)
		k.closed(websocket.StatusPolicyViolation, tt.code)
	}
	queued := w.terminal("/v1/threads/t9/terminal", `{"type":"start","command":"sh","template":"none","on_close":"kill"}`)
	testkit.Equal(t, "why it waits: "+queued.until("waiting").text("error"), string(queued.out), "")
	testkit.Must(t, queued.conn.Close(websocket.StatusNormalClosure, ""))
	silent, _, err := w.dialTerminal(thread)
	testkit.Must(t, err)
	(&tty{web: w, conn: silent}).closed(websocket.StatusPolicyViolation, "no first message")

	for name, send := range map[string]func(*tty){
		"an unknown message": func(k *tty) { k.send(`{"type":"reboot"}`) },
		"a size of nothing":  func(k *tty) { k.send(`{"type":"resize","rows":0,"cols":10}`) },
		"a field twice":      func(k *tty) { k.send(`{"type":"resize","rows":10,"rows":10,"cols":10}`) },
	} {
		k, _ := w.shell(`,"on_close":"kill"`)
		send(k)
		testkit.Equal(t, name, k.until("error").text("code"), "invalid_argument")
		k.closed(websocket.StatusPolicyViolation, "invalid_argument")
	}
	k, _ := w.shell(`,"on_close":"kill"`)
	k.keys(strings.Repeat("x", 64<<10+1))
	k.closed(websocket.StatusMessageTooBig, "")
}

// A reader that stops reading is cut off with the reason, and its process goes on.
func TestTerminalOfASlowReader(t *testing.T) {
	// The reader is slow after a third of this, and must begin to read before the whole is over, or it is cut off without the reason.
	w := newWeb(t, func(c *gateway.Config) { c.Pause = 15 * time.Second })
	k, process := w.shell("")
	k.keys("stty -echo -onlcr; seq 1 2000000; echo END\r")
	k.expect("\n1\n")
	w.waitForLog("http_slow_reader") // it reads nothing until then
	e := k.until("error")
	testkit.Equal(t, "code", e.text("code"), string(schemas.CodeDeadlineExceeded))
	k.closed(websocket.StatusPolicyViolation, "deadline_exceeded")
	all, last := k.out, k
	for !bytes.HasSuffix(all, []byte("\nEND\n")) { // a reader on a loaded machine may be cut off again
		rest := w.attach(process, fmt.Sprintf(`,"seq":%d,"offset":%d`, last.seq, last.offset))
		rest.seq, rest.offset = last.seq, last.offset
		for more := true; more; {
			a, err := rest.next()
			more = err == nil && (a == nil || a.json["type"] != "error") && !bytes.HasSuffix(rest.out, []byte("\nEND\n"))
		}
		all, last = append(all, rest.out...), rest
		_ = rest.conn.CloseNow()
	}
	all = all[bytes.Index(all, []byte("\n1\n"))+1 : bytes.LastIndex(all, []byte("END"))]
	testkit.Equal(t, "bytes", len(all), 14888896)
	testkit.Equal(t, "lines", bytes.Count(all, []byte("\n")), 2000000)
}

func TestTerminalEndsWithItsGatewayOrIdle(t *testing.T) {
	w := newWeb(t, func(c *gateway.Config) { c.Heartbeat, c.Idle = 20*time.Millisecond, 2*time.Second })
	k, process := w.shell(`,"on_close":"kill"`)
	k.until("error") // it answers the pings meanwhile
	k.closed(websocket.StatusPolicyViolation, "deadline_exceeded")
	w.stream("GET", "/v1/processes/"+process+"/output", "", "").until("exit")

	w = newWeb(t, nil) // one whose terminals do not end while the machine stalls
	k, process = w.shell(`,"on_close":"kill"`)
	w.stop()
	testkit.Equal(t, "code", k.until("error").text("code"), string(schemas.CodeUnavailable))
	k.closed(websocket.StatusGoingAway, "unavailable")
	p, err := w.Process(w.ctx, "", process)
	testkit.Must(t, err)
	info, err := p.Info(w.ctx)
	testkit.Must(t, err)
	testkit.Equal(t, "status after the gateway", info.Status, schemas.StatusRunning)
}

// A client that is gone without a word is noticed by its pings.
func TestTerminalOfADeadClient(t *testing.T) {
	w := newWeb(t, func(c *gateway.Config) { c.Heartbeat, c.Pause = 20*time.Millisecond, time.Second })
	_, process := w.shell(`,"on_close":"kill"`)
	all := w.stream("GET", "/v1/processes/"+process+"/output", "", "").until("exit") // the client reads nothing now, and so answers no ping
	testkit.Equal(t, "reason", all[len(all)-1].text("reason"), "killed")
}
