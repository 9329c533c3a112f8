package gateway_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestV1Sync(t *testing.T) {
	w := newWeb(t, nil)
	const thread = "/v1/threads/t1"
	w.request("POST", thread+"/push", "").failed("push without a session", http.StatusNotFound, schemas.CodeNotFound)
	w.request("POST", thread+"/session", `{"template":"stored","start":true}`).is("create", http.StatusCreated)
	write := func(text string) {
		w.request("PUT", thread+"/files/file", text, header("Content-Type", "application/octet-stream")).is("put", http.StatusCreated)
	}
	read := func() string { return string(w.request("GET", thread+"/files/file", "").is("get", http.StatusOK).body) }
	versions := func() []any {
		return w.request("GET", thread+"/versions", "").is("versions", http.StatusOK).json["versions"].([]any)
	}
	testkit.Equal(t, "versions at first", len(versions()), 0)
	write("one")
	a := w.request("POST", thread+"/push", "").is("push", http.StatusOK)
	testkit.Equal(t, "files", a.number("files"), 1.0)
	first := a.text("version")
	diff := func(query string) *answer { return w.request("GET", thread+"/diff"+query, "") }
	testkit.Equal(t, "what differs from the version", diff("").is("diff", http.StatusOK).number("count"), 0.0)
	write("two\n")
	testkit.Equal(t, "what differs after a change", diff("").is("diff", http.StatusOK).json["changes"].([]any)[0].(map[string]any)["what"], any("changed"))
	testkit.Contains(t, "the change of the file", diff("?path=file").is("diff of a file", http.StatusOK).text("text"), "-one\n\\ No newline at end of file\n+two\n")
	testkit.Contains(t, "the change since a version", diff("?path=file&at="+first).is("diff of a file", http.StatusOK).text("text"), "+two\n")
	diff("?path=none").failed("diff of no file", http.StatusNotFound, schemas.CodeNotFound)
	diff("?at="+first).failed("diff of all", http.StatusBadRequest, schemas.CodeInvalidArgument)
	restored := w.request("POST", thread+"/restore", fmt.Sprintf(`{"at":%q}`, first)).is("restore", http.StatusOK).text("version")
	testkit.Equal(t, "restored", read(), "one")
	list := versions()
	testkit.Equal(t, "versions", len(list), 3)
	testkit.Equal(t, "the newest one", list[0].(map[string]any)["id"], any(restored))
	w.request("POST", thread+"/restore", `{"at":"2001-01-01T00:00:00Z"}`).is("restore what was not", http.StatusNotFound)
	w.request("POST", thread+"/restore", `{}`).failed("restore nothing", http.StatusBadRequest, schemas.CodeInvalidArgument)
	w.request("POST", thread+"/restore", fmt.Sprintf(`{"at":%q,"path":"../x"}`, first)).failed("restore outside", http.StatusBadRequest,
		schemas.CodeInvalidArgument)

	workspaces := func() int {
		return len(w.request("GET", "/v1/workspaces", "").is("workspaces", http.StatusOK).json["workspaces"].([]any))
	}
	testkit.Equal(t, "workspaces", workspaces(), 1)
	w.request("DELETE", thread+"/workspace", "").failed("remove one in use", http.StatusConflict, schemas.CodeConflict)
	w.request("DELETE", thread+"/session?delete=true", "").is("delete", http.StatusOK)
	w.request("POST", "/v1/threads/t2/session", `{"start":true}`).is("create another", http.StatusCreated)
	w.request("POST", "/v1/threads/t2/push", "").failed("push without a location", http.StatusBadRequest, schemas.CodeInvalidArgument)
}

func TestV1StandardInput(t *testing.T) {
	w := newWeb(t, nil)
	start := func(fields string) string {
		return w.request("POST", "/v1/threads/t1/processes", `{"command":"cat"`+fields+`}`).is("start", http.StatusCreated).text("process")
	}
	id := start(`,"stdin_open":true`)
	one := "/v1/processes/" + id
	write := func(query, content string) *answer {
		return w.request("POST", one+"/stdin"+query, content, header("Content-Type", "application/octet-stream"))
	}
	large := strings.Repeat("0123456789\n", 20_000)
	write("", "a\n").is("write", http.StatusNoContent)
	write("", large).is("write", http.StatusNoContent)
	write("?close=true", "b\n").is("write and close", http.StatusNoContent)
	r := w.request("GET", one+"/result?wait=true", "").is("wait", http.StatusOK)
	testkit.Equal(t, "output", r.text("stdout"), "a\n"+large+"b\n")
	write("", "c").failed("write to an ended one", http.StatusNotFound, schemas.CodeNotFound)
	tail := w.stream("GET", one+"/output?tail=2", "", "")
	testkit.Equal(t, "last lines", data(tail.until("exit"), "stdout"), "0123456789\nb\n")

	one = "/v1/processes/" + start(`,"stdin_open":true`)
	w.request("DELETE", one+"/stdin", "").is("close", http.StatusNoContent)
	w.request("DELETE", one+"/stdin", "").is("close again", http.StatusNoContent)
	testkit.Equal(t, "exit code", w.request("GET", one+"/result?wait=true", "").number("exit_code"), 0.0)
	one = "/v1/processes/" + w.request("POST", "/v1/threads/t1/processes", `{"command":"sleep","args":["300"]}`).text("process")
	write("", "x").failed("write to one without input", http.StatusBadRequest, schemas.CodeInvalidArgument)
}

func TestV1Control(t *testing.T) {
	w := newWeb(t, nil)
	const all = "/v1/threads/t1/processes"
	start := func(key string) string {
		return w.request("POST", all, fmt.Sprintf(`{"command":"sleep","args":["300"],"key":%q,"labels":{"step":%q}}`, key, key)).text("process")
	}
	ids := []string{start("a"), start("b"), start("c")}
	testkit.Equal(t, "a process by its key", w.request("GET", all+"/b", "").is("get", http.StatusOK).text("process"), ids[1])
	testkit.Equal(t, "and by its id", w.request("GET", all+"/"+ids[1], "").is("get", http.StatusOK).text("process"), ids[1])
	w.request("GET", all+"/none", "").failed("an unknown one", http.StatusNotFound, schemas.CodeNotFound)
	for _, key := range []string{"job:1", "a.b", "job 42", "we/ird key?#%", strings.Repeat("k", 200)} {
		other := "/v1/threads/t2/processes"
		id := w.request("POST", other, fmt.Sprintf(`{"command":"sleep","args":["300"],"key":%q}`, key)).text("process")
		testkit.Equal(t, "a process by the key "+key, w.request("GET", other+"/"+url.PathEscape(key), "").is("get "+key, http.StatusOK).text("process"), id)
		w.request("DELETE", other+"/"+url.PathEscape(key), "").is("cancel "+key, http.StatusNoContent)
		testkit.Equal(t, "reason of "+key, w.request("GET", "/v1/processes/"+id+"/result?wait=true", "").text("reason"), "killed")
		w.request("DELETE", "/v1/processes/"+id+"/log", "")
	}
	w.request("POST", "/v1/threads/t2/processes/clean", "").is("clean", http.StatusOK)
	w.request("DELETE", all+"/b", "").is("cancel", http.StatusNoContent)
	w.request("GET", "/v1/processes/"+ids[1]+"/result?wait=true", "").is("wait for the canceled one", http.StatusOK)
	testkit.Equal(t, "killed", w.request("DELETE", all+"?grace_ms=0", "").is("kill all", http.StatusOK).number("killed"), 2.0)
	for _, id := range ids {
		testkit.Equal(t, "reason", w.request("GET", "/v1/processes/"+id+"/result?wait=true", "").text("reason"), "killed")
	}
	list := func() int {
		return len(w.request("GET", "/v1/processes?all=true&usage=true", "").is("list", http.StatusOK).json["processes"].([]any))
	}
	testkit.Equal(t, "processes", list(), 3)
	testkit.Equal(t, "cleaned", w.request("POST", all+"/clean", "").is("clean", http.StatusOK).number("cleaned"), 3.0)
	testkit.Equal(t, "processes after it", list(), 0)
	events := w.request("GET", "/v1/events?label=step=a", "").is("events", http.StatusOK).json["events"].([]any)
	for _, e := range events {
		if process := e.(map[string]any)["process"]; process != nil { // those of the session that it began have none
			testkit.Equal(t, "process of an event", process, any(ids[0]))
		}
	}
	if len(events) < 2 {
		t.Errorf("%d events of a label, want those of its process", len(events))
	}
	w.request("GET", "/v1/events?label=step", "").failed("half a label", http.StatusBadRequest, schemas.CodeInvalidArgument)

	w.request("POST", "/v1/threads/s1/session", `{"tags":{"team":"a=b"}}`).is("create", http.StatusCreated)
	tagged := func(value string) int {
		return len(w.request("GET", "/v1/sessions?tag=team%3D"+value, "").is("sessions", http.StatusOK).json["sessions"].([]any))
	}
	testkit.Equal(t, "sessions of a tag", tagged("a%3Db"), 1)
	testkit.Equal(t, "sessions of another", tagged("a"), 0)
}

func TestV1Services(t *testing.T) {
	w := newWeb(t, nil)
	const all = "/v1/threads/t1/services"
	a := w.request("POST", all, `{"name":"s","command":"sh","args":["-c","echo up $KEY; exec sleep 300"],"env":{"KEY":"hidden"}}`)
	a.is("start", http.StatusCreated)
	testkit.Equal(t, "state", a.text("state"), "running")
	one := w.request("GET", all+"/s", "").is("get", http.StatusOK)
	list := w.request("GET", all, "").is("list", http.StatusOK)
	testkit.Equal(t, "services", len(list.json["services"].([]any)), 1)
	for _, body := range [][]byte{a.body, one.body, list.body} {
		if strings.Contains(string(body), "hidden") {
			t.Errorf("the environment of a service is shown: %s", body)
		}
	}
	process := one.json["processes"].([]any)[0].(string)
	w.stream("GET", "/v1/processes/"+process+"/output", "", "").until("stdout")
	lines := w.request("GET", all+"/s/logs?tail=5", "").is("logs", http.StatusOK).json["lines"].([]any)
	testkit.Contains(t, "log", fmt.Sprint(lines...), "| up hidden")
	stopped := w.request("DELETE", all+"/s", "").is("stop", http.StatusOK)
	testkit.Equal(t, "state", stopped.text("state"), "stopped")
	w.request("GET", all+"/none", "").failed("an unknown one", http.StatusNotFound, schemas.CodeNotFound)
	w.request("POST", all, `{"name":"s"}`).failed("without a command", http.StatusBadRequest, schemas.CodeInvalidArgument)
}

func TestV1FollowsFilesAndAnswers(t *testing.T) {
	w := newWeb(t, nil)
	const thread = "/v1/threads/t1"
	put := func(query, content string) {
		w.request("PUT", thread+"/files/in/a"+query, content, header("Content-Type", "application/octet-stream")).is("put", http.StatusCreated)
	}
	put("", "one\n")
	watch := w.stream("GET", thread+"/watch/in", "", "")
	testkit.Equal(t, "the first change", watch.next().text("change"), "ready")
	put("?append=true", "two\n")
	testkit.Equal(t, "content", string(w.request("GET", thread+"/files/in/a", "").body), "one\ntwo\n")
	e := watch.next()
	testkit.Equal(t, "the change", e.text("change")+" "+e.text("path"), "changed in/a")

	a := w.request("POST", "/v1/threads/c1/messages", `{"prompt":"hello","template":"echo-agent"}`, header("Accept", "text/event-stream"))
	testkit.Contains(t, "an answer as a stream", string(a.is("prompt", http.StatusOK).body), `"type":"exit"`)
}

func TestV1Log(t *testing.T) {
	w := newWeb(t, nil)
	id := w.request("POST", "/v1/threads/t1/processes", `{"command":"sh","args":["-c","echo out; echo err >&2"]}`).is("start", http.StatusCreated).text("process")
	path := "/v1/processes/" + id
	w.request("GET", path+"/result?wait=true", "").is("the end", http.StatusOK)
	log := func(query, want, missing string) {
		t.Helper()
		a := w.request("GET", path+"/log"+query, "").is("a log", http.StatusOK)
		testkit.Equal(t, "log"+query, string(a.body), want)
		testkit.Equal(t, "missing bytes of log"+query, a.trailer.Get("Sluice-Missing-Bytes"), missing)
		testkit.Equal(t, "its name", a.header.Get("Content-Disposition"), "attachment; filename="+id+".log")
	}
	log("?stream=stdout", "out\n", "0")
	log("?stream=stderr", "err\n", "0")
	w.request("GET", path+"/log?stream=stdin", "").failed("another stream", http.StatusBadRequest, schemas.CodeInvalidArgument)
	w.request("DELETE", path+"/log", "").is("delete", http.StatusNoContent)
	log("", "", "8")
	lost := w.request("GET", "/api/process/"+id+"/logs", "").is("lost logs", http.StatusOK)
	testkit.Equal(t, "lost logs are said", lost.json["truncated"], any(true))
	w.request("GET", path, "").is("its record", http.StatusOK)
	w.request("DELETE", "/v1/processes/none/log", "").failed("of no process", http.StatusNotFound, schemas.CodeNotFound)
	running := w.request("POST", "/v1/threads/t1/processes", `{"command":"sleep","args":["300"]}`).is("start", http.StatusCreated).text("process")
	w.request("DELETE", "/v1/processes/"+running+"/log", "").failed("while it runs", http.StatusConflict, schemas.CodeConflict)
}
