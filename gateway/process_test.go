package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestProcessAPI(t *testing.T) {
	w := newWeb(t, nil)
	a := w.request("POST", "/api/process/start",
		`{"command":"sh","args":["-c","echo $WORD; echo e >&2; exec sleep 300"],"processId":"mine","env":{"WORD":"hi"},"cwd":"."}`)
	a.is("start", http.StatusOK)
	id := a.text("id")
	testkit.Equal(t, "command", a.text("command"), "sh")
	testkit.Equal(t, "session", a.text("sessionId"), "default")
	wantTime(t, "startTime", a.text("startTime"), 0)
	var printed []*sent
	for s := w.stream("GET", "/api/process/"+id+"/stream", "", ""); data(printed, "stdout") == "" || data(printed, "stderr") == ""; {
		printed = append(printed, s.next())
	}

	for _, name := range []string{id, "mine"} {
		a = w.request("GET", "/api/process/"+name, "").is("get", http.StatusOK)
		a.fields("id", "pid", "command", "args", "status", "startTime", "sessionId")
		testkit.Equal(t, "id", a.text("id"), id)
		testkit.Equal(t, "status", a.text("status"), "running")
	}
	again := w.request("POST", "/api/process/start",
		`{"command":"sh","args":["-c","echo $WORD; echo e >&2; exec sleep 300"],"processId":"mine","env":{"WORD":"hi"},"cwd":"."}`)
	testkit.Equal(t, "id of the same start", again.is("start again", http.StatusOK).text("id"), id)
	w.request("POST", "/api/process/start", `{"command":"true","processId":"mine"}`).failed("another one of this name",
		http.StatusConflict, schemas.CodeConflict)

	a = w.request("GET", "/api/process/"+id+"/logs", "").is("logs", http.StatusOK).fields("processId", "stdout", "stderr")
	testkit.Equal(t, "stdout", a.text("stdout"), "hi\n")
	testkit.Equal(t, "stderr", a.text("stderr"), "e\n")

	list := func(query string) map[string]any {
		a := w.request("GET", "/api/process/list"+query, "").is("list", http.StatusOK).fields("processes", "count")
		all := map[string]any{}
		for _, p := range a.json["processes"].([]any) {
			all[p.(map[string]any)["id"].(string)] = p.(map[string]any)["status"]
		}
		testkit.Equal(t, "count", a.number("count"), float64(len(all)))
		return all
	}
	testkit.Equal(t, "list", list(""), map[string]any{id: "running"})
	testkit.Equal(t, "list of another session", list("?sessionId=other"), map[string]any{})

	a = w.request("DELETE", "/api/process/"+id, "").is("delete", http.StatusOK).fields("success", "id")
	testkit.Equal(t, "success", a.json["success"], any(true))
	w.stream("GET", "/api/process/"+id+"/stream", "", "").until("exit")
	a = w.request("GET", "/api/process/"+id, "").is("get an ended one", http.StatusOK)
	a.fields("id", "command", "args", "status", "startTime", "endTime", "exitCode", "reason", "sessionId")
	testkit.Equal(t, "status", a.text("status"), "killed")
	testkit.Equal(t, "exit code", a.number("exitCode"), 143.0)
	w.request("DELETE", "/api/process/"+id, "").is("delete an ended one", http.StatusOK)
	testkit.Equal(t, "list after the end", list(""), map[string]any{}) // autoCleanup

	kept := w.request("POST", "/api/process/start", `{"command":"false","autoCleanup":false,"sessionId":"other"}`).is("start",
		http.StatusOK).text("id")
	w.stream("GET", "/api/process/"+kept+"/stream", "", "").until("exit")
	testkit.Equal(t, "list", list("?sessionId=other"), map[string]any{kept: "failed"})
	slow := w.request("POST", "/api/process/start", `{"command":"sleep","args":["300"],"timeout":50}`).text("id")
	events := w.stream("GET", "/api/process/"+slow+"/stream", "", "").until("exit")
	testkit.Equal(t, "exit code of a timeout", events[0].number("exitCode"), 124.0)
	w.request("DELETE", "/api/process/"+w.begin("trap 'exit 7' INT; while :; do sleep 0.05; done")+"?signal=SIGINT", "").is("a signal",
		http.StatusOK)

	for name, tt := range map[string]struct {
		method, path, body string
		status             int
		code               schemas.Code
	}{
		"no command":          {"POST", "/api/process/start", "{}", 400, schemas.CodeInvalidArgument},
		"an unknown process":  {"GET", "/api/process/none", "", 404, schemas.CodeNotFound},
		"no id of a process":  {"GET", "/api/process/a.b", "", 400, schemas.CodeInvalidArgument},
		"logs of none":        {"GET", "/api/process/none/logs", "", 404, schemas.CodeNotFound},
		"stream of none":      {"GET", "/api/process/none/stream", "", 404, schemas.CodeNotFound},
		"delete none":         {"DELETE", "/api/process/none", "", 404, schemas.CodeNotFound},
		"a thread as pattern": {"GET", "/api/process/list?sessionId=*", "", 400, schemas.CodeInvalidArgument},
		"an unknown signal":   {"DELETE", "/api/process/" + w.begin("exec sleep 300") + "?signal=SIGFOO", "", 400, schemas.CodeInvalidArgument},
		"a limit of nothing":  {"GET", "/api/process/list?limit=0", "", 400, schemas.CodeInvalidArgument},
		"a limit in words":    {"GET", "/api/process/list?limit=all", "", 400, schemas.CodeInvalidArgument},
	} {
		w.request(tt.method, tt.path, tt.body).failed(name, tt.status, tt.code)
	}
}

// server is a program that answers HTTP on a port, and its name is healthy.
func server(port int) string {
	return fmt.Sprintf(`import http.server
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *a): pass
print("serving", flush=True)
http.server.HTTPServer(("127.0.0.1", %d), H).serve_forever()`, port)
}

func TestServiceAPI(t *testing.T) {
	w := newWeb(t, nil)
	port := testkit.FreePort(t)
	body := fmt.Sprintf(`{"command":"python3","args":["-c",%q],"processId":"web","healthCheck":{"port":%d,"path":"/","interval":1000}}`,
		server(port), port)
	a := w.request("POST", "/api/service/start", body).is("start", http.StatusOK)
	a.fields("id", "sessionId", "processId", "command", "status", "base_url", "healthy", "restart_attempts", "log_lines")
	testkit.Equal(t, "id", a.text("id"), "web")
	testkit.Equal(t, "status", a.text("status"), "running")
	testkit.Equal(t, "base URL", a.text("base_url"), fmt.Sprint("http://127.0.0.1:", port))
	testkit.Equal(t, "healthy", a.json["healthy"], any(true))
	w.request("POST", "/api/service/start", body).is("join", http.StatusOK)
	w.request("POST", "/api/service/start", strings.Replace(body, "1000", "2000", 1)).failed("another one of this name",
		http.StatusConflict, schemas.CodeConflict)
	w.request("POST", "/api/service/start", `{"command":"/no/such/program"}`).failed("a missing program", http.StatusBadRequest,
		schemas.CodeInvalidArgument)
	w.request("POST", "/api/service/start", `{"command":"true","healthCheck":{"port":70000}}`).failed("a bad port",
		http.StatusBadRequest, schemas.CodeInvalidArgument)
	_, err := w.Services("default").Stop(w.ctx, "web")
	testkit.Must(t, err)
}

func TestSandboxStatusAndLogs(t *testing.T) {
	w := newWeb(t, nil)
	a := w.request("GET", "/api/sandbox/status", "").is("status", http.StatusOK).fields("status", "base_url", "healthy",
		"restart_attempts", "log_lines")
	testkit.Equal(t, "status", a.text("status"), "not_started")
	testkit.Equal(t, "healthy", a.json["healthy"], any(false))
	testkit.Equal(t, "logs", w.request("GET", "/api/sandbox/logs", "").is("logs", http.StatusOK).json, map[string]any{"logs": []any{}})

	port := testkit.FreePort(t)
	_, err := w.Services("sandbox-agent").Start(w.ctx, client.ServiceRequest{Name: "agent", ServiceSpec: schemas.ServiceSpec{
		Command: "python3", Args: []string{"-c", "for i in range(200): print(i)\n" + server(port)},
		Health: &schemas.HealthCheck{Port: int64(port), Path: "/health"},
	}})
	testkit.Must(t, err)
	a = w.request("GET", "/api/sandbox/status", "").is("status", http.StatusOK)
	testkit.Equal(t, "status", a.text("status"), "running")
	testkit.Equal(t, "base URL", a.text("base_url"), fmt.Sprint("http://127.0.0.1:", port))
	testkit.Equal(t, "healthy", a.json["healthy"], any(true))
	testkit.Equal(t, "restarts", a.number("restart_attempts"), 0.0)
	for query, want := range map[string]int{"": 100, "?tail=3": 3, "?tail=1000": 201} {
		lines := w.request("GET", "/api/sandbox/logs"+query, "").is("logs", http.StatusOK).json["logs"].([]any)
		testkit.Equal(t, "lines of "+query, len(lines), want)
		stamp, text, _ := strings.Cut(lines[len(lines)-1].(string), " | ")
		wantTime(t, "time of a line", stamp, 0)
		testkit.Equal(t, "last line", text, "serving")
	}
	w.request("GET", "/api/sandbox/logs?tail=-1", "").failed("a negative tail", http.StatusBadRequest, schemas.CodeInvalidArgument)
	_, err = w.Services("sandbox-agent").Stop(w.ctx, "agent")
	testkit.Must(t, err)
	testkit.Equal(t, "status", w.request("GET", "/api/sandbox/status", "").text("status"), "stopped")
}

func TestConversationStreams(t *testing.T) {
	w := newWeb(t, nil)
	body := `{"prompt":"hello there","agent_id":"echo-agent"}`
	events := w.stream("POST", "/conversation/c1/sandbox/any", body, "").until("finish")
	first, last := events[0], events[len(events)-1]
	first.fields("type", "conversation_id", "sandbox_id", "session_id", "agent_id", "processId")
	testkit.Equal(t, "conversation", first.text("conversation_id"), "c1")
	testkit.Equal(t, "agent", first.text("agent_id"), "echo-agent")
	info, err := w.SessionInfo(w.ctx, "c1")
	testkit.Must(t, err)
	testkit.Equal(t, "sandbox", first.text("sandbox_id"), info.Sandbox)
	testkit.Contains(t, "answer", data(events, "stdout"), "(1) hello there\n")
	last.fields("type", "exitCode", "reason", "usage")
	testkit.Equal(t, "usage", last.json["usage"], any(map[string]any{"input_tokens": 2.0, "output_tokens": 3.0}))
	testkit.Equal(t, "exit before it", events[len(events)-2].text("type"), "exit")

	for i, sandbox := range []string{info.Sandbox, first.text("session_id"), info.ID, "c1"} { // the route before it
		events = w.stream("POST", "/sandboxes/"+sandbox+"/claude", `{"prompt":"again"}`, "").until("finish")
		testkit.Equal(t, "conversation", events[0].text("conversation_id"), "c1")
		testkit.Contains(t, "answer", data(events, "stdout"), fmt.Sprintf("(%d) again\n", i+2))
	}
	// What the answer streamed can be read again.
	events = w.stream("GET", "/api/process/"+first.text("processId")+"/stream", "", "").until("exit")
	testkit.Contains(t, "answer", data(events, "stdout"), "(1) hello there\n")

	for name, tt := range map[string]struct {
		path, body string
		status     int
		code       schemas.Code
	}{
		"no prompt":          {"/conversation/c1/sandbox/x", "{}", 400, schemas.CodeInvalidArgument},
		"no agent":           {"/conversation/c2/sandbox/x", `{"prompt":"x"}`, 400, schemas.CodeInvalidArgument},
		"an unknown sandbox": {"/sandboxes/none/claude", `{"prompt":"x"}`, 404, schemas.CodeNotFound},
		"an invalid thread":  {"/conversation/a.b/sandbox/x", `{"prompt":"x"}`, 400, schemas.CodeInvalidArgument},
	} {
		w.request("POST", tt.path, tt.body).failed(name, tt.status, tt.code)
	}
}
