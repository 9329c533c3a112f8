package conversation

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/processor/answer"
	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/run"
	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/schemas"
)

// Conversations order the messages of each thread.
type Conversations struct {
	sessions   *session.Sessions
	publisher  *publisher.Publisher
	background *work.Background
	locate     Locate

	mu   sync.Mutex
	last map[*session.Thread]chan struct{} // closed when the thread's last message is done; none when all are
}

// Locate returns the streams and subjects of a message's answer in the history and in the log, without sequences.
type Locate func(p schemas.ProcessRef) (answer, output schemas.StreamRange)

// New starts nothing.
func New(sessions *session.Sessions, p *publisher.Publisher, b *work.Background, locate Locate) *Conversations {
	return &Conversations{sessions: sessions, publisher: p, background: b, locate: locate, last: make(map[*session.Thread]chan struct{})}
}

// Message is a message of a thread, from its place in the order to the hooks after its answer.
type Message struct {
	run.Message
	conversations *Conversations
	begun         bool            // hooks have run
	ahead         <-chan struct{} // closed when the message before is done; nil for none
	done          chan struct{}   // closed when this one is
	format        string          // of the agent's standard output
	reader        *answer.Reader
	text          prefix
}

// NewMessage makes the turn of a message.
func (cs *Conversations) NewMessage(of run.Message) run.Turn {
	m := &Message{Message: of, conversations: cs, begun: of.Request == nil, done: make(chan struct{})}
	if agent := of.Thread.Template.Agent; agent != nil {
		m.format = agent.Output
	}
	m.Reset()
	return m
}

// LineUp takes the place after the messages of the thread that came before.
func (m *Message) LineUp() {
	cs := m.conversations
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if last := cs.last[m.Thread]; last != nil {
		m.ahead = last
	}
	cs.last[m.Thread] = m.done
}

// Await waits until the messages before are done, and runs the hooks before the answer. Errors: ctx's; lost when the lease is;
// those of the sandbox; the critical hook's.
func (m *Message) Await(ctx context.Context) error {
	cs := m.conversations
	if m.ahead != nil {
		select {
		case <-m.ahead:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	// The message before may have ended because the lease was lost.
	if err := cs.publisher.CheckLease(); err != nil {
		return err
	}
	sb, err := cs.sessions.Sandbox(ctx, m.Thread, m.Origin)
	if err != nil {
		return err
	}
	m.begun = true
	prompt := m.message(schemas.RoleUser)
	prompt.Text = m.Request.Prompt
	_, err = cs.sessions.RunHooks(ctx, m.Thread, session.Occasion{
		Phase: schemas.PhaseMessage, ID: m.Process, Sandbox: sb, Message: prompt, Origin: m.Origin,
	})
	return err
}

// Write takes what the agent prints.
func (m *Message) Write(stream schemas.Stream, p []byte) {
	if stream == schemas.Stdout {
		_, _ = m.reader.Write(p) // a prefix takes everything
	}
}

// Reset drops the answer so far.
func (m *Message) Reset() {
	m.text = prefix{}
	m.reader = answer.NewReader(&m.text, m.format)
}

// Finish runs the hooks after the answer, and reports that nothing more follows. A fenced worker leaves both to the thread's owner.
func (m *Message) Finish(result *schemas.Result) {
	cs := m.conversations
	if !m.begun || cs.publisher.Fenced() {
		return
	}
	_ = m.reader.Close() // a prefix takes everything
	reply := m.message(schemas.RoleAgent)
	reply.Text, reply.Truncated, reply.Reason, reply.ExitCode = m.text.String(), m.text.truncated, result.Reason, result.ExitCode
	usage, found := m.reader.Usage()
	if found {
		reply.Usage = &usage
	}
	t, ctx := m.Thread, cs.background.Context()
	outcome, err := cs.sessions.RunHooks(ctx, t, session.Occasion{
		Phase: schemas.PhaseStreamFinish, ID: m.Process, Sandbox: t.Standing(), Message: reply, Usage: reply.Usage, Origin: m.Origin,
	})
	if err != nil {
		publisher.LogSession(cs.publisher.Log.Warn().Err(err).Str("command_id", m.Process), t.ID, t.Session.ID).Msg("stream_finish")
	}
	about := t.About(m.Origin)
	about.Process = m.Process
	cs.publisher.Publish(ctx, cs.publisher.Event(schemas.TypeStreamFinished, about, m.summary(result, usage, outcome)))
}

// summary is what stream.finished reports.
func (m *Message) summary(result *schemas.Result, usage schemas.Usage, outcome schemas.HookOutcome) schemas.StreamFinish {
	cs, t := m.conversations, m.Thread
	finish := schemas.StreamFinish{
		Process: m.Process, Reason: result.Reason, ExitCode: result.ExitCode, Usage: usage, Failed: outcome.Failed,
	}
	if outcome.Pushed {
		finish.Version = cs.sessions.Info(t).Version
	}
	saved, output := cs.locate(schemas.ProcessRef{Tenant: t.Tenant, Thread: t.ID, Process: m.Process})
	if outcome.Saved > 0 {
		saved.FirstSeq, saved.LastSeq = outcome.Saved, outcome.Saved
		finish.Answer = &saved
	}
	if result.Log != nil && result.StdoutBytes > 0 {
		output.FirstSeq, output.LastSeq = result.Log.FirstSeq, result.Log.LastSeq
		finish.Log = &output
	}
	return finish
}

// Done lets the next message have its turn, once those before have had theirs.
func (m *Message) Done() {
	if m.ahead != nil {
		<-m.ahead
	}
	close(m.done)
	cs := m.conversations
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.last[m.Thread] == m.done {
		delete(cs.last, m.Thread)
	}
}

// message is what the messages of both sides have in common.
func (m *Message) message(role schemas.Role) *schemas.Message {
	s := &m.Thread.Session
	return &schemas.Message{
		Thread: m.Thread.ID, Session: s.ID, Process: m.Process, Role: role, User: m.User, Template: s.Template, Time: time.Now().UTC(),
	}
}

// prefix keeps the beginning of a text.
type prefix struct {
	b         []byte
	truncated bool
}

// Write never fails.
func (x *prefix) Write(p []byte) (int, error) {
	room := schemas.MaxPromptBytes - len(x.b)
	if len(p) > room {
		x.truncated = true
	}
	x.b = append(x.b, p[:min(room, len(p))]...)
	return len(p), nil
}

// String is the text as JSON can hold it.
func (x *prefix) String() string { return strings.ToValidUTF8(string(x.b), "\uFFFD") }
