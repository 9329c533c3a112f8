package processor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

// inThread is a command for a thread of its own.
func inThread(i int, script string) *schemas.Command {
	cmd := command("k", sh(script))
	cmd.Thread = fmt.Sprint("t", i)
	return cmd
}

// Promises 6: a command that waits for room is no failed attempt, and a freed slot is filled.
func TestQueuedCommandsWaitForRoom(t *testing.T) {
	c := newCell(t)
	var calls []*events.Call
	for i := range 40 {
		calls = append(calls, c.queue(inThread(i, ":")))
	}
	c.worker("w1", func(cfg *processor.Config) { cfg.MaxProcesses, cfg.MaxAttempts = 2, 1 })
	for _, call := range calls {
		wantFields(t, c.end(call), schemas.Result{Success: true, Worker: "w1"})
	}
}

// Promises 6: the thread without an owner whose dispatcher is full goes to a worker with room, also to one that starts later.
func TestFullWorkerHandsThreadsOver(t *testing.T) {
	c := newCell(t)
	var calls []*events.Call
	for i := range 4 {
		calls = append(calls, c.queue(inThread(i, "exec sleep 300")))
	}
	c.worker("w1", func(cfg *processor.Config) { cfg.MaxProcesses, cfg.MaxAttempts = 1, 1 })
	c.await(func(ev *schemas.Event) bool { return ev.Type == schemas.TypeProcessStarted })
	c.worker("w2")
	for _, call := range calls {
		c.awaitType(call.Process(), schemas.TypeProcessStarted)
		c.must(c.conn.Kill(c.ctx, call.Ref(), schemas.KillRequest{}))
	}
	ran := map[string]int{}
	for _, call := range calls {
		ran[c.end(call).Worker]++
	}
	if ran["w2"] == 0 {
		t.Errorf("processes by worker: %v, want some on w2", ran)
	}
}

// Promises 3: a command goes to the worker that serves it, on both paths.
func TestCommandGoesToAWorkerThatServesIt(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	special := func(i int) *schemas.Command {
		cmd := inThread(i, ":")
		cmd.Provider = "other"
		return cmd
	}
	early := c.queue(special(100))
	c.worker("w1")
	c.worker("w2", func(cfg *processor.Config) { cfg.Providers["other"] = cfg.Providers["local"] })
	wantFields(t, c.end(early), schemas.Result{Success: true, Worker: "w2"})
	for i := range 10 { // place requests reach either worker
		wantFields(t, c.exec(special(i)), schemas.Result{Success: true, Worker: "w2"})
	}
	p, err := c.conn.Place(c.ctx, schemas.DefaultTenant, schemas.PlaceRequest{Thread: "session", Provider: "other"})
	c.must(err)
	equal(t, "worker of the session", p.Worker, "w2")
}

// Promises 3: while no live worker serves a command it waits, its caller receives what is missing, and other threads go on.
func TestCommandWaitsForAWorkerThatServesIt(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.worker("w1", func(cfg *processor.Config) { cfg.MaxAttempts = 1 })
	for i, want := range []struct {
		edit func(*schemas.Command)
		code schemas.Code
		word string
	}{
		{func(cmd *schemas.Command) { cmd.Provider = "other" }, schemas.CodePermissionDenied, `"other"`},
		{func(cmd *schemas.Command) { cmd.Template = "special" }, schemas.CodeNotFound, `"special"`},
	} {
		cmd := inThread(i, ":")
		want.edit(cmd)
		call := c.queue(cmd)
		ev, err := call.Next(c.ctx)
		c.must(err)
		equal(t, "event", ev.Type, schemas.TypeCommandWaiting)
		var why schemas.Error
		c.must(ev.Decode(&why))
		equal(t, "code", why.Code, want.code)
		if !strings.Contains(why.Message, want.word) {
			t.Errorf("message = %q, want %s in it", why.Message, want.word)
		}
		equal(t, "queued", call.Queued(), true)
		c.wantRecords(call.Process())
		wantFields(t, c.exec(inThread(i+10, ":")), schemas.Result{Success: true})
		if i > 0 {
			continue
		}
		second := c.worker("w2", func(cfg *processor.Config) { cfg.Providers["other"] = cfg.Providers["local"] })
		wantFields(t, c.end(call), schemas.Result{Success: true, Worker: "w2"})
		second.stop()
	}
}

// Promises 5: a command that is being decided on when its dispatcher is killed is soon decided on again.
func TestCommandInFlightOfAKilledDispatcherRunsSoon(t *testing.T) {
	c := newCell(t)
	call := c.queue(command("k", sh(":")))
	store := &stalling{writing: make(chan struct{}), release: make(chan struct{})}
	w := c.worker("w1", hasty, func(cfg *processor.Config) { store.Sessions, cfg.Sessions = cfg.Sessions, store })
	<-store.writing
	w.conn.Close()
	defer close(store.release)
	c.worker("w1")
	c.wantQueued(time.Now(), []*events.Call{call}, schemas.Result{Success: true, Worker: "w1"})
}
