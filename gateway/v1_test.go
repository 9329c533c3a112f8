package gateway_test

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/gateway"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestV1Sessions(t *testing.T) {
	w := newWeb(t, nil)
	const one = "/v1/threads/t1/session"
	a := w.request("POST", one, `{"user":"ann","tags":{"step":"1"},"idle_timeout_ms":60000}`).is("create", http.StatusCreated)
	testkit.Equal(t, "user", a.text("user"), "ann")
	id := a.text("id")
	testkit.Equal(t, "the same session", w.request("POST", one, `{}`).is("create again", http.StatusOK).text("id"), id)
	testkit.Equal(t, "get", w.request("GET", one, "").is("get", http.StatusOK).text("id"), id)
	testkit.Equal(t, "renewed", w.request("POST", one+"/renew", `{"idle_timeout_ms":120000}`).is("renew",
		http.StatusOK).number("idle_timeout_ms"), 120000.0)
	list := func(query string) int {
		return len(w.request("GET", "/v1/sessions?"+query, "").is("list", http.StatusOK).json["sessions"].([]any))
	}
	testkit.Equal(t, "sessions of ann", list("user=ann"), 1)
	testkit.Equal(t, "sessions of bob", list("user=bob"), 0)
	testkit.Equal(t, "state before the start", w.request("GET", "/v1/threads/t1/sandbox", "").is("sandbox", http.StatusOK).text("state"), "")
	testkit.Equal(t, "state", w.request("POST", "/v1/threads/t1/sandbox", "").is("start", http.StatusOK).text("state"), "running")
	testkit.Equal(t, "sessions in the status", w.request("GET", "/v1/status", "").is("status", http.StatusOK).number("sessions"), 1.0)
	testkit.Equal(t, "state", w.request("DELETE", one+"?delete=true&grace_ms=10", "").is("delete", http.StatusOK).text("state"), "terminated")
	w.request("GET", one, "").failed("get an ended one", http.StatusNotFound, schemas.CodeNotFound)
	w.request("DELETE", one+"?delete=yes", "").failed("a flag in words", http.StatusBadRequest, schemas.CodeInvalidArgument)
	w.request("POST", one, `{"idle_timeout_ms":-5}`).failed("a negative time", http.StatusBadRequest, schemas.CodeInvalidArgument)
	w.request("POST", one, `{"template":"none"}`).failed("an unknown template", http.StatusNotFound, schemas.CodeNotFound)

	names := w.request("GET", "/v1/templates", "").is("templates", http.StatusOK).json["templates"].([]any)
	if len(names) < 5 {
		t.Errorf("%d templates, want the built-in ones", len(names))
	}
	testkit.Equal(t, "template", w.request("GET", "/v1/templates/documents", "").is("template", http.StatusOK).text("name"), "documents")
	w.request("GET", "/v1/templates/none", "").failed("no template", http.StatusNotFound, schemas.CodeNotFound)
}

func TestV1Threads(t *testing.T) {
	w := newWeb(t, nil)
	testkit.Equal(t, "no threads", w.request("GET", "/v1/threads", "").is("list", http.StatusOK).json, map[string]any{"threads": []any{}})
	w.request("POST", "/v1/threads/t1/processes", `{"command":"sleep","args":["300"]}`).is("start", http.StatusCreated)
	w.request("POST", "/v1/threads/t2/session", `{}`).is("create", http.StatusCreated)
	_, err := w.Services("t1").Start(w.ctx, client.ServiceRequest{Name: "s", ServiceSpec: schemas.ServiceSpec{Command: "sleep",
		Args: []string{"300"}, Env: map[string]string{"KEY": "hidden"}}})
	testkit.Must(t, err)
	var names []string
	for _, e := range w.request("GET", "/v1/threads", "").is("list", http.StatusOK).json["threads"].([]any) {
		names = append(names, e.(map[string]any)["thread"].(string))
	}
	testkit.Equal(t, "threads", names, []string{"t1", "t2"})
	a := w.request("GET", "/v1/threads/t1", "").is("get", http.StatusOK)
	if strings.Contains(string(a.body), "hidden") {
		t.Errorf("the environment of a service is shown: %s", a.body)
	}
	testkit.Equal(t, "services", len(a.json["services"].([]any)), 1)
	testkit.Equal(t, "session", a.json["session"].(map[string]any)["thread"], any("t1"))
	w.request("GET", "/v1/threads/none", "").failed("an unknown thread", http.StatusNotFound, schemas.CodeNotFound)
	w.request("GET", "/v1/threads/a.b", "").failed("an invalid thread", http.StatusBadRequest, schemas.CodeInvalidArgument)
	_, err = w.Services("t1").Stop(w.ctx, "s")
	testkit.Must(t, err)
}

func TestV1Processes(t *testing.T) {
	w := newWeb(t, nil)
	const threads = "/v1/threads/t1"
	a := w.request("POST", threads+"/exec",
		`{"command":"sh","args":["-c","cat; echo $A >&2; exit 3"],"env":{"A":"b"},"stdin":"aGk=","labels":{"step":"1"},"key":"k"}`)
	a.is("exec", http.StatusOK)
	testkit.Equal(t, "stdout", a.text("stdout"), "hi")
	testkit.Equal(t, "stderr", a.text("stderr"), "b\n")
	testkit.Equal(t, "exit code", a.number("exit_code"), 3.0)
	done := a.text("process")
	w.request("POST", threads+"/exec", `{"command":"true","key":"k"}`).failed("another command with the key", http.StatusConflict,
		schemas.CodeConflict)
	w.request("POST", threads+"/exec", `{"command":"true","timeout_ms":-1}`).failed("a negative time", http.StatusBadRequest,
		schemas.CodeInvalidArgument)

	a = w.request("POST", threads+"/exec", `{"command":"sh","args":["-c","echo 1; echo 2"]}`, header("Accept",
		"text/event-stream")).is("exec as a stream", http.StatusOK)
	testkit.Contains(t, "stream", string(a.body), `"type":"exit"`)
	testkit.Contains(t, "location", string(a.body), strings.TrimPrefix(a.header.Get("Location"), "/v1/processes/"))

	a = w.request("POST", threads+"/processes",
		`{"command":"sh","args":["-c","trap 'exit 7' INT; echo on; while :; do sleep 0.05; done"]}`).is("start", http.StatusCreated)
	id := a.text("process")
	one := "/v1/processes/" + id
	output := w.stream("GET", one+"/output", "", "")
	output.until("stdout")
	testkit.Equal(t, "status", w.request("GET", one, "").is("get", http.StatusOK).text("status"), "running")
	w.request("GET", one+"/result", "").failed("the result of one that runs", http.StatusServiceUnavailable, schemas.CodeUnavailable)
	running := func(query string) []any {
		return w.request("GET", "/v1/processes"+query, "").is("list", http.StatusOK).json["processes"].([]any)
	}
	testkit.Equal(t, "processes that run", len(running("?thread=t1")), 1)
	w.request("POST", one+"/signal", `{"signal":"SIGINT"}`).is("signal", http.StatusNoContent)
	end := output.until("exit")
	testkit.Equal(t, "exit code", end[len(end)-1].number("exitCode"), 7.0)
	testkit.Equal(t, "result", w.request("GET", one+"/result", "").is("result", http.StatusOK).number("exit_code"), 7.0)
	w.request("DELETE", one, "").failed("kill an ended one", http.StatusNotFound, schemas.CodeNotFound)
	testkit.Equal(t, "all processes", len(running("?all=true")), 3)
	page := w.request("GET", "/v1/processes?all=true&limit=2", "")
	next := w.request("GET", fmt.Sprintf("/v1/processes?all=true&limit=2&before=%.0f", page.number("next")), "")
	testkit.Equal(t, "the next page", next.json["processes"].([]any)[0].(map[string]any)["process"], any(done))
	w.request("GET", "/v1/processes?before=x", "").failed("no sequence", http.StatusBadRequest, schemas.CodeInvalidArgument)
	killed := w.request("POST", threads+"/processes", `{"command":"sleep","args":["300"]}`).text("process")
	w.request("DELETE", "/v1/processes/"+killed+"?grace_ms=0", "").is("kill", http.StatusNoContent)
	w.stream("GET", "/v1/processes/"+killed+"/output", "", "").until("exit")
}

func TestV1Files(t *testing.T) {
	w := newWeb(t, nil)
	const thread = "/v1/threads/t1"
	large := make([]byte, 5<<20)
	_, _ = rand.Read(large)
	put := func(path, content string) *answer {
		return w.request("PUT", thread+path, content, header("Content-Type", "application/octet-stream"))
	}
	e := put("/files/in/large", string(large)).is("put", http.StatusCreated)
	for name, value := range map[string]string{
		"Content-Range": "bytes 3-5/6", "If-Match": `"x"`, "If-None-Match": "*", "If-Unmodified-Since": "Thu, 01 Jan 2026 00:00:00 GMT", "Content-Encoding": "gzip",
	} {
		for _, path := range []string{"/files/in/large", "/archive/in"} {
			a := w.request("PUT", thread+path, "tail", header("Content-Type", "application/octet-stream"), header(name, value)).
				failed(name+" of "+path, http.StatusBadRequest, schemas.CodeInvalidArgument)
			testkit.Contains(t, "the error", string(a.body), name)
		}
	}
	testkit.Equal(t, "size", e.number("size"), float64(len(large)))
	got := w.request("GET", thread+"/files/in/large", "").is("get", http.StatusOK)
	if !bytes.Equal(got.body, large) {
		t.Errorf("%d bytes came back of %d, or others", len(got.body), len(large))
	}
	head := w.request("HEAD", thread+"/files/in/large", "").is("head", http.StatusOK)
	testkit.Equal(t, "announced size", head.header.Get("Content-Length"), fmt.Sprint(len(large)))
	put("/files/run.sh?mode=755", "#!/bin/sh\necho ran\n").is("put with a mode", http.StatusCreated)
	testkit.Equal(t, "stdout", w.request("POST", thread+"/exec", `{"command":"./run.sh"}`).text("stdout"), "ran\n")
	testkit.Equal(t, "mode", w.request("GET", thread+"/stat/run.sh", "").is("stat", http.StatusOK).text("mode"), "755")
	put("/entries/made/here", "").is("mkdir", http.StatusCreated)
	names := func(path string) (all []string) {
		for _, e := range w.request("GET", thread+path, "").is("list", http.StatusOK).json["entries"].([]any) {
			all = append(all, e.(map[string]any)["path"].(string))
		}
		return all
	}
	testkit.Equal(t, "entries", names("/entries/"), []string{"in", "made", "run.sh"})
	testkit.Equal(t, "found by name", names("/search/?name=*.sh"), []string{"run.sh"})
	testkit.Equal(t, "found by text", names("/search/?text=echo"), []string{"run.sh"})
	w.request("POST", thread+"/move", `{"from":"run.sh","to":"made/run.sh"}`).is("move", http.StatusOK)

	archive := w.request("GET", thread+"/archive/made", "").is("download", http.StatusOK)
	files := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(archive.body)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		testkit.Must(t, err)
		content, err := io.ReadAll(r)
		testkit.Must(t, err)
		files[strings.TrimSuffix(h.Name, "/")] = string(content)
	}
	testkit.Equal(t, "archive", files, map[string]string{"made": "", "made/here": "", "made/run.sh": "#!/bin/sh\necho ran\n"})
	testkit.Equal(t, "files and folders", put("/archive/copy", string(archive.body)).is("upload", http.StatusOK).number("files"), 3.0)
	testkit.Equal(t, "copy", string(w.request("GET", thread+"/files/copy/made/run.sh", "").body), "#!/bin/sh\necho ran\n")
	w.request("DELETE", thread+"/files/copy", "").is("remove a folder that has files", http.StatusConflict)
	w.request("DELETE", thread+"/files/copy?recursive=true", "").is("remove", http.StatusNoContent)
	w.request("GET", thread+"/stat/copy", "").failed("stat", http.StatusNotFound, schemas.CodeNotFound)

	for _, path := range []string{"..%2f..%2fetc/passwd", "in/..%2f..%2f..%2fetc/passwd", "%2fetc/passwd"} {
		a := w.request("GET", thread+"/files/"+path, "")
		if a.status == http.StatusOK || strings.Contains(string(a.body), "root:") {
			t.Errorf("%s: status %d, and %q", path, a.status, a.body)
		}
		if a = put("/files/"+path, "x"); a.status < 400 {
			t.Errorf("put %s: status %d", path, a.status)
		}
	}
	put("/files/a?mode=999", "x").failed("a mode that is none", http.StatusBadRequest, schemas.CodeInvalidArgument)
	w.request("GET", thread+"/files/in", "").failed("a folder", http.StatusBadRequest, schemas.CodeInvalidArgument)
	put("/archive/x", "no tar").is("no archive", http.StatusBadRequest)
}

func TestV1MessagesAndEvents(t *testing.T) {
	w := newWeb(t, nil)
	const messages = "/v1/threads/c1/messages"
	a := w.request("POST", messages, `{"prompt":"hello there","template":"echo-agent","user":"ann"}`).is("prompt", http.StatusOK)
	testkit.Contains(t, "answer", a.text("stdout"), "(1) hello there\n")
	process := a.text("process")
	w.stream("GET", "/v1/processes/"+process+"/output", "", "").until("exit")

	follow := func(path, last string) *eventStream {
		t.Helper()
		req, err := http.NewRequestWithContext(w.ctx, "GET", w.url+path, nil)
		testkit.Must(t, err)
		req.Header.Set("Authorization", "Bearer "+machineToken)
		req.Header.Set("Accept", "text/event-stream")
		if last != "" {
			req.Header.Set("Last-Event-ID", last)
		}
		return w.follow(req)
	}
	first := follow(messages, "")
	prompt, answer := first.next(), first.next()
	testkit.Equal(t, "prompt", prompt.text("role"), "user")
	testkit.Equal(t, "answer", answer.text("role"), "agent")
	testkit.Equal(t, "after the prompt", follow(messages, prompt.id).next().id, answer.id)

	list := w.request("GET", messages+"?limit=1", "").is("messages", http.StatusOK)
	testkit.Equal(t, "messages", len(list.json["messages"].([]any)), 1)
	testkit.Equal(t, "next", fmt.Sprintf("%.0f", list.number("next")), answer.id)
	list = w.request("GET", messages+"?from="+answer.id, "")
	testkit.Equal(t, "messages of the next page", len(list.json["messages"].([]any)), 1)

	events := w.request("GET", "/v1/events?process="+process, "").is("events", http.StatusOK).json["events"].([]any)
	testkit.Equal(t, "first event", events[0].(map[string]any)["type"], any("process.accepted"))
	all := follow("/v1/events?thread=c1", "").until("process.exited")
	again := follow("/v1/events?thread=c1", all[0].id).until("process.exited")
	testkit.Equal(t, "events after the first one", len(again), len(all)-1)
	a = w.request("GET", "/v1/events", "", header("Accept", "text/event-stream"), header("Last-Event-ID", "x"))
	a.failed("an id of no event", http.StatusBadRequest, schemas.CodeInvalidArgument)
}

func TestV1Tokens(t *testing.T) {
	w := newWeb(t, nil)
	a := w.request("POST", "/v1/tokens", `{"name":"ci","scope":"exec","lifetime_ms":3600000}`).is("create", http.StatusCreated)
	token, id := a.text("token"), a.text("id")
	w.request("GET", "/v1/sessions", "", bearer(token)).is("the new token", http.StatusOK)
	w.request("GET", "/v1/tokens", "", bearer(token)).failed("tokens without admin", http.StatusForbidden, schemas.CodePermissionDenied)
	testkit.Equal(t, "tokens", len(w.request("GET", "/v1/tokens", "").is("list", http.StatusOK).json["tokens"].([]any)), 1)
	w.request("DELETE", "/v1/tokens/"+id, "").is("revoke", http.StatusNoContent)
	w.request("GET", "/v1/sessions", "", bearer(token)).is("the revoked token", http.StatusUnauthorized)
	w.request("POST", "/v1/tokens", `{"lifetime_ms":-1}`).failed("a negative time", http.StatusBadRequest, schemas.CodeInvalidArgument)
	w.request("POST", "/v1/tokens", `{"scope":"root"}`).failed("an unknown scope", http.StatusBadRequest, schemas.CodeInvalidArgument)
}

// Every endpoint of the description is served, and none without its scope.
func TestDocument(t *testing.T) {
	doc := gateway.Document()
	var described struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
			Description string `json:"description"`
		} `json:"paths"`
	}
	testkit.Must(t, json.Unmarshal(doc, &described))
	w := newWeb(t, nil)
	reader, _ := w.token("default", client.TokenRequest{})
	ids := map[string]bool{}
	for path, methods := range described.Paths {
		for method, op := range methods {
			if ids[op.OperationID] {
				t.Errorf("two operations are %s", op.OperationID)
			}
			ids[op.OperationID] = true
			concrete := regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, "none")
			what := method + " " + path
			w.request(strings.ToUpper(method), concrete, "",
				func(r *http.Request) { r.Header.Del("Authorization") }).is(what+" without a token", http.StatusUnauthorized)
			a := w.request(strings.ToUpper(method), concrete, "{}", bearer(reader))
			if needs := !strings.Contains(op.Description, "scope read"); needs != (a.status == http.StatusForbidden) {
				t.Errorf("%s with scope read: status %d, and it says %q", what, a.status, op.Description)
			}
			if a.status >= 500 {
				t.Errorf("%s: status %d: %s", what, a.status, a.body)
			}
		}
	}
	testkit.Equal(t, "served", string(w.request("GET", "/v1/openapi.json", "").is("document", http.StatusOK).body), string(doc))
	page := w.request("GET", "/v1/docs", "").is("page", http.StatusOK)
	testkit.Contains(t, "page", string(page.body), "post /v1/threads/{thread}/exec")
}
