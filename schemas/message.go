package schemas

import "time"

// Role is the sender of a message.
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
	// Thread is the conversation, Session the id of its session.
	Thread  string `json:"thread"`
	Session string `json:"session"`
	// Process is the run of the agent. A prompt and its answer have the same.
	Process string `json:"process"`
	// Role is the sender's role.
	Role Role `json:"role"`
	// User is the name of the user who sent the prompt.
	User string `json:"user,omitempty"`
	// Template is the name of the template whose agent answers.
	Template string `json:"template,omitempty"`
	// Text is the prompt or the answer, at most [MaxPromptBytes] bytes. Truncated says that it was cut; the log has the whole
	// answer.
	Text      string `json:"text,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
	// Time is the worker's clock, in UTC. Seq, not Time, gives the order.
	Time time.Time `json:"time"`
	// Reason is why the agent ended, ExitCode its exit code; only in an answer.
	Reason   Reason `json:"reason,omitempty"`
	ExitCode int    `json:"exit_code,omitempty"`
	// Usage is the tokens that the agent reported; only in an answer.
	Usage *Usage `json:"usage,omitempty"`
	// Seq is the message's sequence in the stream MSG. Readers set it; it is 0 in the stored bytes.
	Seq uint64 `json:"seq,omitempty"`
}

// Usage is the tokens that an agent reported.
type Usage struct {
	// InputTokens is the number of tokens read, OutputTokens the number written.
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
}

// Add returns the sum of both.
func (u Usage) Add(v Usage) Usage {
	return Usage{InputTokens: u.InputTokens + v.InputTokens, OutputTokens: u.OutputTokens + v.OutputTokens}
}

// StreamFinish reports that a message is complete, with its hooks, its history and its push.
type StreamFinish struct {
	// Process is the run of the agent, Reason why it ended, ExitCode its exit code as in [Result].
	Process  string `json:"process"`
	Reason   Reason `json:"reason"`
	ExitCode int    `json:"exit_code"`
	// Version is the version of the workspace that holds what the agent left: the one that this message pushed, or the one before when
	// nothing changed. Empty when the workspace was not pushed.
	Version string `json:"version,omitempty"`
	// Answer is where the history has the answer; absent when it was not saved. Log is where LOG has the standard output; absent when
	// nothing was printed.
	Answer *StreamRange `json:"answer,omitempty"`
	Log    *StreamRange `json:"log,omitempty"`
	// Usage is the tokens that the agent reported.
	Usage Usage `json:"usage"`
	// Failed are the names of the hooks that failed. A failed push is retried later.
	Failed []string `json:"failed,omitempty"`
}

// StreamRange is where a stream has what belongs together: the messages of one subject in a range of sequences.
type StreamRange struct {
	// Stream is the JetStream stream, Subject the subject of its messages.
	Stream  string `json:"stream"`
	Subject string `json:"subject"`
	// FirstSeq and LastSeq are the stream sequences of the first and the last message.
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
}
