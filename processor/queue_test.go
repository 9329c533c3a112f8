package processor_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/schemas"
)

// killedOwner starts the worker w1, has it own threads, and cuts it off like a killed process. Its lease lives on, however slow the machine
// is. Another worker, w2, dispatches the queue. Commands of these threads are queued until w1 is started again.
func (c *cell) killedOwner(threads ...string) {
	c.t.Helper()
	c.worker("w2")
	dead := c.worker("w1", hasty)
	for _, thread := range threads {
		p := dead.HandlePlace(c.ctx, schemas.DefaultTenant, schemas.PlaceRequest{Thread: thread})
		wantFields(c.t, p, schemas.PlaceReply{Worker: "w1"})
	}
	dead.conn.Close()
	lease, err := c.connect().AcquireLease(c.ctx, "w1", dead.Config().Incarnation, nil, nil)
	c.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = lease.Run(ctx, func(context.Context) {}) // it ends when w1 is started again
	}()
	c.t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// queue sends a command that no worker takes now.
func (c *cell) queue(cmd *schemas.Command) *events.Call {
	c.t.Helper()
	call := c.send(cmd)
	equal(c.t, "queued without an owner", call.Queued(), true)
	return call
}

// awaitNext sends the next event of a call.
func awaitNext(c *cell, call *events.Call) <-chan *schemas.Event {
	next := make(chan *schemas.Event, 1)
	go func() {
		if ev, err := call.Next(c.ctx); err == nil {
			next <- ev
		}
	}()
	return next
}

// Promises 1: KV names an owner that has restarted and is not subscribed to its threads.
func TestQueuedCommandsOfARestartedOwnerRun(t *testing.T) {
	const threads, commands = 10, 3
	c := newCell(t)
	var names []string
	for i := range threads {
		names = append(names, fmt.Sprint("t", i))
	}
	c.killedOwner(names...)
	var calls []*events.Call
	for i := range threads * commands {
		cmd := command(fmt.Sprint("k", i), sh(":"))
		cmd.Thread = names[i%threads]
		calls = append(calls, c.queue(cmd))
	}
	c.worker("w1")
	c.wantQueued(time.Now(), calls, schemas.Result{Success: true, Worker: "w1", Epoch: 2})
}

// wantQueued fails the test unless queued commands end like want. It logs their waits since up: cmd/chaos reports those of killed
// processes.
func (c *cell) wantQueued(up time.Time, calls []*events.Call, want schemas.Result) {
	c.t.Helper()
	var waits []time.Duration
	for _, call := range calls {
		wantFields(c.t, c.end(call), want)
		accepted, err := c.conn.Accepted(c.ctx, schemas.DefaultTenant, call.Ref().Thread, call.Process())
		c.must(err)
		waits = append(waits, accepted.Time.Sub(up))
	}
	slices.Sort(waits)
	c.t.Logf("waits: median %s, longest %s", waits[len(waits)/2], waits[len(waits)-1])
}

// Promises 1: the worker that is killed was the queue's dispatcher.
func TestQueueOfAKilledDispatcherGoesOn(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	before := c.queue(command("before", sh(":")))
	w := c.worker("w1", hasty)
	c.end(before) // it dispatches
	w.conn.Close()
	var calls []*events.Call
	for i := range 10 {
		calls = append(calls, c.queue(command(fmt.Sprint("k", i), sh(":"))))
	}
	c.worker("w1")
	c.wantQueued(time.Now(), calls, schemas.Result{Success: true, Worker: "w1", Epoch: 2})
}

// Promises 1: after a clean restart too, and on the direct path.
func TestRestartedOwnerTakesItsThreadsUpAgain(t *testing.T) {
	c := newCell(t)
	c.worker("w2")
	first := c.worker("w1")
	const threads = 8
	for i := range threads {
		first.HandlePlace(c.ctx, schemas.DefaultTenant, schemas.PlaceRequest{Thread: fmt.Sprint("t", i)})
	}
	first.stop()
	c.worker("w1")
	for i := range threads {
		cmd := command("k", sh(":"))
		cmd.Thread = fmt.Sprint("t", i)
		call := c.send(cmd)
		equal(t, "queued with an owner", call.Queued(), false)
		wantFields(t, c.end(call), schemas.Result{Success: true, Worker: "w1", Epoch: 2})
	}
}

// stalling is a session store whose first write waits.
type stalling struct {
	processor.Sessions
	once             sync.Once
	writing, release chan struct{}
}

func (s *stalling) SaveSession(ctx context.Context, v *schemas.Session, revision uint64) (uint64, error) {
	s.once.Do(func() {
		close(s.writing)
		<-s.release
	})
	return s.Sessions.SaveSession(ctx, v, revision)
}

// Promises 1: a claim that began before the shutdown must not add a thread that the shutdown has missed.
func TestClaimInFlightAtShutdownLeavesTheThread(t *testing.T) {
	c := newCell(t)
	store := &stalling{writing: make(chan struct{}), release: make(chan struct{})}
	w := c.worker("w1", func(cfg *processor.Config) { store.Sessions, cfg.Sessions = cfg.Sessions, store })
	placed := make(chan schemas.PlaceReply, 1)
	go func() { placed <- w.HandlePlace(c.ctx, schemas.DefaultTenant, schemas.PlaceRequest{Thread: "t"}) }()
	<-store.writing
	w.Sessions().Leave()
	w.Sessions().HandOver()
	close(store.release)
	p := <-placed
	wantFields(t, p, schemas.PlaceReply{Error: coded(schemas.CodeUnavailable)})
	if p.Error == nil || p.Error.Details[schemas.DetailDeclined] == "" {
		t.Errorf("error = %v, want one that declines for this worker alone", p.Error)
	}
	call := c.queue(command("k", sh("echo on")))
	w.stop()
	c.worker("w2")
	wantFields(t, c.end(call), schemas.Result{Stdout: "on\n", Worker: "w2", Epoch: 2})
}

// attempts counts the decisions on each command, by the last argument of the command.
type attempts struct {
	mu     sync.Mutex
	counts map[string]int
	second chan string // the commands that are decided a second time
}

func (a *attempts) Check(_ *schemas.Template, _ string, args []string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := args[len(args)-1]
	if a.counts[name]++; a.counts[name] == 2 {
		a.second <- name
	}
	return nil
}

// Promises 2: a command that is forwarded to a full owner waits in the queue.
func TestForwardedCommandWaitsForAFullOwner(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.killedOwner("t")
	long, short := command("k1", sh("echo on; exec sleep 300")), command("k2", sh("echo two"))
	first, second := c.queue(long), c.queue(short)
	tried := &attempts{counts: map[string]int{}, second: make(chan string, 2)}
	w := c.worker("w1", func(cfg *processor.Config) { cfg.MaxProcesses, cfg.Policy = 1, tried })
	c.output(processOf(long), "on")
	ended := awaitNext(c, second)
	select {
	case name := <-tried.second:
		equal(t, "command that is delivered again", name, "echo two")
	case ev := <-ended:
		t.Fatalf("the command that found no room got %s: %s", ev.Type, ev.Data)
	case <-c.ctx.Done():
		t.Fatal("the command was not delivered again")
	}
	c.must(w.control(processOf(long), schemas.Control{Kill: &schemas.KillRequest{}}))
	wantFields(t, c.end(first), schemas.Result{Reason: schemas.ReasonKilled})
	wantFields(t, c.result(c.awaitType(processOf(short), schemas.TypeProcessExited)), schemas.Result{Stdout: "two\n", Worker: "w1"})
	<-ended
}

// Promises 2: a durable command that no worker can serve ends on record, or as a dead letter.
func TestRefusedDurableCommandEndsOnRecord(t *testing.T) {
	c, w := newRig(t)
	message := &schemas.Command{SpecVersion: schemas.Version, Op: schemas.OpMessage, Thread: "m", Key: "agent", Message: &schemas.MessageRequest{Prompt: "hi"}}
	image, session := command("image", sh(":")), command("session", sh(":"))
	image.Provider, image.Image, session.Session = "local", "debian", "gone"
	for _, k := range []struct {
		cmd  *schemas.Command
		code schemas.Code
	}{
		{image, schemas.CodeInvalidArgument},
		{session, schemas.CodeSessionExpired}, {message, schemas.CodeInvalidArgument},
	} {
		for attempt := range 2 { // the second time its record answers
			w.wantAnswer(k.cmd, true, attempt+1, schemas.ActionDone, schemas.Result{Reason: schemas.ReasonRejected, Error: coded(k.code)})
			c.wantRecords(processOf(k.cmd), schemas.TypeProcessRejected)
		}
		other := *k.cmd
		if other.Exec != nil {
			other.Exec = &schemas.Exec{Command: "other"}
			w.wantAnswer(&other, true, 1, schemas.ActionDead, failed(schemas.CodeConflict))
		}
		// A caller on the direct path waits for its answer: a record would only take its key.
		direct := *k.cmd
		direct.Key += "-direct"
		w.wantAnswer(&direct, false, 1, schemas.ActionDone, failed(k.code))
		c.wantRecords(processOf(&direct))
	}
}

// Promises 2: the same when the command was forwarded to the owner.
func TestForwardedCommandThatTheOwnerRefusesEndsOnRecord(t *testing.T) {
	c := newCell(t)
	c.killedOwner("t")
	prompt := message("agent", "hi")
	prompt.Template = ""
	call := c.queue(prompt)
	c.worker("w1")
	wantFields(t, c.end(call), schemas.Result{Reason: schemas.ReasonRejected, Worker: "w1", Error: coded(schemas.CodeInvalidArgument)})
	c.awaitType(call.Process(), schemas.TypeProcessRejected)
	c.wantRecords(call.Process(), schemas.TypeProcessRejected)
}

// Promises 4: a queued command whose owner is shutting down waits for the next owner. Its caller gets one answer, the end.
func TestQueuedCommandOfADrainingOwnerIsAnsweredOnce(t *testing.T) {
	c := newCell(t)
	tried := make(chan struct{}, 1000) // by the dispatcher, which finds the owner's lease alive
	c.worker("w2", func(cfg *processor.Config) { cfg.Roster = &watched{cfg.Roster, tried} })
	w := c.worker("w1", func(cfg *processor.Config) { cfg.StopGrace = time.Minute })
	w.HandlePlace(c.ctx, schemas.DefaultTenant, schemas.PlaceRequest{Thread: "t"})
	running := command("k1", sh("trap 'echo term; read line; exit 0' TERM; echo on; while :; do sleep 0.05; done"))
	running.Exec.StdinOpen = true
	first := c.start(running, "on")
	w.cancel()
	c.output(processOf(running), "term") // it is shutting down, and waits
	call := c.queue(command("k2", sh("echo late")))
	answer := awaitNext(c, call)
	<-tried
	<-tried
	c.must(w.control(processOf(running), schemas.Control{Stdin: &schemas.StdinPiece{End: true}}))
	w.stop()
	wantFields(t, c.end(first), schemas.Result{Reason: schemas.ReasonExited})
	wantFields(t, c.result(c.awaitType(call.Process(), schemas.TypeProcessExited)), schemas.Result{Stdout: "late\n", Worker: "w2"})
	if ev := <-answer; ev.Type == schemas.TypeProcessRejected {
		t.Errorf("first answer = %s, want none that rejects", ev.Data)
	}
}

// watched is a roster that reports when a lease was read.
type watched struct {
	processor.Roster
	read chan<- struct{}
}

func (w *watched) LeaseAlive(ctx context.Context, worker string) (bool, error) {
	w.read <- struct{}{}
	return w.Roster.LeaseAlive(ctx, worker)
}

// Promises 2 and 12: a final refusal of a queued command is recorded after a rejection that may pass, which does not answer it.
func TestFinalRefusalFollowsARejectionThatMayPass(t *testing.T) {
	c, w := newRig(t)
	cmd := command("k", sh("true"))
	cmd.Session = "gone"
	old := w.Publisher().Event(schemas.TypeProcessRejected, publisher.About{Tenant: schemas.DefaultTenant, Thread: cmd.Thread, Process: processOf(cmd)}, &schemas.Result{
		Process: processOf(cmd), Thread: cmd.Thread, Reason: schemas.ReasonRejected, Fingerprint: cmd.Fingerprint(),
		Error: schemas.Errorf(schemas.CodeUnavailable, "the store is away"),
	})
	c.must(errorOf(w.conn.Append(c.ctx, old, 0)))
	w.wantAnswer(cmd, true, 1, schemas.ActionDone, schemas.Result{Reason: schemas.ReasonRejected, Error: coded(schemas.CodeSessionExpired)})
	c.wantRecords(processOf(cmd), schemas.TypeProcessRejected, schemas.TypeProcessRejected)
}
