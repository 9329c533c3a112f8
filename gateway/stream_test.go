package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/gateway"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// eventStream is a stream of server-sent events.
type eventStream struct {
	t     testing.TB
	resp  *http.Response
	lines *bufio.Scanner
}

// sent is one event.
type sent struct {
	id   string
	data string
	*answer
}

// stream opens a stream, after the event last unless that is empty.
func (w *web) stream(method, path, body, last string) *eventStream {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.ctx, method, w.url+path, strings.NewReader(body))
	testkit.Must(w.t, err)
	req.Header.Set("Authorization", "Bearer "+machineToken)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	return w.follow(req)
}

// follow opens the stream that a request asks for.
func (w *web) follow(req *http.Request) *eventStream {
	w.t.Helper()
	resp, err := w.http.Do(req)
	testkit.Must(w.t, err)
	w.t.Cleanup(func() { _ = resp.Body.Close() })
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != "text/event-stream" {
		w.t.Fatalf("%s: status %d, content type %q", req.URL, resp.StatusCode, got)
	}
	s := &eventStream{t: w.t, resp: resp, lines: bufio.NewScanner(resp.Body)}
	s.lines.Buffer(nil, 4<<20)
	return s
}

// next returns the next event; nil at the end of the stream.
func (s *eventStream) next() *sent {
	s.t.Helper()
	e := &sent{answer: &answer{t: s.t}}
	for s.lines.Scan() {
		name, value, _ := strings.Cut(s.lines.Text(), ": ")
		switch name {
		case "id":
			e.id = value
		case "data":
			e.data = value
			testkit.Must(s.t, json.Unmarshal([]byte(value), &e.json))
		case "":
			if value == "" && e.data != "" {
				return e
			}
		default:
			s.t.Fatalf("line %q is of no event", s.lines.Text())
		}
	}
	testkit.Must(s.t, s.lines.Err())
	return nil
}

// until returns the events up to the first one of a type.
func (s *eventStream) until(kind string) (all []*sent) {
	s.t.Helper()
	for {
		e := s.next()
		if e == nil {
			s.t.Fatalf("the stream ended without %q", kind)
		}
		all = append(all, e)
		if e.text("type") == kind {
			return all
		}
	}
}

// data is the output of one stream in events.
func data(events []*sent, stream string) string {
	var b strings.Builder
	for _, e := range events {
		if e.json["type"] == stream {
			b.WriteString(e.text("data"))
		}
	}
	return b.String()
}

// begin starts a shell line by the process API, and returns the id of its process.
func (w *web) begin(script string) string {
	w.t.Helper()
	return w.request("POST", "/api/process/start", fmt.Sprintf(`{"command":"sh","args":["-c",%q]}`, script)).is("start",
		http.StatusOK).text("id")
}

func TestStreamGoesOnAfterItsLastEvent(t *testing.T) {
	w := newWeb(t, nil)
	// Each character of two bytes is printed in two pieces.
	id := w.begin(`printf 'a\303'; echo e1 >&2; sleep 0.2; printf '\244b'; echo e2 >&2; while [ ! -e go ]; do sleep 0.1; done; printf '\377c'; exit 3`)
	path := "/api/process/" + id + "/stream"
	first := w.stream("GET", path, "", "")
	var got []*sent
	for data(got, "stderr") != "e1\ne2\n" || !strings.HasSuffix(data(got, "stdout"), "b") {
		got = append(got, first.next())
	}
	testkit.Equal(t, "stdout", data(got, "stdout"), "aäb")
	testkit.Must(t, first.resp.Body.Close())
	_, err := w.Files("default").WriteFile(w.ctx, "go", nil)
	testkit.Must(t, err)
	for i, e := range append([]*sent{{}}, got...) { // from every place
		rest := w.stream("GET", path, "", e.id).until("exit")
		all := append(append([]*sent{}, got[:i]...), rest...)
		testkit.Equal(t, "stdout after "+e.id, data(all, "stdout"), "aäb\uFFFDc")
		testkit.Equal(t, "stderr after "+e.id, data(all, "stderr"), "e1\ne2\n")
	}
	last := w.stream("GET", path, "", "").until("exit")
	end := last[len(last)-1]
	end.fields("type", "timestamp", "processId", "sessionId", "exitCode", "reason")
	testkit.Equal(t, "exit code", end.number("exitCode"), 3.0)
	w.request("GET", path, "", header("Last-Event-ID", end.id)).is("a stream that the reader has", http.StatusNoContent)
	for _, bad := range []string{"x", "1-2", "1-2-3-4", "-1-0-0", "1--2-3", "01-2-3", "99999999999999999999-0-0"} {
		w.request("GET", path, "", header("Last-Event-ID", bad)).is("Last-Event-ID "+bad, http.StatusBadRequest)
	}
}

// A reader that cannot set headers names its place in the URL, and may begin with the last lines.
func TestStreamOfAPage(t *testing.T) {
	w := newWeb(t, nil)
	id := w.begin("seq 9; exit 3")
	path := "/v1/processes/" + id + "/output"
	all := w.stream("GET", path, "", "").until("exit")
	testkit.Equal(t, "all", data(all, "stdout"), "1\n2\n3\n4\n5\n6\n7\n8\n9\n")
	testkit.Equal(t, "the last lines", data(w.stream("GET", path+"?tail=2", "", "").until("exit"), "stdout"), "8\n9\n")
	testkit.Equal(t, "after all of it", data(w.stream("GET", path+"?tail=2&after="+all[len(all)-2].id, "", "").until("exit"), "stdout"), "")
	testkit.Equal(t, "the header wins", data(w.stream("GET", path+"?after="+all[len(all)-2].id, "", "0-0-0").until("exit"), "stdout"),
		data(all, "stdout"))
	w.request("GET", path+"?after="+all[len(all)-1].id, "").is("after the end", http.StatusNoContent)
	for _, bad := range []string{"?tail=-1", "?tail=x", "?tail=10001", "?after=x"} {
		w.request("GET", path+bad, "").is(bad, http.StatusBadRequest)
	}
}

func TestStreamsHaveHeartbeats(t *testing.T) {
	w := newWeb(t, func(c *gateway.Config) { c.Heartbeat = 20 * time.Millisecond })
	s := w.stream("GET", "/api/process/"+w.begin("while [ ! -e go ]; do sleep 0.05; done")+"/stream", "", "")
	for beats := 0; beats < 3 && s.lines.Scan(); {
		if strings.HasPrefix(s.lines.Text(), ": ") {
			beats++
		}
	}
	_, err := w.Files("default").WriteFile(w.ctx, "go", nil)
	testkit.Must(t, err)
	s.until("exit")
}

// A reader that stops reading is cut off with the reason, and loses nothing: it goes on after its last event.
func TestSlowReaderIsCutOffAndGoesOn(t *testing.T) {
	w := newWeb(t, func(c *gateway.Config) { c.Pause = 3 * time.Second })
	id := w.begin("seq 1 2000000") // more than the buffers of a connection hold
	path := "/api/process/" + id + "/stream"
	slow := w.stream("GET", path, "", "")
	got := []*sent{slow.next()}
	w.waitForLog("http_slow_reader") // it reads nothing until then
	got = append(got, slow.until("error")...)
	reason := got[len(got)-1]
	testkit.Equal(t, "code", reason.text("code"), string(schemas.CodeDeadlineExceeded))
	testkit.Contains(t, "reason", reason.text("error"), "Last-Event-ID")
	got = got[:len(got)-1]
	for got[len(got)-1].text("type") != "exit" { // on a loaded machine, this reader too may be cut off
		for rest := w.stream("GET", path, "", got[len(got)-1].id); ; {
			e := rest.next()
			if e == nil || e.text("type") == "error" {
				break
			}
			got = append(got, e)
		}
	}
	all := data(got, "stdout")
	testkit.Equal(t, "bytes", len(all), 14888896)
	testkit.Equal(t, "lines", strings.Count(all, "\n"), 2000000)
	testkit.Equal(t, "last line", all[len(all)-9:], "\n2000000\n")
}

// The end of a gateway is an event of its own: no reader has to guess.
func TestStreamEndsWithItsGateway(t *testing.T) {
	w := newWeb(t, nil)
	s := w.stream("GET", "/api/process/"+w.begin("echo begun; exec sleep 300")+"/stream", "", "")
	s.until("stdout")
	w.stop()
	e := s.until("error")[0]
	testkit.Equal(t, "code", e.text("code"), string(schemas.CodeUnavailable))
	if s.next() != nil {
		t.Error("there are events after the end")
	}
}

// A reader that comes back is sent what is missing after its last event, and what is left.
func TestResumedStreamReportsItsGap(t *testing.T) {
	w := newWebOn(t, events.Topology{Partitions: 1, LogProcessBytes: 1 << 20}, nil)
	id := w.begin(`echo begun; while [ ! -e go ]; do sleep 0.05; done; yes 0123456789 | head -c 3000000`)
	path := "/api/process/" + id + "/stream"
	first := w.stream("GET", path, "", "")
	begun := first.next()
	testkit.Equal(t, "the first event", begun.text("data"), "begun\n")
	testkit.Must(t, first.resp.Body.Close())
	_, err := w.Files("default").WriteFile(w.ctx, "go", nil)
	testkit.Must(t, err)
	w.request("GET", "/v1/processes/"+id+"/result?wait=true", "").is("wait", http.StatusOK)
	all := w.stream("GET", path, "", begun.id).until("exit")
	testkit.Equal(t, "type of the first event", all[0].text("type"), "gap")
	gap := all[0].json["gap"].(map[string]any)
	testkit.Equal(t, "the gap's beginning", gap["from"], any(6.0))
	testkit.Equal(t, "output after the gap", int64(len(data(all, "stdout"))), 3000006-int64(gap["to"].(float64)))
}
