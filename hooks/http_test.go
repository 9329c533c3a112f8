package hooks_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

const secret = "very-secret"

func secrets(schemas.SecretRef) (string, error) { return secret, nil }

func TestHTTPHookSignsAndChecksStatus(t *testing.T) {
	status := http.StatusNoContent
	redirected := false
	mux := http.NewServeMux()
	mux.HandleFunc("/elsewhere", func(http.ResponseWriter, *http.Request) { redirected = true })
	mux.HandleFunc("/hook", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var d schemas.HookData
		if err := json.Unmarshal(body, &d); err != nil {
			t.Errorf("body %s: %v", body, err)
		}
		testkit.Equal(t, "method", r.Method, http.MethodPost)
		testkit.Equal(t, "Content-Type", r.Header.Get("Content-Type"), "application/json")
		testkit.Equal(t, hooks.HeaderOccasion, r.Header.Get(hooks.HeaderOccasion), d.Occasion)
		testkit.Equal(t, "thread", d.Conversation.Thread, "t1")
		testkit.Equal(t, hooks.HeaderSignature, r.Header.Get(hooks.HeaderSignature), hooks.Sign(secret, r.Header.Get(hooks.HeaderTimestamp), body))
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20)) // more than the hook reads
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	rec := newRecorder()
	c := newChains(t, rec, hooks.Config{Private: true, Secret: secrets})
	tpl := template(schemas.PhaseTerminate, schemas.HookSpec{URL: server.URL + "/hook?token=abc", Secret: &schemas.SecretRef{File: "/s"}, Critical: yes()})
	for _, status = range []int{200, 204, 202} {
		_, err := run(t, c, tpl, data(schemas.PhaseTerminate, http.StatusText(status)))
		testkit.Must(t, err)
	}
	for _, status = range []int{301, 307, 400, 500} {
		_, err := run(t, c, tpl, data(schemas.PhaseTerminate, http.StatusText(status)))
		testkit.WantCode(t, err, schemas.CodeUnavailable)
	}
	if redirected {
		t.Error("the hook followed a redirect")
	}
	server.Close()
	_, err := run(t, c, tpl, data(schemas.PhaseTerminate, "gone"))
	testkit.WantCode(t, err, schemas.CodeUnavailable)
	for _, ev := range rec.events {
		if body, _ := ev.Encode(); strings.Contains(string(body), "abc") || strings.Contains(string(body), secret) {
			t.Errorf("an event contains a secret: %s", body)
		}
	}
	if strings.Contains(err.Error(), "abc") {
		t.Errorf("the error contains the query: %v", err)
	}
}

func TestHTTPHookTimesOut(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(release)
	c := newChains(t, newRecorder(), hooks.Config{Private: true})
	tpl := template(schemas.PhaseTerminate, schemas.HookSpec{URL: server.URL, TimeoutMS: 50, Critical: yes()})
	_, err := run(t, c, tpl, data(schemas.PhaseTerminate, "o"))
	testkit.WantCode(t, err, schemas.CodeDeadlineExceeded)
}

func TestHTTPHookRefusesPrivateAddresses(t *testing.T) {
	plain, secure := httptest.NewServer(nil), httptest.NewTLSServer(nil)
	defer plain.Close()
	defer secure.Close()
	public := newChains(t, newRecorder(), hooks.Config{})
	post := func(c *hooks.Chains, url string) error {
		_, err := run(t, c, template(schemas.PhaseTerminate, schemas.HookSpec{URL: url, Critical: yes()}), data(schemas.PhaseTerminate, time.Now().String()))
		return err
	}
	port := secure.URL[strings.LastIndex(secure.URL, ":"):]
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "10.0.0.1", "192.168.1.1", "100.64.0.1", "[fd00::1]", "[64:ff9b::7f00:1]", "0.0.0.0", "169.254.169.254", "[fe80::1]", "224.0.0.1"} {
		// The error may also be that this machine does not support the address.
		if err := post(public, "https://"+host+port+"/"); err == nil {
			t.Errorf("the hook reached %s", host)
		}
	}
	testkit.WantCode(t, post(public, secure.URL), schemas.CodePermissionDenied)
	testkit.WantCode(t, post(public, plain.URL), schemas.CodeInvalidArgument)
	private := newChains(t, newRecorder(), hooks.Config{Private: true})
	testkit.WantCode(t, post(private, "http://169.254.169.254/"), schemas.CodePermissionDenied)
	testkit.WantCode(t, post(private, "http://192.0.3.1/"), schemas.CodePermissionDenied) // public, without TLS
}
