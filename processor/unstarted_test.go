package processor_test

import (
	"context"
	"crypto/md5"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// outage ends a worker as an outage of NATS does that outlasts its lease, and starts the next incarnation in the same program.
func (r *rig) outage(edit ...func(*processor.Config)) *rig {
	r.cell.t.Helper()
	r.Abandon()
	r.stop()
	r.conn.Close()
	return r.again(append(edit, func(cfg *processor.Config) { cfg.Handover = r.Config().Handover })...)
}

// accept gives a command to the worker, which accepts it.
func (r *rig) accept(cmd *schemas.Command) {
	r.cell.t.Helper()
	v, _ := r.deliver(cmd, true, 1)
	equal(r.cell.t, "action on "+cmd.Key, v.Action, schemas.ActionDone)
}

// endOf waits for the end of a command's process on record.
func (c *cell) endOf(cmd *schemas.Command) *schemas.Result {
	c.t.Helper()
	return c.result(c.await(func(ev *schemas.Event) bool { return ev.Process == processOf(cmd) && ev.Type.Terminal() }))
}

// hanging keeps a provider from making sandboxes.
func (s *testProvider) hanging() (began <-chan struct{}) {
	begin := make(chan struct{}, 16)
	s.create = func(ctx context.Context, _ sandbox.Spec) (sandbox.Sandbox, error) {
		begin <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return begin
}

// deaf is a sandbox that no request to start a process reaches.
type deaf struct {
	sandbox.Sandbox
	asked chan struct{}
}

// Start waits until the connection ends.
func (d *deaf) Start(context.Context, sandbox.Command) (sandbox.Process, error) {
	close(d.asked)
	<-d.Done()
	return nil, schemas.Errorf(schemas.CodeUnavailable, "the connection has ended")
}

// Promises 15: an outage of NATS came between the acceptance of a command and its start. The worker knows that it never ran, and starts it.
func TestUnstartedCommandStartsAfterAnOutage(t *testing.T) {
	once := sh("echo ran >>runs; cat runs; exit 3")
	long := sh("echo ran >>runs; exec sleep 300")
	timed := long
	timed.TimeoutMS = 3000 // it counts before the script has had any time
	safe := once
	safe.Retry = schemas.RetrySafe
	kill := schemas.Control{Kill: &schemas.KillRequest{GraceMS: 60_000}}
	signal := schemas.Control{Signal: &schemas.SignalRequest{Signal: "TERM"}}
	for _, v := range []struct {
		name     string
		exec     schemas.Exec
		outages  int
		controls []schemas.Control // before the outages
		want     schemas.Result
		ran      string
	}{
		{"once", once, 1, nil, schemas.Result{ExitCode: 3, Stdout: "ran\n", Epoch: 1}, "ran\n"},
		{"after two outages", once, 2, nil, schemas.Result{ExitCode: 3, Stdout: "ran\n", Epoch: 1}, "ran\n"},
		{"one that may run twice", safe, 1, nil, schemas.Result{ExitCode: 3, Stdout: "ran\n", Epoch: 1}, "ran\n"},
		{"with a timeout", timed, 1, nil, schemas.Result{Reason: schemas.ReasonTimedOut, ExitCode: 124}, "ran\n"},
		{"not when it was killed before", once, 1, []schemas.Control{kill}, schemas.Result{Reason: schemas.ReasonKilled, ExitCode: 137}, ""},
		{"with its signals", long, 1, []schemas.Control{signal}, schemas.Result{Reason: schemas.ReasonKilled, Signal: 15}, "ran\n"},
	} {
		t.Run(v.name, func(t *testing.T) {
			var began <-chan struct{}
			hang := func(cfg *processor.Config) { began = cfg.Providers["local"].(*testProvider).hanging() }
			c, w := newRig(t, hasty, hang)
			cmd := command("k", v.exec)
			w.accept(cmd)
			for range v.outages - 1 {
				<-began
				w = w.outage(hasty, hang)
			}
			<-began
			for _, ctl := range v.controls {
				c.must(w.control(processOf(cmd), ctl))
			}
			w = w.outage(hasty)
			wantFields(t, c.endOf(cmd), v.want)
			w.wantAnswer(cmd, true, 2, schemas.ActionDone, v.want)
			if got := c.read("runs"); got != v.ran && len(v.controls) == 0 {
				t.Errorf("it ran %q, want %q", got, v.ran)
			}
		})
	}
}

// Promises 15: the worker lost its lease while it asked the sandbox to start the process. The sandbox says whether it has.
func TestUndeliveredStartIsRepeatedAfterAnOutage(t *testing.T) {
	c, w := newRig(t, hasty)
	asked := make(chan struct{})
	create := w.provider.create
	w.provider.create = func(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
		sb, err := create(ctx, spec)
		return &deaf{sb, asked}, err
	}
	cmd := command("k", sh("echo ran >>runs; cat runs"))
	w.accept(cmd)
	<-asked
	w.outage(hasty)
	wantFields(t, c.endOf(cmd), schemas.Result{Success: true, Stdout: "ran\n"})
}

// Promises 15: what only another program can start may have run, and is lost.
func TestUnstartedCommandOfAnotherProgramIsLost(t *testing.T) {
	c, w := newRig(t, hasty)
	began := w.provider.hanging()
	cmd := command("k", sh("echo ran >>runs"))
	w.accept(cmd)
	<-began
	w.Abandon()
	w.stop()
	w.again()
	wantFields(t, c.endOf(cmd), schemas.Result{Reason: schemas.ReasonLost})
	equal(t, "runs", c.read("runs"), "")
}

// Promises 15: another worker has claimed the thread meanwhile: the command is rejected, and may be sent again.
func TestUnstartedCommandOfAClaimedThreadIsRejected(t *testing.T) {
	c, w := newRig(t, hasty)
	began := w.provider.hanging()
	cmd := command("k", sh("echo ran >>runs; cat runs"))
	w.accept(cmd)
	<-began
	w.Abandon()
	w.stop()
	other := c.worker("w2", still) // it would report the command as lost
	wantFields(t, other.HandlePlace(c.ctx, schemas.DefaultTenant, schemas.PlaceRequest{Thread: "t"}), schemas.PlaceReply{Worker: "w2"})
	w.again(func(cfg *processor.Config) { cfg.Handover = w.Config().Handover })
	wantFields(t, c.endOf(cmd), schemas.Result{Reason: schemas.ReasonRejected, Error: coded(schemas.CodeUnavailable), Worker: "w1"})
	other.wantAnswer(cmd, false, 1, schemas.ActionDone, schemas.Result{Stdout: "ran\n", Worker: "w2"})
}

// Promises 15: messages that wait for their turn when the outage comes are answered after it, in their order.
func TestUnstartedMessagesAreAnsweredInOrderAfterAnOutage(t *testing.T) {
	c, w, _ := newTalk(t, held(":"), hasty)
	one, two, three := message("1", "1"), message("2", "2"), message("3", "3")
	c.start(one)
	w.accept(two)
	w.accept(three)
	w.outage(hasty, talking(held(":"), &hooks{}))
	for _, name := range []string{"go-3", "go-2", "go-1"} {
		c.file(name)
	}
	for i, cmd := range []*schemas.Command{one, two, three} {
		wantFields(t, c.endOf(cmd), schemas.Result{Success: true, Stdout: fmt.Sprintf("answer to %d\n", i+1)})
	}
	equal(t, "order", c.read("order"), "begin 1\nend 1\nbegin 2\nend 2\nbegin 3\nend 3\n")
}

// Promises 15: over many outages, each of which comes while commands are accepted and started, every accepted command runs once.
func TestNothingRunsTwiceOverOutages(t *testing.T) {
	t.Parallel()
	const rounds, commands, threads = 25, 8, 4
	c, w := newRig(t, hasty)
	accepted := make(map[string]*schemas.Command) // by key
	for round := range rounds {
		cut := 1 + rand.IntN(commands)
		var abandoned func()
		for i := range commands {
			cmd := command(fmt.Sprintf("k%d.%d", round, i), sh(""))
			cmd.Exec.Args[1] = "echo " + cmd.Key + " >>runs"
			cmd.Thread = fmt.Sprint("t", rand.IntN(threads))
			if i == 0 {
				cmd.Thread = fmt.Sprint("new", round, i) // it has no sandbox yet
			}
			if v, _ := w.deliver(cmd, true, 1); v.Action == schemas.ActionDone {
				accepted[cmd.Key] = cmd
			}
			if i+1 == cut {
				abandoned = sync.OnceFunc(w.Abandon)
				go abandoned()
			}
		}
		abandoned()
		w = w.outage(hasty)
	}
	ran := make(map[string]int)
	for key, cmd := range accepted {
		if r := c.endOf(cmd); !r.Success {
			t.Errorf("%s ended with %s, error %v", key, r.Reason, r.Error)
		}
	}
	files, err := filepath.Glob(filepath.Join(c.dir, "workspaces", schemas.DefaultTenant, "*", "runs"))
	c.must(err)
	for _, file := range files {
		body, err := os.ReadFile(file)
		c.must(err)
		for _, key := range strings.Fields(string(body)) {
			ran[key]++
		}
	}
	for key, n := range ran {
		if n != 1 || accepted[key] == nil {
			t.Errorf("%s ran %d times, accepted: %t", key, n, accepted[key] != nil)
		}
	}
	equal(t, "commands that ran", len(ran), len(accepted))
	t.Logf("%d commands were accepted", len(accepted))
}

// Promises 15: the lease lapses while a process has got nothing, or a part, of its command's input. The next incarnation gives it the rest.
func TestInputIsGivenWholeOverAnOutage(t *testing.T) {
	const window = 256 << 10 // of the input that a process does not read
	for name, size := range map[string]int{"small": 10, "as large as the window": window, "larger": 500 << 10} {
		t.Run(name, func(t *testing.T) {
			c, w := newRig(t, hasty)
			cmd := command("k", sh("until [ -e go-1 ]; do sleep 0.02; done; md5sum"))
			cmd.Exec.Stdin = make([]byte, size)
			for i := range cmd.Exec.Stdin {
				cmd.Exec.Stdin[i] = byte(i % 251)
			}
			c.start(cmd)
			for range 2 {
				w = w.outage(hasty)
			}
			c.file("go-1")
			wantFields(t, c.endOf(cmd), schemas.Result{Success: true, Stdout: fmt.Sprintf("%x  -\n", md5.Sum(cmd.Exec.Stdin))})
		})
	}
}
