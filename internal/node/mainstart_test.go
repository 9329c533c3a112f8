package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// clientThrough returns a client whose requests for stored messages answer looks at, one after the other: it returns the answer, or nil to
// pass the request on.
func (c *cell) clientThrough(answer func(request *nats.Msg) []byte) *client.Client {
	c.t.Helper()
	const domain = "through"
	prefix := "$JS." + domain + ".API."
	_, err := c.raw.Subscribe(prefix+">", func(m *nats.Msg) {
		request := &nats.Msg{Subject: jetstream.DefaultAPIPrefix + strings.TrimPrefix(m.Subject, prefix), Reply: m.Reply, Header: m.Header, Data: m.Data}
		if strings.HasPrefix(request.Subject, jetstream.DefaultAPIPrefix+"STREAM.MSG.GET.") {
			if data := answer(request); data != nil {
				_ = m.Respond(data)
				return
			}
		}
		_ = c.raw.PublishMsg(request)
	})
	testkit.Must(c.t, err)
	conn, err := events.Connect(events.Options{InProcess: c.server, Domain: domain})
	testkit.Must(c.t, err)
	c.t.Cleanup(conn.Close)
	cl, err := client.New(conn)
	testkit.Must(c.t, err)
	return cl
}

// mainProcess is the id of the process with the key k in the thread t.
func (c *cell) mainProcess() string {
	c.t.Helper()
	cl, err := client.New(c.conn)
	testkit.Must(c.t, err)
	return cl.ProcessID("t", "k")
}

// spoil has no sandbox of the thread t be created until mend is called.
func spoil(t *testing.T, dir string) (mend func()) {
	t.Helper()
	workspace := filepath.Join(dir, "ws", schemas.DefaultTenant, "t")
	testkit.Must(t, os.MkdirAll(filepath.Dir(workspace), 0o700))
	testkit.Must(t, os.WriteFile(workspace, nil, 0o600))
	return func() { testkit.Must(t, os.Remove(workspace)) }
}

// The main command of a start that failed may come on record as rejected only after the next start has looked for it: that start sends it
// again.
func TestMainCommandThatIsRejectedLateIsSentAgain(t *testing.T) {
	t.Parallel()
	c, dir := newCell(t), testkit.ShortDir(t)
	c.workerIn(dir, "w1", "")
	mend, process := spoil(t, dir), c.mainProcess()
	var hidden atomic.Bool
	late := c.clientThrough(func(request *nats.Msg) []byte {
		if strings.Contains(string(request.Data), process) && hidden.CompareAndSwap(true, false) {
			return []byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`)
		}
		return nil
	})
	s, err := client.Run(c.ctx, late, client.SessionRequest{Thread: "t"},
		client.WithMain(client.Request{Key: "k", Command: "sh", Args: []string{"-c", "exit 4"}}))
	testkit.Must(t, err)
	if err := s.WaitUntilComplete(c.ctx, 0); !errors.Is(err, client.ErrSandboxFailed) {
		t.Fatalf("wait for a sandbox that fails: %v", err)
	}
	c.await("the main command on record as rejected", func() bool {
		last, err := c.conn.Caller().Last(c.ctx, schemas.DefaultTenant, "t", process)
		return err == nil && last.Type == schemas.TypeProcessRejected
	})
	mend()
	hidden.Store(true)
	testkit.Must(t, s.Start(c.ctx))
	testkit.Must(t, s.WaitUntilComplete(c.ctx, 0))
	if code, ok := s.ExitCode(); !ok || code != 4 {
		t.Errorf("exit code %d, %v, want 4", code, ok)
	}
}

// The sandbox that a start requests may fail before the main command arrives, which makes the worker create another one. A handle that sees
// that failure late waits for the command, even if it has ended by then.
func TestMainCommandOutlivesTheFailureOfAnEarlierSandbox(t *testing.T) {
	t.Parallel()
	for name, ended := range map[string]bool{"it runs": false, "it has ended": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failsBeforeMain(t, ended)
		})
	}
}

// failsBeforeMain has a handle read a failure of an earlier sandbox when the main command runs already, or has ended.
func failsBeforeMain(t *testing.T, ended bool) {
	c, dir := newCell(t), testkit.ShortDir(t)
	c.workerIn(dir, "w1", "")
	mend, process := spoil(t, dir), c.mainProcess()
	await := func(typ schemas.EventType) {
		c.await("the main command has "+string(typ), func() bool {
			last, err := c.conn.Caller().Last(c.ctx, schemas.DefaultTenant, "t", process)
			return err == nil && last.Type == typ
		})
	}
	end := func() {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "ws", schemas.DefaultTenant, "t", "go"), nil, 0o600))
	}
	var failure []byte // of the first sandbox, as the server answers it
	var stale atomic.Bool
	looked := make(chan struct{})
	cl := c.clientThrough(func(request *nats.Msg) []byte {
		switch data := string(request.Data); {
		case failure == nil && strings.Contains(data, process): // the start is about to send the main command
			sandboxes := `{"last_by_subj":"` + events.NewSubjects(schemas.DefaultCell).SandboxEvents(schemas.DefaultTenant, "t") + `"}`
			c.await("the first sandbox failed", func() bool {
				ev, err := c.conn.Caller().LastSandbox(c.ctx, schemas.DefaultTenant, "t")
				return err == nil && ev.Type == schemas.TypeSandboxFailed
			})
			reply, err := c.raw.RequestWithContext(c.ctx, request.Subject, []byte(sandboxes))
			testkit.Must(t, err)
			failure = reply.Data
			if !strings.Contains(string(failure), ".sandbox.failed") {
				t.Errorf("the state of the first sandbox: %s", failure)
			}
			mend()
		case failure != nil && strings.Contains(data, ".sandbox.") && stale.CompareAndSwap(false, true):
			await(schemas.TypeProcessStarted)
			return failure
		case stale.Load() && strings.Contains(data, process): // the handle looks whether the main command goes on
			select {
			case <-looked:
				return nil
			default:
			}
			if ended {
				end()
				await(schemas.TypeProcessExited)
			}
			close(looked)
		}
		return nil
	})
	s, err := client.Run(c.ctx, cl, client.SessionRequest{Thread: "t"},
		client.WithMain(client.Request{Key: "k", Command: "sh", Args: []string{"-c", "while ! test -e go; do sleep 0.02; done; exit 4"}}))
	testkit.Must(t, err)
	done := make(chan error, 1)
	go func() { done <- s.WaitUntilComplete(c.ctx, 0) }()
	select {
	case <-looked:
	case <-c.ctx.Done():
		t.Fatal("the handle has not read the state of its sandbox")
	}
	if !ended {
		end()
	}
	testkit.Must(t, <-done)
	if code, ok := s.ExitCode(); !ok || code != 4 {
		t.Errorf("exit code %d, %v, want 4", code, ok)
	}
}

// A main command that its worker's shutdown killed is over: a later start that fails says so.
func TestSandboxFailsAfterItsMainCommandWasKilled(t *testing.T) {
	t.Parallel()
	c, dir := newCell(t), testkit.ShortDir(t)
	_, stop := c.workerIn(dir, "w1", "")
	cl, err := client.New(c.conn)
	testkit.Must(t, err)
	s, err := client.Run(c.ctx, cl, client.SessionRequest{Thread: "t"},
		client.WithMain(client.Request{Key: "k", Command: "sleep", Args: []string{"300"}}))
	testkit.Must(t, err)
	testkit.Must(t, s.Wait(c.ctx))
	stop()
	testkit.Must(t, os.RemoveAll(filepath.Join(dir, "ws", schemas.DefaultTenant, "t")))
	spoil(t, dir)
	c.workerIn(dir, "w1", "")
	testkit.Must(t, s.Start(c.ctx))
	if err := s.WaitUntilComplete(c.ctx, 0); !errors.Is(err, client.ErrSandboxFailed) {
		t.Errorf("wait for a sandbox that fails: %v", err)
	}
}
