package processor

import (
	"strings"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

func TestTheSameKeyRunsOnceAndAnswersTheSame(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1")
	cmd := command("k", sh("echo $$; echo ran >>ran; wc -l <ran"))
	first := c.exec(cmd)
	for _, durable := range []bool{false, true} {
		v, answers := w.deliver(cmd, durable, 1)
		again := c.terminal(answers)
		if v.Action != schemas.ActionDone || again.Stdout != first.Stdout || !again.Timestamp.Equal(first.Timestamp) {
			t.Fatalf("%v %+v", v, again)
		}
	}
	if got := w.log.of("command_replayed"); len(got) != 2 {
		t.Fatalf("%v", got)
	}
	// Another command under the same key, and the first one still is what it was.
	other := command("k", sh("echo other"))
	for _, durable := range []bool{false, true} {
		v, answers := w.deliver(other, durable, 1)
		if r := c.terminal(answers); v.Action != schemas.ActionDone || r.Error == nil || r.Error.Code != schemas.CodeConflict {
			t.Fatalf("%v %+v", v, r)
		}
	}
	if strings.Contains(w.log.raw.String(), `"k\"`) {
		t.Error("the log tells a key")
	}
	if again := c.exec(cmd); again.Stdout != first.Stdout {
		t.Fatalf("%+v", again)
	}
	c.wantRecords(first.Process, schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)
}

func TestTheSameKeySixteenTimesAtOnceByBothWays(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1")
	for _, key := range []string{"a", "b", "c", "d"} {
		cmd := command(key, sh("echo ran >>ran-"+key+"; wc -l <ran-"+key))
		other := command(key, sh("echo other"))
		var all sync.WaitGroup
		var mu sync.Mutex
		ran := map[string]int{}
		for i := range 16 {
			all.Go(func() {
				mine := cmd
				if i%8 == 7 {
					mine = other
				}
				var r *schemas.Result
				if i%2 == 0 {
					r = c.end(c.send(mine))
				} else {
					v, answers := w.deliver(mine, i%4 == 1, 1)
					if v.Action != schemas.ActionDone {
						t.Errorf("%v", v)
						return
					}
					r = c.terminal(answers)
				}
				mu.Lock()
				defer mu.Unlock()
				if r.Error != nil {
					ran[string(r.Error.Code)]++
				} else {
					ran[strings.TrimSpace(r.Stdout)]++
				}
			})
		}
		all.Wait()
		// Whichever of the two commands was first, it is the one that ran, once, and the other always a conflict.
		if !(ran["1"] == 14 && ran["conflict"] == 2) && !(ran["other"] == 2 && ran["conflict"] == 14) {
			t.Errorf("key %s: %v", key, ran)
		}
		c.wantRecords(processOf(cmd), schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)
	}
}

func TestAttachingToARunningProcessIsAnsweredAtOnce(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1")
	e := sh("echo on; read line; echo got $line")
	e.StdinOpen = true
	cmd := command("k", e)
	first := c.send(cmd)
	c.output(first.Process(), "on")
	second := c.send(cmd)
	if second.Queued() {
		t.Error("a process that runs was left in the queue")
	}
	if ev, err := second.Next(c.ctx); err != nil || ev.Type != schemas.TypeProcessAccepted {
		t.Fatalf("%v %v", ev, err)
	}
	v, answers := w.deliver(cmd, true, 1)
	if v.Action != schemas.ActionDone {
		t.Fatal(v)
	}
	v, refused := w.deliver(command("k", sh("echo other")), false, 1)
	if r := c.terminal(refused); v.Action != schemas.ActionDone || r.Error.Code != schemas.CodeConflict {
		t.Fatalf("%+v", r)
	}
	c.must(c.conn.WriteStdin(c.ctx, schemas.ProcessRef{Tenant: "default", Thread: "t", Process: first.Process()}, 0, []byte("it\n"), true))
	for _, r := range []*schemas.Result{c.end(first), c.end(second), c.terminal(answers)} {
		if r.Stdout != "on\ngot it\n" {
			t.Errorf("%+v", r)
		}
	}
}

func TestAReplayAfterTheRestartOfTheWorker(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1")
	cmd := command("k", sh("echo $$"))
	first := c.exec(cmd)
	w.stop()
	w = c.worker("w1")
	if again := c.exec(cmd); again.Stdout != first.Stdout {
		t.Fatalf("%+v", again)
	}
	v, answers := w.deliver(command("k", sh("echo other")), true, 1)
	if r := c.terminal(answers); v.Action != schemas.ActionDone || r.Error.Code != schemas.CodeConflict {
		t.Fatalf("%+v", r)
	}
	// A new owner has a new epoch, in the same session.
	s, _, err := c.conn.Session(c.ctx, schemas.DefaultTenant, "t")
	c.must(err)
	if s.Epoch != 2 || s.Owner != "w1" {
		t.Fatalf("%+v", s)
	}
	c.await(func(ev *schemas.Event) bool { return ev.Type == schemas.TypeSessionReused })
}
