package schemas

import "time"

// MessageRequest is a prompt for the thread's agent: op message. Its process is the agent's run, so that its output, its end
// and its cancelling are those of any process.
type MessageRequest struct {
	// Prompt is what the agent is told. Required; at most [MaxPromptBytes] bytes.
	Prompt string `json:"prompt"`
	// User is who says it; recorded, and nothing else.
	User string `json:"user,omitempty"`
	// TimeoutMS ends the agent after that many milliseconds, from its start. Default 0: the template's.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// OutputLimit is as in Exec.
	OutputLimit *int64 `json:"output_limit,omitempty"`
}

// Limit is how many bytes of each stream the result keeps.
func (m *MessageRequest) Limit() int64 {
	if m.OutputLimit == nil {
		return DefaultOutputLimit
	}
	return *m.OutputLimit
}

// MaxPromptBytes is the longest prompt. It leaves room for the rest of the command and of the message's record.
const MaxPromptBytes = 512 << 10

// Role says who speaks.
type Role string

// The roles.
const (
	RoleUser  Role = "user"
	RoleAgent Role = "agent"
)

// Roles lists every role.
func Roles() []Role { return []Role{RoleUser, RoleAgent} }

// Message is one entry of a thread's history. It is stored once, on msg.<thread>.<process>.<role>.
type Message struct {
	// Thread and Session are whose it is.
	Thread  string `json:"thread"`
	Session string `json:"session"`
	// Process is the agent's run that answers it; prompt and answer have the same.
	Process string `json:"process"`
	// Role says who speaks, and User who that is, where the caller said so.
	Role Role   `json:"role"`
	User string `json:"user,omitempty"`
	// Agent is the template that answers.
	Agent string `json:"agent,omitempty"`
	// Text is what was said, cut after [MaxPromptBytes] bytes, which Truncated says; the log has all of an answer.
	Text      string `json:"text,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
	// Time is by the worker's clock, in UTC. Order comes from Seq.
	Time time.Time `json:"time"`
	// Reason and ExitCode are how the agent ended, in an answer.
	Reason   Reason `json:"reason,omitempty"`
	ExitCode int    `json:"exit_code,omitempty"`
	// Usage is what the agent said it used, in an answer.
	Usage *Usage `json:"usage,omitempty"`
	// Seq is the message's place in the stream MSG. It is set on reading; 0 in the stored bytes.
	Seq uint64 `json:"seq,omitempty"`
}

// StreamFinish is the end of a message with all that follows it: hooks, history, push.
type StreamFinish struct {
	// Process is the agent's run, Reason how it ended.
	Process string `json:"process"`
	Reason  Reason `json:"reason"`
	// Usage is what the agent said it used.
	Usage Usage `json:"usage"`
	// Failed are the hooks that failed; their work is tried again later where that makes sense.
	Failed []string `json:"failed,omitempty"`
}
