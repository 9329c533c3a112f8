package processor

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/processor/answer"
)

// talk makes a run the answer to a message: it waits for its turn, runs between the hooks of its two phases, and is listened to.
type talk struct {
	request *schemas.MessageRequest // nil where another incarnation began it
	user    string
	ahead   <-chan struct{} // closed when the message before is through; nil for none
	done    chan struct{}   // closed when this one is
	begun   bool            // its hooks have been told of it
	output  string          // the format of the agent's standard output
	reader  *answer.Reader
	text    clip
}

// placePrompt is what an argument of an agent's command holds in the prompt's place.
const placePrompt = "{prompt}"

func newTalk(t *schemas.Template, request *schemas.MessageRequest, user string) *talk {
	k := &talk{request: request, user: user, done: make(chan struct{})}
	if t.Agent != nil {
		k.output = t.Agent.Output
	}
	k.again()
	return k
}

// again forgets what was heard so far.
func (k *talk) again() {
	k.text = clip{}
	k.reader = answer.NewReader(&k.text, k.output)
}

// hear takes what the agent prints. It is nil for a run that is no talk.
func (k *talk) hear(stream schemas.Stream, p []byte) {
	if k != nil && stream == schemas.Stdout {
		_, _ = k.reader.Write(p) // a clip takes everything
	}
}

// through lets the next message have its turn, once those before have had theirs.
func (k *talk) through() {
	if k.ahead != nil {
		<-k.ahead
	}
	close(k.done)
}

// lineUp gives a message its turn after those that came before.
func (t *thread) lineUp(k *talk) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k.ahead, t.talking = t.talking, k.done
}

// agentExec is an agent's run for a prompt.
func agentExec(a *schemas.TemplateAgent, m *schemas.MessageRequest) *schemas.Exec {
	e := &schemas.Exec{Command: a.Command[0], TimeoutMS: m.TimeoutMS, OutputLimit: m.OutputLimit}
	if e.TimeoutMS == 0 {
		e.TimeoutMS = a.TimeoutMS
	}
	stdin := true
	for _, arg := range a.Command[1:] {
		if strings.Contains(arg, placePrompt) {
			arg, stdin = strings.ReplaceAll(arg, placePrompt, m.Prompt), false
		}
		e.Args = append(e.Args, arg)
	}
	if a.Stdin != nil {
		stdin = *a.Stdin
	}
	if stdin {
		e.Stdin = []byte(m.Prompt)
	}
	return e
}

// converse sees a message through: its turn, the hooks before, the agent, which do runs, its record, and the hooks after.
func (w *Worker) converse(r *run, do func(*schemas.Result) error) {
	r.thread.begin() // the session is in use until the last hook has ended
	defer r.thread.end()
	defer r.talk.through()
	result := w.newResult(r)
	err := w.awaitTurn(r)
	if err == nil {
		err = do(result)
	}
	w.conclude(r, result, err)
	w.concludeTalk(r, result)
	r.release() // until here the next incarnation finds it, and does what follows
}

// awaitTurn waits until the messages before are through, and runs the hooks of this one. Errors: errKilledEarly, lost where
// the lease is, those of the sandbox, the critical hook's.
func (w *Worker) awaitTurn(r *run) error {
	if r.talk.request == nil {
		return nil // it had its turn, and goes on
	}
	ctx, cancel := context.WithCancel(w.bg)
	defer cancel()
	if !r.queue(cancel) {
		return errKilledEarly
	}
	if r.talk.ahead != nil {
		select {
		case <-r.talk.ahead:
		case <-ctx.Done():
			return errKilledEarly
		}
	}
	if w.isFenced() { // the one before ended because of that
		return schemas.Errorf(schemas.CodeLost, "the lease of worker %s is lost", w.cfg.Worker)
	}
	sb, err := w.sandbox(ctx, r.thread)
	if err == nil {
		r.talk.begun = true
		_, err = w.runHooks(ctx, r.thread, occasion{phase: schemas.PhaseMessage, of: r.process, sb: sb, message: r.talk.prompt(r)})
	}
	switch {
	case r.isDoomed():
		return errKilledEarly
	case err != nil:
		return startError(err)
	}
	return nil
}

// queue is starting for a run that waits: a kill ends that at once, whatever its grace, and so does a signal that is meant to end
// it. false: one of them came before.
func (r *run) queue(cancel context.CancelFunc) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancelStart, r.queued = cancel, true
	r.doomed = r.doomed || slices.ContainsFunc(r.signals, ends)
	return !r.doomed
}

func (k *talk) prompt(r *run) *schemas.Message {
	m := k.message(r, schemas.RoleUser)
	m.Text = k.request.Prompt
	return m
}

// message is what both sides' messages have in common.
func (k *talk) message(r *run, role schemas.Role) *schemas.Message {
	s := &r.thread.session
	return &schemas.Message{
		Thread: r.thread.thread, Session: s.ID, Process: r.process, Role: role, User: k.user, Template: s.Template, Time: time.Now().UTC(),
	}
}

// concludeTalk tells the hooks of the answer, and everybody that nothing more comes of the message. A worker whose lease is lost
// leaves it to the thread's owner.
func (w *Worker) concludeTalk(r *run, result *schemas.Result) {
	if !r.talk.begun || w.isFenced() {
		return
	}
	_ = r.talk.reader.Close() // a clip takes everything
	m := r.talk.message(r, schemas.RoleAgent)
	m.Text, m.Truncated, m.Reason, m.ExitCode = r.talk.text.String(), r.talk.text.cut, result.Reason, result.ExitCode
	usage, found := r.talk.reader.Usage()
	if found {
		m.Usage = &usage
	}
	failed, err := w.runHooks(w.bg, r.thread, occasion{phase: schemas.PhaseStreamFinish, of: r.process, sb: r.thread.standing(), message: m, usage: m.Usage})
	if err != nil {
		w.cfg.Log.Warn().Err(err).Str("command_id", r.process).Str("thread", r.thread.thread).Str("session_id", r.thread.session.ID).Msg("stream_finish")
	}
	w.publish(w.bg, w.event(schemas.TypeStreamFinished, r.thread.tenant, r.thread.thread, r.thread.session.ID, r.process, schemas.StreamFinish{
		Process: r.process, Reason: result.Reason, Usage: usage, Failed: failed,
	}))
}

// standing is the thread's sandbox, if it has one that runs.
func (t *thread) standing() sandbox.Sandbox {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.making; m != nil && m.life.state == schemas.SandboxRunning && !m.ended() {
		return m.sb
	}
	return nil
}

// clip keeps the beginning of a text.
type clip struct {
	b   []byte
	cut bool
}

// Write never fails.
func (c *clip) Write(p []byte) (int, error) {
	room := schemas.MaxPromptBytes - len(c.b)
	if len(p) > room {
		c.cut = true
	}
	c.b = append(c.b, p[:min(room, len(p))]...)
	return len(p), nil
}

// String is the text as JSON can hold it.
func (c *clip) String() string { return strings.ToValidUTF8(string(c.b), "\uFFFD") }
