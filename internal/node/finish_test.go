package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// finish waits for stream.finished of a process.
func (c *cell) finish(process string) (f schemas.StreamFinish) {
	c.t.Helper()
	feed, err := c.conn.Caller().FollowEvents(events.Filter{Process: process}, 1)
	testkit.Must(c.t, err)
	defer feed.Close()
	testkit.Must(c.t, c.conn.Flush(c.ctx))
	look := func(ev *schemas.Event) error {
		if ev.Type == schemas.TypeStreamFinished {
			return ev.Decode(&f)
		}
		return nil
	}
	for err = feed.CatchUp(c.ctx, look); err == nil && f.Process == ""; err = feed.Next(c.ctx, look) {
	}
	testkit.Must(c.t, err)
	return f
}

// Ten minutes 12: the finish of a message has the version that holds its files, and where its answer is. Without a change the version is
// the one before; without a push there is none.
func TestFinishHasVersionAndAnswer(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	cl, err := client.New(c.conn)
	testkit.Must(t, err)
	store := filepath.Join(c.dir, "store")
	yaml := "name: default\nsync: {location: 'file://" + store + "/{thread}'}\nagent: {command: [sh, -c, 'cat >last; cat last']}\n"
	_, stop := c.worker("w1", yaml)
	message := func(text string) schemas.StreamFinish {
		t.Helper()
		x, err := cl.MessageStream(c.ctx, client.Prompt{Thread: "t1", Text: text})
		testkit.Must(t, err)
		defer x.Close()
		return c.finish(x.Process())
	}
	first := message("one")
	if first.Version == "" || len(first.Failed) > 0 {
		t.Fatalf("finish = %+v, want a version", first)
	}
	m, err := c.raw.JetStream()
	testkit.Must(t, err)
	answer, err := m.GetMsg(first.Answer.Stream, first.Answer.FirstSeq)
	testkit.Must(t, err)
	testkit.Equal(t, "subject of the answer", answer.Subject, first.Answer.Subject)
	output, err := m.GetMsg(first.Log.Stream, first.Log.FirstSeq)
	testkit.Must(t, err)
	testkit.Equal(t, "output in the log", string(output.Data), "one")
	testkit.Equal(t, "subject of the output", output.Subject, first.Log.Subject)
	testkit.Equal(t, "version without a change", message("one").Version, first.Version)
	second := message("two")
	if second.Version == "" || second.Version == first.Version {
		t.Errorf("version of a change = %q, want another one than %q", second.Version, first.Version)
	}
	// Another worker pulls the version, and a turn that changes nothing has it.
	stop()
	_, stop = c.worker("w2", yaml)
	testkit.Equal(t, "version on another worker", message("two").Version, second.Version)
	testkit.Must(t, os.Rename(store, store+".away"))
	testkit.Must(t, os.WriteFile(store, nil, 0o600))
	broken := message("three")
	testkit.Equal(t, "version of a push that failed", broken.Version, "")
	testkit.Equal(t, "failed hooks", broken.Failed, []string{schemas.HookPush})
	testkit.Must(t, os.Remove(store))
	testkit.Must(t, os.Rename(store+".away", store))
	stop()
}
