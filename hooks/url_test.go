package hooks_test

import (
	"crypto/hmac"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/schemas"
)

const secret = "very-secret"

func secrets(schemas.SecretRef) (string, error) { return secret, nil }

func TestAPostIsSignedAndItsStatusDecides(t *testing.T) {
	status := http.StatusNoContent
	elsewhere := false
	mux := http.NewServeMux()
	mux.HandleFunc("/elsewhere", func(http.ResponseWriter, *http.Request) { elsewhere = true })
	mux.HandleFunc("/hook", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var d schemas.HookData
		if err := json.Unmarshal(body, &d); err != nil || d.Occasion != r.Header.Get(hooks.HeaderOccasion) || d.Conversation.Thread != "t1" {
			t.Errorf("%v: %s", err, body)
		}
		want := hooks.Sign(secret, r.Header.Get(hooks.HeaderTimestamp), body)
		if !hmac.Equal([]byte(want), []byte(r.Header.Get(hooks.HeaderSignature))) || r.Header.Get("Content-Type") != "application/json" || r.Method != http.MethodPost {
			t.Errorf("%v", r.Header)
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20)) // more than is read
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	n := newNotebook()
	c := chains(t, n, hooks.Config{Private: true, Secret: secrets})
	tpl := template(schemas.PhaseTerminate, schemas.HookSpec{URL: server.URL + "/hook?token=abc", Secret: &schemas.SecretRef{File: "/s"}, Critical: yes()})
	for _, status = range []int{200, 204, 202} {
		_, err := c.Run(patient(t), tpl, data(schemas.PhaseTerminate, http.StatusText(status)), "", nil)
		must(t, err)
	}
	for _, status = range []int{301, 307, 400, 500} {
		_, err := c.Run(patient(t), tpl, data(schemas.PhaseTerminate, http.StatusText(status)), "", nil)
		wantCode(t, err, schemas.CodeUnavailable)
	}
	if elsewhere {
		t.Error("a redirect was followed")
	}
	server.Close()
	_, err := c.Run(patient(t), tpl, data(schemas.PhaseTerminate, "gone"), "", nil)
	wantCode(t, err, schemas.CodeUnavailable)
	for _, ev := range n.events {
		if body, _ := ev.Encode(); strings.Contains(string(body), "abc") || strings.Contains(string(body), secret) {
			t.Errorf("an event tells a secret: %s", body)
		}
	}
	if strings.Contains(err.Error(), "abc") {
		t.Error(err)
	}
}

func TestAPostThatHangsRunsIntoItsTimeout(t *testing.T) {
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
	c := chains(t, newNotebook(), hooks.Config{Private: true})
	tpl := template(schemas.PhaseTerminate, schemas.HookSpec{URL: server.URL, TimeoutMS: 50, Critical: yes()})
	_, err := c.Run(patient(t), tpl, data(schemas.PhaseTerminate, "o"), "", nil)
	wantCode(t, err, schemas.CodeDeadlineExceeded)
}

func TestPrivateAddressesAreReachedOnlyWhereAllowed(t *testing.T) {
	plain, secure := httptest.NewServer(nil), httptest.NewTLSServer(nil)
	defer plain.Close()
	defer secure.Close()
	strict := chains(t, newNotebook(), hooks.Config{})
	post := func(c *hooks.Chains, url string) error {
		ctx := patient(t)
		_, err := c.Run(ctx, template(schemas.PhaseTerminate, schemas.HookSpec{URL: url, Critical: yes()}), data(schemas.PhaseTerminate, time.Now().String()), "", nil)
		return err
	}
	port := secure.URL[strings.LastIndex(secure.URL, ":"):]
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "10.0.0.1", "192.168.1.1", "100.64.0.1", "[fd00::1]", "[64:ff9b::7f00:1]", "0.0.0.0", "169.254.169.254", "[fe80::1]", "224.0.0.1"} {
		// An address of a kind that this machine has not is not dialled at all; what matters is that nothing is reached.
		if err := post(strict, "https://"+host+port+"/"); err == nil {
			t.Errorf("%s was reached", host)
		}
	}
	wantCode(t, post(strict, secure.URL), schemas.CodePermissionDenied)
	wantCode(t, post(strict, plain.URL), schemas.CodeInvalidArgument)
	loose := chains(t, newNotebook(), hooks.Config{Private: true})
	wantCode(t, post(loose, "http://169.254.169.254/"), schemas.CodePermissionDenied)
	wantCode(t, post(loose, "http://192.0.2.1/"), schemas.CodePermissionDenied) // public, and not secure
}
