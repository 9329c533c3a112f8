package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
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
	"github.com/sluice-dev/sluice/schemas"
)

// keeper is a template whose agent writes each prompt down and answers with all of them. A prompt that holds a colon is never
// answered: the agent goes on until it is killed.
const keeper = `
name: keeper
provider: local
sync: {location: "file://%s/{thread}"}
agent:
  command:
    - sh
    - -c
    - |
      printf '%%s\n' "$1" >>said
      case $1 in *:*) echo holding; while :; do sleep 0.05; done ;; esac
      cat said
    - keeper
    - "{prompt}"
`

// keepers is a fleet with the template keeper, and the folder that is its store.
func keepers(t *testing.T) (f *fleet, store string) {
	t.Helper()
	store, templates := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(templates, "registry.yaml"), fmt.Appendf(nil, keeper, store), 0o600); err != nil {
		t.Fatal(err)
	}
	return newFleetWith(t, map[string]string{"SLUICE_TEMPLATES": templates}, "w1", "w2"), store
}

// longRounds is how often a worker is killed, or frozen, in mid-conversation.
func longRounds() int {
	if os.Getenv("SLUICE_LONG") != "" {
		return rounds()
	}
	return 1
}

// say has a thread's agent answer, and waits for all that follows.
func (f *fleet) say(thread, template, prompt, want string) *schemas.Result {
	f.t.Helper()
	r, err := f.client.Message(f.ctx, client.Prompt{Thread: thread, Template: template, Text: prompt})
	f.must(err)
	if r.Stdout != want || !r.Success {
		f.t.Fatalf("%q is answered by %+v, want %q", prompt, r, want)
	}
	f.awaitEvent(thread, r.Process, schemas.TypeStreamFinished)
	return r
}

// hold begins a message that is never answered, and returns its process, its owner and the prompt, which is an argument of what runs.
func (f *fleet) hold(thread string) (process, owner, prompt string) {
	f.t.Helper()
	prompt = "hold:" + unique()
	x, err := f.client.MessageStream(f.ctx, client.Prompt{Thread: thread, Template: "keeper", Text: prompt})
	f.must(err)
	defer x.Close()
	for e, err := range x.Events(f.ctx) {
		f.must(err)
		if e.Chunk != nil {
			break
		}
	}
	s, err := f.client.SessionInfo(f.ctx, thread)
	f.must(err)
	return x.Process(), s.Owner, prompt
}

// history is what was said in a thread, a line each.
func (f *fleet) history(thread string) (out []string) {
	f.t.Helper()
	f.must(f.client.Messages(f.ctx, client.MessageQuery{Thread: thread}, func(m *schemas.Message) error {
		out = append(out, fmt.Sprintf("%s %q", m.Role, m.Text))
		return nil
	}))
	return out
}

func (f *fleet) wantHistory(thread string, want ...string) {
	f.t.Helper()
	if got := f.history(thread); !slices.Equal(got, want) {
		f.t.Errorf("the history is %q, want %q", got, want)
	}
}

// stored is what a folder holds: each file with its content's digest.
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
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A worker is killed in mid-conversation: what ran is lost, another worker takes the thread over with its workspace as last pushed,
// and the next message is answered.
func TestAConversationGoesOnElsewhere(t *testing.T) {
	f, _ := keepers(t)
	for round := range longRounds() {
		thread := fmt.Sprint("talk-", round)
		f.say(thread, "keeper", "one", "one\n")
		process, owner, prompt := f.hold(thread)
		f.workers[owner].kill()
		if r := f.say(thread, "", "two", "one\ntwo\n"); r.Worker == owner || r.Epoch != 2 {
			t.Fatalf("%+v, and %s was killed", r, owner)
		}
		lost := f.awaitLost(thread, process)
		if r, err := f.client.Result(f.ctx, thread, process); err != nil || r.Reason != schemas.ReasonLost || lost.Source == owner {
			t.Fatalf("%+v %v", r, err)
		}
		f.say(thread, "", "three", "one\ntwo\nthree\n")
		f.wantHistory(thread, `user "one"`, `agent "one\n"`, fmt.Sprintf("user %q", prompt), `user "two"`, `agent "one\ntwo\n"`,
			`user "three"`, `agent "one\ntwo\nthree\n"`)
		_, err := f.client.StopSession(f.ctx, thread)
		f.must(err)
		f.start(owner)
		// The one that was killed finds a sandbox that is nobody's, and ends it.
		waitGone(t, withArgument(t, prompt))
	}
}

// A worker is frozen in mid-conversation until another one has taken the thread over, and wakes: it publishes nothing, pushes
// nothing, and ends its sandboxes.
func TestAFrozenWorkerPushesNothing(t *testing.T) {
	f, store := keepers(t)
	for round := range longRounds() {
		thread := fmt.Sprint("frozen-", round)
		f.say(thread, "keeper", "one", "one\n")
		process, owner, prompt := f.hold(thread)
		w := f.workers[owner]
		w.freeze()
		if r := f.say(thread, "", "two", "one\ntwo\n"); r.Worker == owner || r.Epoch != 2 {
			t.Fatalf("%+v, and %s was frozen", r, owner)
		}
		lost := f.awaitLost(thread, process)
		pids, before := withArgument(t, prompt), stored(t, store)
		if len(pids) == 0 || len(before) == 0 {
			t.Fatalf("what it ran is gone already, or nothing is stored: %v, %v", pids, before)
		}
		f.wake(w, pids)
		f.silent(thread, owner, lost.Seq)
		if after := stored(t, store); !slices.Equal(after, before) {
			t.Fatalf("the store has changed:\n%s\nwas\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
		}
		if r := f.say(thread, "", "three", "one\ntwo\nthree\n"); r.Worker == owner || r.Epoch != 2 {
			t.Fatalf("%+v", r)
		}
		_, err := f.client.StopSession(f.ctx, thread)
		f.must(err)
	}
}

// Many threads at once live their whole life: they are created, run commands, are sent messages, and stop.
func TestManyConversationsAtOnce(t *testing.T) {
	threads, commands, messages := 12, 3, 2
	if os.Getenv("SLUICE_LONG") != "" {
		threads, commands, messages = 100, 20, 3
	}
	f := newFleet(t, "w1", "w2")
	group, ctx := errgroup.WithContext(f.ctx)
	live := func(thread string) error {
		if _, created, err := f.client.CreateSession(ctx, client.SessionRequest{Thread: thread, Template: "echo-agent"}); err != nil || !created {
			return fmt.Errorf("created: %v, %w", created, err)
		}
		for i := range commands {
			if r, err := f.client.Exec(ctx, client.Request{Thread: thread, Command: "true", Key: fmt.Sprint("c", i)}); err != nil || !r.Success {
				return fmt.Errorf("%+v %w", r, err)
			}
		}
		// All at once: the order is theirs, one after the other is not.
		talk, ctx := errgroup.WithContext(ctx)
		for i := range messages {
			talk.Go(func() error {
				r, err := f.client.Message(ctx, client.Prompt{Thread: thread, Text: "hello " + thread, Key: fmt.Sprint("m", i)})
				if err != nil || !r.Success || !strings.Contains(r.Stdout, " hello "+thread+"\n") {
					return fmt.Errorf("%+v %w", r, err)
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
		f.lived(fmt.Sprint("t", i), commands, messages)
	}
	left, err := f.client.Sessions(f.ctx, client.SessionQuery{})
	if err != nil || len(left) != 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
}

// lived looks at all that was told of a thread.
func (f *fleet) lived(thread string, commands, messages int) {
	f.t.Helper()
	f.awaitEvent(thread, "", schemas.TypeSessionTerminated)
	var life []schemas.EventType
	processes, ran := map[string][]schemas.EventType{}, map[string]int{}
	talking := ""
	_, err := f.conn.Caller().ReadEvents(f.ctx, events.Filter{Thread: thread}, 1, func(ev *schemas.Event) error {
		switch {
		case ev.Type.OfProcess(), ev.Type == schemas.TypeStreamFinished:
			processes[ev.Process] = append(processes[ev.Process], ev.Type)
		case ev.Type == schemas.TypeHookStarted, ev.Type == schemas.TypeHookFinished, ev.Type == schemas.TypeHookFailed:
			var h schemas.HookRun
			f.must(ev.Decode(&h))
			ran[fmt.Sprintf("%s %s %s %s", ev.Type, h.Phase, h.Hook, h.Occasion)]++
			if h.Phase == schemas.PhaseMessage && talking != "" && talking != h.Occasion {
				f.t.Errorf("%s: message %s began while %s was answered", thread, h.Occasion, talking)
			}
			talking = h.Occasion
			if h.Hook == "add-tokens" && ev.Type == schemas.TypeHookFinished {
				talking = "" // the last hook of an answer
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
		f.t.Errorf("%s: %v, want %v", thread, life, want)
	}
	run := []schemas.EventType{schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited}
	talked := 0
	for process, told := range processes {
		want := run
		if len(told) == len(run)+1 {
			talked++
			want = append(slices.Clone(run), schemas.TypeStreamFinished)
		}
		if !slices.Equal(told, want) {
			f.t.Errorf("%s: %v is told of %s", thread, told, process)
		}
	}
	if talked != messages || len(processes) != commands+messages {
		f.t.Errorf("%s: %d processes, %d of messages", thread, len(processes), talked)
	}
	for what, times := range ran {
		if times != 1 || strings.HasPrefix(what, string(schemas.TypeHookFailed)) {
			f.t.Errorf("%s: %s, %d times", thread, what, times)
		}
	}
	if want := 2 * (3*messages + 1); len(ran) != want { // begun and ended: three of each message, and the clean-up
		f.t.Errorf("%s: %d of hooks, want %d: %v", thread, len(ran), want, ran)
	}
	if got := f.history(thread); len(got) != 2*messages {
		f.t.Errorf("%s: %q", thread, got)
	} else {
		for i := range messages {
			if got[2*i] != fmt.Sprintf("user %q", "hello "+thread) || got[2*i+1] != fmt.Sprintf("agent %q", fmt.Sprintf("(%d) hello %s\n", i+1, thread)) {
				f.t.Errorf("%s: %q", thread, got)
			}
		}
	}
}

// awaitEvent waits for an event of a thread, and of a process where it is of one.
func (f *fleet) awaitEvent(thread, process string, typ schemas.EventType) *schemas.Event {
	f.t.Helper()
	feed, err := f.conn.Caller().FollowEvents(events.Filter{Thread: thread, Process: process}, 1)
	f.must(err)
	defer feed.Close()
	f.must(f.conn.Flush(f.ctx))
	var found *schemas.Event
	look := func(ev *schemas.Event) error {
		if ev.Type == typ {
			found = ev
			return errFound
		}
		return nil
	}
	err = feed.CatchUp(f.ctx, look)
	for found == nil && err == nil {
		err = feed.Next(f.ctx, look)
	}
	if !errors.Is(err, errFound) {
		f.t.Fatalf("no %s of %s: %v", typ, thread, err)
	}
	return found
}
