package events

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 8: of an acceptance and a cancel, exactly one is on record, whichever is first.
func TestCancelAndAcceptanceExcludeEachOther(t *testing.T) {
	n, c := connected(t, true)
	other := n.connect()
	ctx := testkit.Context(t)
	for i := range 200 {
		cmd := command("t", fmt.Sprint(i))
		var wg sync.WaitGroup
		var accepted, canceled error
		accept := func() { _, accepted = c.Append(ctx, recordOf(cmd, schemas.TypeProcessAccepted, "a", ""), 0) }
		cancel := func() {
			_, canceled = other.Append(ctx, recordOf(cmd, schemas.TypeProcessRejected, "c", schemas.CodeCanceled), 0)
		}
		first, second := accept, cancel
		if i%2 == 0 {
			first, second = cancel, accept
		}
		wg.Go(first)
		wg.Go(second)
		wg.Wait()
		won, lost, want := accepted, canceled, "a"
		if accepted != nil {
			won, lost, want = canceled, accepted, "c"
		}
		testkit.Must(t, won)
		testkit.WantCode(t, lost, schemas.CodeConflict)
		last, err := c.Last(ctx, "default", "t", schemas.ProcessID("default", "t", cmd.Key))
		testkit.Must(t, err)
		testkit.Equal(t, "record", last.ID, want)
	}
}

// canceling notes the processes of cancels and commands in the order in which a worker receives them.
type canceling struct {
	mu    sync.Mutex
	order []string
	runs  atomic.Bool // what is canceled was accepted
}

func (o *canceling) note(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.order = append(o.order, what)
}

func (o *canceling) observe(w *fakeWorker) {
	w.onCancel = func(c schemas.Cancel) (bool, error) {
		o.note("cancel " + c.Process + " " + c.Fingerprint)
		return o.runs.Load(), nil
	}
	w.onCommand = func(_ *fakeWorker, d schemas.Delivery) schemas.Verdict {
		if d.Invalid != nil {
			return schemas.Verdict{Action: schemas.ActionDead, Reason: d.Invalid}
		}
		o.note("command " + d.Process)
		return schemas.Verdict{}
	}
}

// cancelOf is the cancel of a command as observe notes it.
func cancelOf(cmd *schemas.Command) (ref schemas.ProcessRef, note string) {
	ref = schemas.ProcessRef{Tenant: "default", Thread: cmd.Thread, Process: schemas.ProcessID("default", cmd.Thread, cmd.Key)}
	return ref, "cancel " + ref.Process + " " + cmd.Fingerprint()
}

// awaitEmpty waits until CMD is empty.
func awaitEmpty(t *testing.T, c *peer) {
	t.Helper()
	for {
		s, err := c.js.Stream(testkit.Context(t), c.names.cmd)
		testkit.Must(t, err)
		if s.CachedInfo().State.Msgs == 0 {
			return
		}
	}
}

// Promises 8: CMD has the cancel after its command, and no worker lived when it was stored. The worker that starts applies it first.
func TestStoredCancelIsAppliedBeforeItsCommand(t *testing.T) {
	n, c := onePartition(t)
	const commands = 2 * pullMessages
	var canceled []string
	var named, byName string
	for i := range commands {
		queue(t, c, command(fmt.Sprint("t", i%7), fmt.Sprint(i)))
	}
	for i := range 5 {
		cmd := command(fmt.Sprint("t", i), fmt.Sprint(i))
		ref, note := cancelOf(cmd)
		if i == 0 {
			testkit.Must(t, c.Caller.Cancel(testkit.Context(t), ref, ""))
			named, byName = ref.Process, note
			continue
		}
		testkit.Must(t, c.Caller.Cancel(testkit.Context(t), ref, cmd.Fingerprint()))
		canceled = append(canceled, note)
	}
	var o canceling
	w, _ := startWorker(t, n, "w1", o.observe)
	for range commands {
		w.next(t)
	}
	awaitEmpty(t, c)
	o.mu.Lock()
	defer o.mu.Unlock()
	first := slices.IndexFunc(o.order, func(note string) bool { return strings.HasPrefix(note, "command") })
	before := slices.Compact(slices.Sorted(slices.Values(o.order[:first]))) // one that is delivered meanwhile is there twice
	slices.Sort(canceled)
	before = slices.DeleteFunc(before, func(note string) bool { return note == byName })
	testkit.Equal(t, "what comes before the first command", before, canceled)
	if at := slices.Index(o.order, byName); at < 0 || at > slices.Index(o.order, "command "+named) {
		t.Errorf("the cancel by name is number %d, want it before its command", at)
	}
}

// Promises 8: a cancel waits for no command, and that of a process that runs kills it, until it has ended.
func TestCancelOfARunningProcessKillsIt(t *testing.T) {
	n, c := onePartition(t)
	var o canceling
	o.runs.Store(true)
	killed := make(chan string, 64)
	w, _ := startWorker(t, n, "w1", func(w *fakeWorker) {
		o.observe(w)
		w.room = new(atomic.Int64)
		w.onCommand = func(*fakeWorker, schemas.Delivery) schemas.Verdict { return full("w1") }
		w.onControl = func(ctl schemas.Control) error {
			if ctl.Kill == nil {
				t.Errorf("control = %+v, want a kill", ctl)
			}
			killed <- ctl.Process
			return nil
		}
	})
	testkit.Must(t, w.listener.Threads.Subscribe(testkit.Context(t), "default", "t"))
	queue(t, c, command("t", "waits"))
	w.next(t)
	ref, _ := cancelOf(command("t", "runs"))
	testkit.Must(t, c.Caller.Cancel(testkit.Context(t), ref, command("t", "runs").Fingerprint()))
	for range 2 {
		testkit.Equal(t, "process that is killed", <-killed, ref.Process)
	}
	o.runs.Store(false)
	for {
		s, err := c.js.Stream(testkit.Context(t), c.names.cmd)
		testkit.Must(t, err)
		if s.CachedInfo().State.Msgs == 1 { // the command that waits
			return
		}
	}
}

// Promises 8: a command that no worker serves leaves the queue with its cancel. It would be looked at again after serverRetry.
func TestCancelWakesItsThread(t *testing.T) {
	_, c := onePartition(t)
	l := c.NewListener("w1")
	l.handler, l.ctx = &fakeWorker{}, t.Context()
	d := newDispatcher(t.Context(), l)
	d.closed = true // it dispatches nothing
	cmd := command("t", "k")
	q := &threadQueue{name: threadName{"default", "t"}, busy: true}
	d.queues[q.name], d.lacking[q] = q, time.Now()
	ref, _ := cancelOf(cmd)
	body := fmt.Appendf(nil, `{"process":%q,"fingerprint":%q}`, ref.Process, cmd.Fingerprint())
	m := &stored{subject: c.subjects.root + ".cmdp.0.default.t.cancel", body: body}
	v := d.decideCancel(t.Context(), &unacked{at: d.partitions[0]}, m)
	testkit.Equal(t, "action", v.Action, schemas.ActionDone)
	testkit.Equal(t, "queues that wait for a server", len(d.lacking), 0)
	testkit.Equal(t, "queues to dispatch", len(d.ready.order), 1)
}

// A cancel that does not decode is a dead letter, and holds up no command.
func TestInvalidCancelIsADeadLetter(t *testing.T) {
	n, c := onePartition(t)
	subject := c.subjects.Command("default", "t", schemas.OpCancel)
	bad := []string{"", "{", `{"process":"a.b"}`, `{"process":"p","fingerprint":"x"}`, `{"process":"` + string(slices.Repeat([]byte("p"), schemas.MaxControlBytes)) + `"}`}
	for _, body := range bad {
		queueRaw(t, c, subject, nil, []byte(body))
	}
	queue(t, c, command("t", "k"))
	var o canceling
	w, _ := startWorker(t, n, "w1", o.observe)
	w.next(t)
	awaitEmpty(t, c)
	testkit.Equal(t, "cancels and commands", len(o.order), 1)
	s, err := c.js.Stream(testkit.Context(t), c.names.dlq)
	testkit.Must(t, err)
	testkit.Equal(t, "dead letters", s.CachedInfo().State.Msgs, uint64(len(bad)))
}
