package hooks

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/schemas"
)

// Workspace pulls and pushes a session's workspace. Both compare content, so that a second call changes nothing. The report may be
// nil; with an error it may contain conflicts.
type Workspace interface {
	// Pull brings the stored workspace into call.Dir. Errors: conflict, unavailable, not_found.
	Pull(ctx context.Context, call *Call) (*schemas.SyncReport, error)
	// Push stores call.Dir as a new version. Errors: those of Pull, and lost when this worker no longer owns the session.
	Push(ctx context.Context, call *Call) (*schemas.SyncReport, error)
}

// Messages is the history of threads.
type Messages interface {
	// SaveMessage stores a message and returns its sequence. It leaves a message that is stored already as it is.
	SaveMessage(ctx context.Context, tenant string, m *schemas.Message) (seq uint64, err error)
}

// Sessions changes the sessions that this worker owns.
type Sessions interface {
	// ChangeSession applies change to a conversation's session and saves it. When another writer was first, it reads the session
	// and applies change again. Errors: lost when this worker no longer owns the session, unavailable.
	ChangeSession(ctx context.Context, c schemas.Conversation, change func(*schemas.Session)) error
}

// Owed stores the pushes that this worker owes, so that they outlive it, and so that others see them.
type Owed interface {
	// OwedPushes returns those of a worker. Errors: unavailable.
	OwedPushes(ctx context.Context, worker string) ([]schemas.OwedPush, error)
	// SaveOwed stores or replaces the push that a worker owes for a thread. Errors: unavailable.
	SaveOwed(ctx context.Context, o *schemas.OwedPush) error
	// DeleteOwed deletes it. Errors: unavailable.
	DeleteOwed(ctx context.Context, o *schemas.OwedPush) error
}

// Asker sends to NATS subjects of users.
type Asker interface {
	// Ask sends a request and returns the reply. Errors: unavailable without a subscriber, deadline_exceeded, permission_denied when
	// the server refuses the subject to this worker.
	Ask(ctx context.Context, m schemas.HookMessage) ([]byte, error)
	// Post publishes, and returns once the server has the message. Errors: permission_denied, deadline_exceeded, unavailable.
	Post(ctx context.Context, m schemas.HookMessage) error
}

// Config configures Chains. Worker and Record are required. A hook that needs a missing part fails with unavailable.
type Config struct {
	// Worker is the source of the events.
	Worker string
	// Record stores an event. It must keep the order of its calls, and should return before the event is stored: messages wait
	// for their hooks.
	Record func(ctx context.Context, ev *schemas.Event)
	// Workspace is needed by the hooks pull-workspace and push-workspace.
	Workspace Workspace
	// Owed keeps failed pushes over restarts. Default: they are retried while the program runs.
	Owed Owed
	// Template returns a template by name, and Workspaces is the folder of the threads' workspaces: a push that is owed goes where
	// the template says by then. Default of both: where it said at first; pushes of an earlier run are not retried.
	Template   func(name string) (*schemas.Template, error)
	Workspaces string
	// Messages is needed by the hook save-message.
	Messages Messages
	// Unsaved is the worker's own folder for messages until they are stored. Default: a worker that ends loses them.
	Unsaved string
	// Asker is needed by hooks that send to a subject.
	Asker Asker
	// Secret reads a template's secret. It is needed by hooks that sign.
	Secret func(ref schemas.SecretRef) (string, error)
	// Sessions stores the counts of messages and tokens. Default: none are stored.
	Sessions Sessions
	// Private allows HTTP hooks to use loopback and private addresses, and HTTP without TLS to them. Default: only public
	// addresses, by HTTPS.
	Private bool
	// Hooks are Go hooks by name. Templates refer to them as to built-in hooks, whose names they must not have.
	Hooks map[string]any
	// RetryFirst and RetryLongest are the first and the longest wait before a failed hook is retried. Default 5 s and 5 min. A push
	// that a person has to mend, such as a conflict, is retried after RetryFinal, by default 1 h. Pushes are retried until they
	// succeed, messages for a day.
	RetryFirst, RetryLongest, RetryFinal time.Duration
	// Log gets a line for each hook that failed. Default: none.
	Log zerolog.Logger
}

// Defaults of hooks and retries.
const (
	hookTimeout  = 30 * time.Second
	syncTimeout  = 5 * time.Minute
	retryFirst   = 5 * time.Second
	retryLongest = 5 * time.Minute
	retryFinal   = time.Hour
	retryFor     = 24 * time.Hour
	// stragglerGrace is how long a hook may run past its timeout before Run goes on without it.
	stragglerGrace = 2 * time.Second
)
