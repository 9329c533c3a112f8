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

	mu   sync.Mutex
	last map[*session.Thread]chan struct{} // closed when the thread's last message is done; none when all are
}

// New starts nothing.
func New(sessions *session.Sessions, p *publisher.Publisher, b *work.Background) *Conversations {
	return &Conversations{sessions: sessions, publisher: p, background: b, last: make(map[*session.Thread]chan struct{})}
}

// Message is a message of a thread, from its place in the order to the hooks after its answer.
type Message struct {
	conversations *Conversations
	thread        *session.Thread
	process, user string
	request       *schemas.MessageRequest // nil when an earlier incarnation began the answer
	begun         bool                    // hooks have run
	ahead         <-chan struct{}         // closed when the message before is done; nil for none
	done          chan struct{}           // closed when this one is
	format        string                  // of the agent's standard output
	reader        *answer.Reader
	text          prefix
}

// NewMessage makes the message that a process answers. request is nil when an earlier incarnation began the answer.
func (cs *Conversations) NewMessage(t *session.Thread, process, user string, request *schemas.MessageRequest) run.Turn {
	m := &Message{
		conversations: cs, thread: t, process: process, user: user, request: request, begun: request == nil, done: make(chan struct{}),
	}
	if t.Template.Agent != nil {
		m.format = t.Template.Agent.Output
	}
	m.Reset()
	return m
}

// LineUp takes the place after the messages of the thread that came before.
func (m *Message) LineUp() {
	cs := m.conversations
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if last := cs.last[m.thread]; last != nil {
		m.ahead = last
	}
	cs.last[m.thread] = m.done
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
	sb, err := cs.sessions.Sandbox(ctx, m.thread)
	if err != nil {
		return err
	}
	m.begun = true
	prompt := m.message(schemas.RoleUser)
	prompt.Text = m.request.Prompt
	_, err = cs.sessions.RunHooks(ctx, m.thread, session.Occasion{Phase: schemas.PhaseMessage, ID: m.process, Sandbox: sb, Message: prompt})
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
	t, ctx := m.thread, cs.background.Context()
	failed, err := cs.sessions.RunHooks(ctx, t, session.Occasion{
		Phase: schemas.PhaseStreamFinish, ID: m.process, Sandbox: t.Standing(), Message: reply, Usage: reply.Usage,
	})
	if err != nil {
		publisher.LogSession(cs.publisher.Log.Warn().Err(err).Str("command_id", m.process), t.ID, t.Session.ID).Msg("stream_finish")
	}
	cs.publisher.Publish(ctx, cs.publisher.Event(schemas.TypeStreamFinished, t.Tenant, t.ID, t.Session.ID, m.process, schemas.StreamFinish{
		Process: m.process, Reason: result.Reason, Usage: usage, Failed: failed,
	}))
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
	if cs.last[m.thread] == m.done {
		delete(cs.last, m.thread)
	}
}

// message is what the messages of both sides have in common.
func (m *Message) message(role schemas.Role) *schemas.Message {
	s := &m.thread.Session
	return &schemas.Message{
		Thread: m.thread.ID, Session: s.ID, Process: m.process, Role: role, User: m.user, Template: s.Template, Time: time.Now().UTC(),
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
