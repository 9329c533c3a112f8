package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/gateway"
	"github.com/sluice-dev/sluice/internal/membership"
)

const httpRounds = 15

// web is a gateway of a rig, and a user of it.
type web struct {
	*rig
	http  *http.Client
	url   string
	token string
}

// webRig is a rig with a gateway in this process.
func (b *bench) webRig(ctx context.Context) (*web, error) {
	r, err := rigAt(inProcess)(b, ctx)
	if err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	stop, err := membership.Background(ctx, func(ctx context.Context, ready func()) error {
		ready()
		return gateway.New(gateway.Config{Client: r.client, MachineToken: token}).Run(ctx, l)
	})
	if err != nil {
		return nil, err
	}
	b.atEnd(stop)
	w := &web{r, &http.Client{Transport: &http.Transport{}}, "http://" + l.Addr().String(), token}
	b.atEnd(closing(w.http.CloseIdleConnections))
	return w, nil
}

// post sends JSON and decodes the answer.
func (w *web) post(ctx context.Context, path string, body, answer any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return w.send(ctx, path, "application/json", bytes.NewReader(encoded), answer)
}

// send sends a body and decodes the answer.
func (w *web) send(ctx context.Context, path, contentType string, body io.Reader, answer any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+w.token)
	req.Header.Set("Content-Type", contentType)
	resp, err := w.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s: status %d: %s", path, resp.StatusCode, text)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, answer)
}

// createSession creates a session of a thread.
func (w *web) createSession(ctx context.Context, thread string) (id string, err error) {
	var session struct {
		ID string `json:"session_id"`
	}
	err = w.post(ctx, "/create_session", map[string]string{"user_id": "bench", "thread_id": thread}, &session)
	return session.ID, err
}

// execute creates a session of a thread, and returns a command in it: over HTTP, and the same one by the SDK.
func (w *web) execute(ctx context.Context, thread string) (overHTTP, bySDK func(context.Context) error, err error) {
	session, err := w.createSession(ctx, thread)
	if err != nil {
		return nil, nil, err
	}
	overHTTP = func(ctx context.Context) error {
		var r struct {
			ExitCode int `json:"exit_code"`
		}
		err := w.post(ctx, "/execute", map[string]string{"session_id": session, "command": "true"}, &r)
		if err == nil && r.ExitCode != 0 {
			err = fmt.Errorf("true: exit code %d, want 0", r.ExitCode)
		}
		return err
	}
	bySDK = func(ctx context.Context) error {
		_, err := w.client.Exec(ctx, client.Request{Thread: thread, Command: "sh", Args: []string{"-c", "true"}, Timeout: 30 * time.Second,
			Encoding: client.EncodingText})
		return err
	}
	return overHTTP, bySDK, nil
}

// httpExec is the p50 of POST /execute over that of the same command by the SDK, one at a time.
func httpExec(ctx context.Context, b *bench, w *web) (float64, error) {
	overHTTP, bySDK, err := w.execute(ctx, "web")
	if err != nil {
		return 0, err
	}
	ours := side{"POST /execute", latencyRuns, timed(overHTTP)}
	if _, err := (side{"warm up", warmUp, ours.op}).p50(ctx); err != nil {
		return 0, err
	}
	return b.turns(ctx, httpRounds, ours, side{"exec by the SDK", latencyRuns, timed(bySDK)})
}
