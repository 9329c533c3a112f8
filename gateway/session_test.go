package gateway_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// newSession creates a session of the session API and returns its id.
func (w *web) newSession(thread string) string {
	w.t.Helper()
	return w.request("POST", "/create_session", fmt.Sprintf(`{"user_id":"ann","thread_id":%q,"timeout_minutes":10}`, thread)).
		is("create a session", http.StatusCreated).text("session_id")
}

// wantTime fails the test unless a field is a time of ISO 8601 at most an hour away from now, plus ahead.
func wantTime(t *testing.T, what, text string, ahead time.Duration) {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Errorf("%s = %q, want a time: %v", what, text, err)
	} else if d := time.Until(at) - ahead; d > time.Hour || d < -time.Hour {
		t.Errorf("%s = %q, %s from the expected time", what, text, d)
	}
}

func TestCreateSession(t *testing.T) {
	w := newWeb(t, nil)
	body := `{"user_id":"ann","thread_id":"t1","timeout_minutes":600}`
	a := w.request("POST", "/create_session", body).is("create", http.StatusCreated)
	a.fields("session_id", "thread_id", "status", "workspace_dir", "user", "expires_at")
	testkit.Equal(t, "thread", a.text("thread_id"), "t1")
	testkit.Equal(t, "status", a.text("status"), "created")
	testkit.Equal(t, "user", a.text("user"), "ann")
	wantTime(t, "expires_at", a.text("expires_at"), 10*time.Hour)
	info, err := w.SessionInfo(w.ctx, "t1")
	testkit.Must(t, err)
	testkit.Equal(t, "template", info.Template, "documents")

	again := w.request("POST", "/create_session", body).is("create again", http.StatusConflict)
	again.fields("session_id", "thread_id", "status", "workspace_dir", "user", "expires_at", "created_at", "last_activity")
	testkit.Equal(t, "session", again.text("session_id"), a.text("session_id"))
	testkit.Equal(t, "status", again.text("status"), "existing")
	wantTime(t, "created_at", again.text("created_at"), 0)
	wantTime(t, "last_activity", again.text("last_activity"), 0)

	_, _, err = w.CreateSession(w.ctx, client.SessionRequest{Thread: "other", Template: "default"})
	testkit.Must(t, err)
	_, err = w.Exec(w.ctx, client.Request{Thread: "other", Command: "true"}) // it keeps its template from here on
	testkit.Must(t, err)
	other := w.request("POST", "/create_session", `{"user_id":"ann","thread_id":"other"}`).is("a thread of another template",
		http.StatusConflict)
	testkit.Equal(t, "status", other.text("status"), "existing")
}

func TestGetSession(t *testing.T) {
	w := newWeb(t, nil)
	id := w.newSession("t1")
	w.request("POST", "/execute", fmt.Sprintf(`{"session_id":%q,"command":"echo 1 > a; echo 2 > b"}`, id)).is("write two files", http.StatusOK)
	a := w.request("GET", "/get_session?thread_id=t1", "").is("get", http.StatusOK)
	a.fields("session_id", "thread_id", "status", "created_at", "last_activity", "workspace_dir", "files_count", "user", "expires_at")
	testkit.Equal(t, "session", a.text("session_id"), id)
	testkit.Equal(t, "status", a.text("status"), "active")
	testkit.Equal(t, "files", a.number("files_count"), 2.0)
	a = w.request("GET", "/get_session?thread_id=none", "").failed("no session", http.StatusNotFound, schemas.CodeNotFound, "thread_id")
	testkit.Equal(t, "thread", a.text("thread_id"), "none")
	testkit.Equal(t, "error", a.text("error"), "Session not found")
}

func TestExecute(t *testing.T) {
	w := newWeb(t, nil)
	id := w.newSession("t1")
	run := func(command, further string) *answer {
		return w.request("POST", "/execute", fmt.Sprintf(`{"session_id":%q,"command":%q%s}`, id, command, further))
	}
	a := run("echo b; echo a | cat; ls /no-such-folder", "").is("execute", http.StatusOK).fields("exit_code", "stdout", "stderr",
		"execution_time_ms")
	testkit.Equal(t, "exit code", a.number("exit_code"), 2.0)
	testkit.Equal(t, "stdout", a.text("stdout"), "b\na\n")
	testkit.Contains(t, "stderr", a.text("stderr"), "/no-such-folder")
	if ms := a.number("execution_time_ms"); ms <= 0 {
		t.Errorf("execution_time_ms = %v, want more than 0", ms)
	}
	a = run("python3 -c 'import time; time.sleep(300)'", `,"timeout":1`).is("timeout", http.StatusOK)
	testkit.Equal(t, "exit code of a timeout", a.number("exit_code"), 124.0)

	for _, tt := range []struct{ command, pattern string }{
		{"rm -rf /", "rm"}, {"cat a | sudo tee b", "sudo"}, {"true && perl -e 1", "perl"},
	} {
		a = run(tt.command, "").failed(tt.command, http.StatusBadRequest, schemas.CodePolicyDenied, "command", "forbidden_pattern")
		testkit.Equal(t, "command", a.text("command"), tt.command)
		testkit.Equal(t, "forbidden pattern", a.text("forbidden_pattern"), tt.pattern)
	}
	w.wantNoSession(func(session string) *answer {
		return w.request("POST", "/execute", fmt.Sprintf(`{"session_id":%q,"command":"echo hi"}`, session))
	})
}

// wantNoSession checks what a request answers for an unknown session, and for one that has ended.
func (w *web) wantNoSession(request func(session string) *answer) {
	w.t.Helper()
	ended := w.newSession("ended")
	_, err := w.StopSession(w.ctx, "ended")
	testkit.Must(w.t, err)
	for session, text := range map[string]string{"no-such-session": "Session not found", ended: "Session expired"} {
		code := schemas.CodeSessionExpired
		if session != ended {
			code = schemas.CodeNotFound
		}
		a := request(session).failed(text, http.StatusNotFound, code, "session_id")
		testkit.Equal(w.t, "session", a.text("session_id"), session)
		testkit.Equal(w.t, "error", a.text("error"), text)
	}
}

// field is a field of a form; a file has a name too.
type field struct{ name, file, value string }

// post posts a form.
func (w *web) post(path string, fields ...field) *answer {
	w.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, f := range fields {
		var part io.Writer
		var err error
		if f.file != "" {
			part, err = form.CreateFormFile(f.name, f.file)
		} else {
			part, err = form.CreateFormField(f.name)
		}
		testkit.Must(w.t, err)
		_, err = io.WriteString(part, f.value)
		testkit.Must(w.t, err)
	}
	testkit.Must(w.t, form.Close())
	return w.request("POST", path, body.String(), func(r *http.Request) { r.Header.Set("Content-Type", form.FormDataContentType()) })
}

func (w *web) upload(session, name, content string) *answer {
	w.t.Helper()
	return w.post("/upload_file", field{name: "session_id", value: session}, field{"file", "local.txt", content}, field{name: "filename",
		value: name})
}

func TestUploadAndDownloadFile(t *testing.T) {
	w := newWeb(t, nil)
	id := w.newSession("t1")
	random := make([]byte, 1<<20)
	_, _ = rand.Read(random)
	content := string(random)
	// In the order of the documents, in the order of most clients, and under the name of the file itself.
	a := w.upload(id, "a.bin", content).is("upload", http.StatusOK).fields("status", "filename", "path", "size_bytes")
	testkit.Equal(t, "status", a.text("status"), "uploaded")
	testkit.Equal(t, "filename", a.text("filename"), "a.bin")
	testkit.Equal(t, "size", a.number("size_bytes"), float64(len(content)))
	info, err := w.SessionInfo(w.ctx, "t1")
	testkit.Must(t, err)
	testkit.Equal(t, "path", a.text("path"), info.Workspace+"/a.bin")
	w.post("/upload_file", field{name: "session_id", value: id}, field{name: "filename", value: "in/b.txt"}, field{"file", "x",
		"b"}).is("name first", http.StatusOK)
	w.post("/upload_file", field{name: "session_id", value: id}, field{"file", "c.txt", "c"}).is("its own name", http.StatusOK)
	again := w.upload(id, a.text("path"), content).is("upload to the path of an answer", http.StatusOK)
	testkit.Equal(t, "the path of a file by its path", again.text("path"), a.text("path"))

	download := func(name string) *answer {
		return w.request("POST", "/download_file", fmt.Sprintf(`{"session_id":%q,"filename":%q}`, id, name))
	}
	for name, want := range map[string]string{"a.bin": content, "in/b.txt": "b", "c.txt": "c"} {
		d := download(name).is("download "+name, http.StatusOK)
		if string(d.body) != want {
			t.Errorf("%s: %d bytes differ from the %d that were uploaded", name, len(d.body), len(want))
		}
		testkit.Equal(t, "content type", d.header.Get("Content-Type"), "application/octet-stream")
		testkit.Equal(t, "size", d.header.Get("Content-Length"), fmt.Sprint(len(want)))
		testkit.Equal(t, "disposition", d.header.Get("Content-Disposition"), "attachment; filename="+name[strings.LastIndex(name, "/")+1:])
	}
	a = download("none").failed("a missing file", http.StatusNotFound, schemas.CodeNotFound, "filename", "workspace_dir")
	testkit.Equal(t, "filename", a.text("filename"), "none")
	testkit.Equal(t, "workspace", a.text("workspace_dir"), info.Workspace)
	for _, name := range []string{"../../etc/passwd", "/etc/passwd", "in/../../x", "in", "a\x00b"} {
		download(name).failed("download "+name, http.StatusBadRequest, schemas.CodeInvalidArgument)
	}
	w.wantNoSession(func(session string) *answer { return w.upload(session, "x", "x") })
	w.wantNoSession(func(session string) *answer {
		return w.request("POST", "/download_file", fmt.Sprintf(`{"session_id":%q,"filename":"x"}`, session))
	})
}

func TestUploadsBeyondALimit(t *testing.T) {
	w := newWeb(t, nil)
	id := w.newSession("t1")
	megabyte := strings.Repeat("x", 1e6)
	for _, tt := range []struct{ name, content string }{
		{"announced", strings.Repeat("x", 4e6)}, // 413 at once, by its length
		{"counted", strings.Repeat("x", 2e6+1)}, // too little more than the limit to be told before
	} {
		a := w.upload(id, "large", tt.content).failed(tt.name, http.StatusRequestEntityTooLarge, schemas.CodeTooLarge, "max_size_mb",
			"uploaded_size_mb")
		testkit.Equal(t, "limit", a.number("max_size_mb"), 2.0)
		if size := a.number("uploaded_size_mb"); size <= 2 {
			t.Errorf("%s: uploaded_size_mb = %v, want more than 2", tt.name, size)
		}
	}
	w.upload(id, "1", megabyte+megabyte).is("two megabytes", http.StatusOK)
	a := w.upload(id, "2", megabyte+"x").failed("a full workspace", http.StatusInsufficientStorage, schemas.CodeLimitExceeded,
		"max_workspace_mb", "current_workspace_mb", "file_size_mb")
	testkit.Equal(t, "limit", a.number("max_workspace_mb"), 3.0)
	testkit.Equal(t, "current", a.number("current_workspace_mb"), 2.0)
	for _, name := range []string{"2", "3", "4", "5"} {
		w.upload(id, name, "x").is("file "+name, http.StatusOK)
	}
	a = w.upload(id, "6", "x").failed("a file too many", http.StatusInsufficientStorage, schemas.CodeLimitExceeded, "max_files",
		"current_files")
	testkit.Equal(t, "limit", a.number("max_files"), 5.0)
	testkit.Equal(t, "current", a.number("current_files"), 5.0)
	testkit.Equal(t, "files", w.request("GET", "/list_files?session_id="+id, "").number("total_files"), 5.0) // nothing is left of the others
}

func TestListFiles(t *testing.T) {
	w := newWeb(t, nil)
	id := w.newSession("t1")
	list := func() *answer { return w.request("GET", "/list_files?session_id="+id, "") }
	a := list().is("an empty workspace", http.StatusOK).fields("session_id", "workspace_dir", "files", "total_files", "total_size_bytes")
	testkit.Equal(t, "files", a.json["files"], any([]any{}))
	for _, f := range []struct{ name, content string }{{"old", "1"}, {"in/new", "22"}} {
		w.upload(id, f.name, f.content).is("upload", http.StatusOK)
	}
	a = list().is("list", http.StatusOK)
	testkit.Equal(t, "session", a.text("session_id"), id)
	testkit.Equal(t, "files", a.number("total_files"), 2.0)
	testkit.Equal(t, "bytes", a.number("total_size_bytes"), 3.0)
	for i, want := range []string{"in/new", "old"} { // the newest first
		f := &answer{t: t, json: a.json["files"].([]any)[i].(map[string]any)}
		f.fields("name", "size_bytes", "modified", "permissions")
		testkit.Equal(t, "name", f.text("name"), want)
		testkit.Equal(t, "permissions", f.text("permissions"), "644")
		wantTime(t, "modified", f.text("modified"), 0)
	}
	w.wantNoSession(func(session string) *answer { return w.request("GET", "/list_files?session_id="+session, "") })
}

func TestCleanup(t *testing.T) {
	w := newWeb(t, nil)
	id := w.newSession("t1")
	w.upload(id, "a", "a").is("upload", http.StatusOK)
	body := fmt.Sprintf(`{"session_id":%q}`, id)
	a := w.request("POST", "/cleanup", body).is("cleanup", http.StatusOK).fields("status", "session_id")
	testkit.Equal(t, "status", a.text("status"), "cleaned_up")
	testkit.Equal(t, "session", a.text("session_id"), id)
	if _, err := w.SessionInfo(w.ctx, "t1"); !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("session after cleanup: error = %v, want not_found", err)
	}
	w.request("POST", "/cleanup", body).failed("cleanup again", http.StatusNotFound, schemas.CodeSessionExpired, "session_id")
	again := w.newSession("t1")
	testkit.Equal(t, "files", w.request("GET", "/list_files?session_id="+again, "").number("total_files"), 0.0)
	w.wantNoSession(func(session string) *answer {
		return w.request("POST", "/cleanup", fmt.Sprintf(`{"session_id":%q}`, session))
	})
}

func TestHealth(t *testing.T) {
	w := newWeb(t, nil)
	a := w.request("GET", "/health", "", func(r *http.Request) { r.Header.Del("Authorization") }).is("without a token",
		http.StatusOK).fields("status")
	testkit.Equal(t, "status", a.text("status"), "healthy")
	w.newSession("t1")
	a = w.request("GET", "/health", "").is("with a token", http.StatusOK)
	a.fields("status", "worker_id", "pool_size", "pool_available", "active_sessions", "uptime_seconds", "nats_connected")
	testkit.Equal(t, "status", a.text("status"), "healthy")
	testkit.Equal(t, "worker", a.text("worker_id"), "w1")
	testkit.Equal(t, "sessions", a.number("active_sessions"), 1.0)
	testkit.Equal(t, "connected", a.json["nats_connected"], any(true))
	if a.number("pool_size") < a.number("pool_available") || a.number("pool_size") == 0 {
		t.Errorf("pool of %v with %v available", a.number("pool_size"), a.number("pool_available"))
	}
}

func TestNoWorkerIsUnavailable(t *testing.T) {
	w := newWeb(t, nil)
	testkit.Must(t, w.stopWorker())
	w.request("POST", "/create_session", `{"user_id":"ann","thread_id":"t1"}`).failed("create a session", http.StatusServiceUnavailable,
		schemas.CodeUnavailable)
	a := w.request("GET", "/health", "").is("health", http.StatusServiceUnavailable)
	testkit.Equal(t, "status", a.text("status"), "unhealthy")
	testkit.Equal(t, "connected", a.json["nats_connected"], any(true))
	testkit.Equal(t, "workers", a.text("worker_id"), "")
	w.request("GET", "/health", "", func(r *http.Request) { r.Header.Del("Authorization") }).is("the gateway itself", http.StatusOK)
}
