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

// lateClient returns a client whose requests to JetStream are passed on. Once hide is called, the next read of the newest record of a process
// finds none, as it does while that is on its way.
func (c *cell) lateClient(process string) (cl *client.Client, hide func()) {
	c.t.Helper()
	const domain = "late"
	prefix := "$JS." + domain + ".API."
	var hidden atomic.Bool
	_, err := c.raw.Subscribe(prefix+">", func(m *nats.Msg) {
		request := strings.TrimPrefix(m.Subject, prefix)
		if strings.HasPrefix(request, "STREAM.MSG.GET.") && strings.Contains(string(m.Data), process) && hidden.CompareAndSwap(true, false) {
			_ = m.Respond([]byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`))
			return
		}
		_ = c.raw.PublishMsg(&nats.Msg{Subject: jetstream.DefaultAPIPrefix + request, Reply: m.Reply, Header: m.Header, Data: m.Data})
	})
	testkit.Must(c.t, err)
	conn, err := events.Connect(events.Options{InProcess: c.server, Domain: domain})
	testkit.Must(c.t, err)
	c.t.Cleanup(conn.Close)
	cl, err = client.New(conn)
	testkit.Must(c.t, err)
	return cl, func() { hidden.Store(true) }
}

// The main command of a start that failed may come on record as rejected only after the next start has looked for it: that start sends it
// again.
func TestMainCommandThatIsRejectedLateIsSentAgain(t *testing.T) {
	t.Parallel()
	c, dir := newCell(t), testkit.ShortDir(t)
	c.workerIn(dir, "w1", "")
	workspace := filepath.Join(dir, "ws", schemas.DefaultTenant, "t")
	testkit.Must(t, os.MkdirAll(filepath.Dir(workspace), 0o700))
	testkit.Must(t, os.WriteFile(workspace, nil, 0o600)) // no sandbox can be created
	plain, err := client.New(c.conn)
	testkit.Must(t, err)
	process := plain.ProcessID("t", "k")
	late, hide := c.lateClient(process)
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
	testkit.Must(t, os.Remove(workspace))
	hide()
	testkit.Must(t, s.Start(c.ctx))
	testkit.Must(t, s.WaitUntilComplete(c.ctx, 0))
	if code, ok := s.ExitCode(); !ok || code != 4 {
		t.Errorf("exit code %d, %v, want 4", code, ok)
	}
}
