package hooks

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/schemas"
)

// Workspace carries a session's workspace from and to where its template keeps it. Both are by content: done twice, the second
// changes nothing. The report is nil where nothing is known; with an error it may tell of conflicts.
type Workspace interface {
	// Pull brings what the store has into call.Dir. Errors: conflict, unavailable, not_found.
	Pull(ctx context.Context, call *Call) (*schemas.SyncReport, error)
	// Push stores call.Dir as a new version. Errors: those of Pull, and lost where the session is no longer this worker's.
	Push(ctx context.Context, call *Call) (*schemas.SyncReport, error)
}

// Messages is the history of threads.
type Messages interface {
	// schemas.HookSave stores a message once, and returns its place. One that is there already is left as it is.
	SaveMessage(ctx context.Context, tenant string, m *schemas.Message) (seq uint64, err error)
}

// Sessions changes the sessions that this worker owns.
type Sessions interface {
	// ChangeSession applies change to a conversation's session and saves it, again from the read where somebody else was
	// first. Errors: lost where the session is no longer this worker's, unavailable.
	ChangeSession(ctx context.Context, c schemas.Conversation, change func(*schemas.Session)) error
}

// Asker asks a NATS subject.
type Asker interface {
	// Ask sends a request and returns the answer. Errors: unavailable where nobody listens, deadline_exceeded.
	Ask(ctx context.Context, subject string, body []byte) ([]byte, error)
}

// Config says what hooks may use. Worker and Record must be set; a hook that needs a part which is missing is refused.
type Config struct {
	// Worker is the source of the events.
	Worker string
	// Record stores an event. It must keep the order of its calls, and should not wait for the store: a message waits for its
	// hooks.
	Record func(ctx context.Context, ev *schemas.Event)
	// Workspace, Messages, Asker and Secret are what some kinds of hooks need.
	Workspace Workspace
	Messages  Messages
	Asker     Asker
	// Secret reads a secret that a template names.
	Secret func(ref schemas.SecretRef) (string, error)
	// Sessions keeps the counts. Default: nothing is counted.
	Sessions Sessions
	// Private lets HTTP hooks reach loopback and private addresses, and by plain HTTP. Default: public ones by HTTPS alone.
	Private bool
	// Hooks are Go hooks by name, for templates to name as built-ins. A name of Sluice's own is refused.
	Hooks map[string]any
	// RetryFirst and RetryLongest are the waits before a failed push is tried again: the first, and the longest that it grows
	// to. Default 5 s and 5 min. After a day it is given up until the next occasion.
	RetryFirst, RetryLongest time.Duration
	// Log gets a line for each hook that failed. Default: nothing is logged.
	Log zerolog.Logger
}

// Defaults of a hook, and of retries.
const (
	hookTimeout  = 30 * time.Second
	syncTimeout  = 5 * time.Minute
	retryFirst   = 5 * time.Second
	retryLongest = 5 * time.Minute
	retryFor     = 24 * time.Hour
	// stragglerGrace is how long a hook may go on after its deadline before it is left behind.
	stragglerGrace = 2 * time.Second
)
