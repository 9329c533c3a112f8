package node

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// store is a place of workspaces that a test can break and mend.
type store struct {
	t    *testing.T
	path string
}

func (s store) yaml() string {
	return "name: default\nsync: {location: 'file://" + s.path + "/{thread}'}\n"
}

// fail puts a file where the folder was, which moves away.
func (s store) fail() {
	s.t.Helper()
	testkit.Must(s.t, os.MkdirAll(s.path, 0o700))
	testkit.Must(s.t, os.Rename(s.path, s.path+".away"))
	testkit.Must(s.t, os.WriteFile(s.path, nil, 0o600))
}

func (s store) mend() {
	s.t.Helper()
	testkit.Must(s.t, os.Remove(s.path))
	testkit.Must(s.t, os.Rename(s.path+".away", s.path))
}

// pushed reports whether the store has a workspace of the thread.
func (s store) pushed(thread string) bool {
	_, err := os.Stat(filepath.Join(s.path, thread, ".sandbox-state"))
	return err == nil
}

// await waits until done returns true.
func (c *cell) await(what string, done func() bool) {
	c.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			c.t.Fatalf("not %s in time", what)
		}
	}
}

// owes returns what is owed.
func (c *cell) owes(cl *client.Client) []schemas.OwedPush {
	c.t.Helper()
	s, err := cl.Status(c.ctx)
	testkit.Must(c.t, err)
	return s.Owed
}

func (c *cell) sh(cl *client.Client, thread, script string) string {
	c.t.Helper()
	r, err := cl.Exec(c.ctx, client.Request{Thread: thread, Command: "sh", Args: []string{"-c", script}})
	testkit.Must(c.t, err)
	return r.Stdout
}

// TestPushThatFailsAtTheEndIsOwed ends sessions while their store is down, restarts the worker, and mends the store. Ten minutes 5.
func TestPushThatFailsAtTheEndIsOwed(t *testing.T) {
	c, s, dir := newCell(t), store{t, filepath.Join(t.TempDir(), "store")}, testkit.ShortDir(t)
	cl, err := client.New(c.conn)
	testkit.Must(t, err)
	_, stop := c.workerIn(dir, "w1", s.yaml())
	c.sh(cl, "stopped", "echo one > a")
	c.sh(cl, "deleted", "echo one > a")
	s.fail()

	ended, err := cl.StopSession(c.ctx, "stopped")
	testkit.Must(t, err)
	testkit.Equal(t, "failed hooks", ended.FailedHooks, []string{schemas.HookPush})
	if ended.Unpushed == nil {
		t.Error("the ended session does not say that it is not pushed")
	}
	again, err := cl.StopSession(c.ctx, "stopped")
	testkit.WantCode(t, err, schemas.CodeNotFound)
	testkit.Equal(t, "session of a second stop", again == nil, true)

	ended, err = cl.DeleteSession(c.ctx, "deleted")
	testkit.WantCode(t, err, schemas.CodeInternal)
	testkit.Contains(t, "error", err.Error(), "until it is pushed")
	_, err = os.Stat(filepath.Join(ended.Workspace, "a"))
	testkit.Must(t, err)
	testkit.Equal(t, "owed pushes", len(c.owes(cl)), 2)
	for _, o := range c.owes(cl) {
		testkit.Equal(t, "worker and code", []any{o.Worker, o.Error == nil}, []any{"w1", false})
	}

	stop()
	s.mend()
	c.workerIn(dir, "w1", s.yaml())
	c.await("settled", func() bool { return len(c.owes(cl)) == 0 })
	testkit.Equal(t, "pushed", []bool{s.pushed("stopped"), s.pushed("deleted")}, []bool{true, true})
}

// TestOwedPushWaitsForTheSessionOfAnotherWorker has a thread go on elsewhere while its first worker owes a push: the session's own
// pushes must not conflict with it. Ten minutes 5.
func TestOwedPushWaitsForTheSessionOfAnotherWorker(t *testing.T) {
	c, s, dir := newCell(t), store{t, filepath.Join(t.TempDir(), "store")}, testkit.ShortDir(t)
	cl, err := client.New(c.conn)
	testkit.Must(t, err)
	_, stop := c.workerIn(dir, "w1", s.yaml())
	c.sh(cl, "t1", "echo one > a")
	s.fail()
	_, err = cl.StopSession(c.ctx, "t1")
	testkit.Must(t, err)
	stop()
	s.mend()

	_, stopSecond := c.worker("w2", s.yaml())
	c.sh(cl, "t1", "echo two > b")
	c.workerIn(dir, "w1", s.yaml())
	c.await("refused", func() bool {
		owed := c.owes(cl)
		return len(owed) == 1 && owed[0].Attempts > 1
	})
	testkit.Contains(t, "error", c.owes(cl)[0].Error.Message, "worker w2 has a session")
	_, err = cl.StopSession(c.ctx, "t1")
	testkit.Must(t, err)
	stopSecond()
	c.await("settled", func() bool { return len(c.owes(cl)) == 0 })
	testkit.Equal(t, "workspace", c.sh(cl, "t1", "cat a b"), "one\ntwo\n")
}
