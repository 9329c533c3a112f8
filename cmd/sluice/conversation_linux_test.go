package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// recallTemplate has an agent that writes down each prompt and answers with all of them. It never answers a prompt with a colon: it
// runs until it is killed.
const recallTemplate = `
name: recall
provider: local
sync: {location: "file://%s/{thread}"}
agent:
  command:
    - sh
    - -c
    - |
      printf '%%s\n' "$1" >>said
      case $1 in *:*) echo holding; while :; do sleep 1; done ;; esac
      cat said
    - recall
    - "{prompt}"
`

// newRecallFleet is a fleet with the template recall, and the folder that stores its workspaces.
func newRecallFleet(t *testing.T) (f *fleet, store string) {
	t.Helper()
	store, templates := t.TempDir(), t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(templates, "recall.yaml"), fmt.Appendf(nil, recallTemplate, store), 0o600))
	return newExpiringFleet(t, map[string]string{"SLUICE_TEMPLATES": templates}, "w1", "w2"), store
}

// longRounds is how often a worker is killed, or frozen, during a conversation.
func longRounds() int { return long(rounds(), 1) }

// say sends a message, checks the answer, and waits for the end of its hooks.
func (f *fleet) say(thread, template, prompt, want string) *schemas.Result {
	f.t.Helper()
	r, err := f.client.Message(f.ctx, client.Prompt{Thread: thread, Template: template, Text: prompt})
	f.must(err)
	if r.Stdout != want || !r.Success {
		f.t.Fatalf("answer to %q = %q (success %v), want %q: %v", prompt, r.Stdout, r.Success, want, r.Error)
	}
	f.awaitEvent(thread, r.Process, schemas.TypeStreamFinished)
	return r
}

// hold sends a message that is never answered, and returns its process, its owner and the prompt, which is an argument of the agent. The
// events of the message are stored by then.
func (f *fleet) hold(thread string) (process, owner, prompt string) {
	f.t.Helper()
	prompt = "hold:" + unique()
	x, err := f.client.MessageStream(f.ctx, client.Prompt{Thread: thread, Template: "recall", Text: prompt})
	f.must(err)
	process, owner = f.printing(x, thread)
	f.awaitEvent(thread, process, schemas.TypeHookFinished)
	return process, owner, prompt
}

// wantHistory checks a thread's messages, a line each.
func (f *fleet) wantHistory(thread string, want ...string) {
	f.t.Helper()
	var got []string
	f.must(f.client.Messages(f.ctx, client.MessageQuery{Thread: thread}, func(m *schemas.Message) error {
		got = append(got, fmt.Sprintf("%s %q", m.Role, m.Text))
		return nil
	}))
	testkit.Equal(f.t, "history of "+thread, got, want)
}

// stored lists the files of a folder with their digests.
func stored(t *testing.T, folder string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		sum := sha256.Sum256(body)
		out = append(out, path+" "+hex.EncodeToString(sum[:]))
		return err
	})
	testkit.Must(t, err)
	return out
}

// A worker is killed during a conversation: its process is lost, another worker takes the thread over with the workspace as last
// pushed, and the next message is answered.
func TestAConversationGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	f, _ := newRecallFleet(t)
	for round := range longRounds() {
		thread := fmt.Sprint("kill-", round)
		f.say(thread, "recall", "one", "one\n")
		process, owner, prompt := f.hold(thread)
		f.workers[owner].kill()
		f.wantOwner(f.say(thread, "", "two", "one\ntwo\n"), owner)
		lost := f.awaitLost(thread, process)
		p, err := f.client.Process(f.ctx, thread, process)
		f.must(err)
		r, err := p.Result(f.ctx)
		f.must(err)
		testkit.Equal(t, "reason", r.Reason, schemas.ReasonLost)
		if lost.Source == owner {
			t.Errorf("%s, which was killed, recorded the loss", owner)
		}
		f.say(thread, "", "three", "one\ntwo\nthree\n")
		f.wantHistory(thread, `user "one"`, `agent "one\n"`, fmt.Sprintf("user %q", prompt), `user "two"`, `agent "one\ntwo\n"`,
			`user "three"`, `agent "one\ntwo\nthree\n"`)
		f.stopSession(thread)
		f.start(owner)
		// The killed worker finds its sandbox, which no session owns, and ends it.
		waitGone(t, withArgument(t, prompt))
	}
}

// A worker is frozen during a conversation until another worker has taken the thread over. When it wakes, it publishes nothing,
// pushes nothing, and ends its sandboxes.
func TestAFrozenWorkerPushesNothing(t *testing.T) {
	t.Parallel()
	f, store := newRecallFleet(t)
	for round := range longRounds() {
		thread := fmt.Sprint("frozen-", round)
		f.say(thread, "recall", "one", "one\n")
		process, owner, prompt := f.hold(thread)
		w := f.freeze(thread, owner)
		f.wantOwner(f.say(thread, "", "two", "one\ntwo\n"), owner)
		lost := f.awaitLost(thread, process)
		pids, before := withArgument(t, prompt), stored(t, store)
		if len(pids) == 0 || len(before) == 0 {
			t.Fatalf("processes of the frozen worker = %v, stored files = %v, want some of both", pids, before)
		}
		f.wake(w, pids)
		f.wantSilent(thread, owner, lost.Seq)
		if after := stored(t, store); !slices.Equal(after, before) {
			t.Fatalf("the store changed to\n%s\nfrom\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
		}
		f.wantOwner(f.say(thread, "", "three", "one\ntwo\nthree\n"), owner)
		f.stopSession(thread)
	}
}

// Many threads at once are created, run commands, answer messages and stop.
func TestManyConversationsAtOnce(t *testing.T) {
	threads, commands, messages := long(100, 12), long(20, 3), long(3, 2)
	f := newFleet(t, nil, "w1", "w2")
	group, ctx := errgroup.WithContext(f.ctx)
	live := func(thread string) error {
		if _, created, err := f.client.CreateSession(ctx, client.SessionRequest{Thread: thread, Template: "echo-agent"}); err != nil || !created {
			return fmt.Errorf("create session: created = %v, want true: %w", created, err)
		}
		for i := range commands {
			if r, err := f.client.Exec(ctx, client.Request{Thread: thread, Command: "true", Key: fmt.Sprint("c", i)}); err != nil || !r.Success {
				return fmt.Errorf("command %d: result %+v: %w", i, r, err)
			}
		}
		// All at once: they may be answered in any order, but one after the other.
		talk, ctx := errgroup.WithContext(ctx)
		for i := range messages {
			talk.Go(func() error {
				r, err := f.client.Message(ctx, client.Prompt{Thread: thread, Text: "hello " + thread, Key: fmt.Sprint("m", i)})
				if err != nil || !r.Success || !strings.Contains(r.Stdout, " hello "+thread+"\n") {
					return fmt.Errorf("message %d: result %+v: %w", i, r, err)
				}
				return nil
			})
		}
		if err := talk.Wait(); err != nil {
			return err
		}
		_, err := f.client.StopSession(f.ctx, thread)
		return err
	}
	for i := range threads {
		thread := fmt.Sprint("t", i)
		group.Go(func() error {
			if err := live(thread); err != nil {
				return fmt.Errorf("%s: %w", thread, err)
			}
			return nil
		})
	}
	f.must(group.Wait())
	for i := range threads {
		f.checkEvents(fmt.Sprint("t", i), commands, messages)
	}
	left, err := f.client.Sessions(f.ctx, client.SessionQuery{})
	if err != nil || len(left) != 0 {
		t.Errorf("%d sessions are left (error: %v), want none: %+v", len(left), err, left)
	}
}

func (f *fleet) checkEvents(thread string, commands, messages int) {
	f.t.Helper()
	f.awaitEvent(thread, "", schemas.TypeSessionTerminated)
	var life []schemas.EventType
	processes, ran := map[string][]schemas.EventType{}, map[string]int{}
	answering := "" // the process whose message is being answered
	_, err := f.conn.Caller().ReadEvents(f.ctx, events.Filter{Thread: thread}, 1, func(ev *schemas.Event) error {
		switch {
		case ev.Type.OfProcess(), ev.Type == schemas.TypeStreamFinished:
			processes[ev.Process] = append(processes[ev.Process], ev.Type)
		case ev.Type == schemas.TypeHookStarted, ev.Type == schemas.TypeHookFinished, ev.Type == schemas.TypeHookFailed:
			var h schemas.HookRun
			f.must(ev.Decode(&h))
			ran[fmt.Sprintf("%s %s %s %s", ev.Type, h.Phase, h.Hook, h.Occasion)]++
			if h.Phase == schemas.PhaseMessage && answering != "" && answering != h.Occasion {
				f.t.Errorf("%s: message %s started while %s was being answered", thread, h.Occasion, answering)
			}
			answering = h.Occasion
			if h.Hook == "add-tokens" && ev.Type == schemas.TypeHookFinished {
				answering = "" // the last hook of an answer
			}
		case ev.Type == schemas.TypeMessageSaved:
		default:
			life = append(life, ev.Type)
		}
		return nil
	})
	f.must(err)
	if want := []schemas.EventType{
		schemas.TypeSessionCreated, schemas.TypeSandboxPending, schemas.TypeSandboxCreating, schemas.TypeColdStartFinished, schemas.TypeSandboxRunning,
		schemas.TypeSandboxTerminated, schemas.TypeSessionTerminated,
	}; !slices.Equal(life, want) {
		f.t.Errorf("%s: events of the session = %v, want %v", thread, life, want)
	}
	run := []schemas.EventType{schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited}
	answered := 0
	for process, types := range processes {
		want := run
		if len(types) == len(run)+1 {
			answered++
			want = append(slices.Clone(run), schemas.TypeStreamFinished)
		}
		if !slices.Equal(types, want) {
			f.t.Errorf("%s: events of process %s = %v, want %v", thread, process, types, want)
		}
	}
	if answered != messages || len(processes) != commands+messages {
		f.t.Errorf("%s: %d processes and %d answers, want %d and %d", thread, len(processes), answered, commands+messages, messages)
	}
	for what, times := range ran {
		if times != 1 || strings.HasPrefix(what, string(schemas.TypeHookFailed)) {
			f.t.Errorf("%s: %s came %d times, want once and no failure", thread, what, times)
		}
	}
	if want := 2 * (3*messages + 1); len(ran) != want { // started and finished: three hooks a message, and the clean-up
		f.t.Errorf("%s: %d hook events, want %d: %v", thread, len(ran), want, ran)
	}
	var history []string
	for i := range messages {
		history = append(history, fmt.Sprintf("user %q", "hello "+thread), fmt.Sprintf("agent %q", fmt.Sprintf("(%d) hello %s\n", i+1, thread)))
	}
	f.wantHistory(thread, history...)
}
