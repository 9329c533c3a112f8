package schemas

// Delivery is a command as it reaches a worker.
type Delivery struct {
	// Tenant, Thread and Op are the subject's.
	Tenant, Thread string
	Op             Op
	// Command is the decoded command; nil when Invalid gives the reason. Set it with SetCommand.
	Command *Command
	Invalid *Error
	// Process is the command's process id and Fingerprint its [Command.Fingerprint]; both empty without a command. They are
	// computed once, where the command is decoded.
	Process, Fingerprint string
	// Inbox is where the command's events go; empty when nobody waits.
	Inbox string
	// Durable says that it comes from CMD and will be delivered again unless its verdict ends it.
	Durable bool
	// Attempt counts its deliveries, from 1.
	Attempt int
}

// SetCommand sets Command, and Process and Fingerprint from it. Tenant and Thread must be set.
func (d *Delivery) SetCommand(c *Command) {
	d.Command, d.Process, d.Fingerprint = c, ProcessID(d.Tenant, d.Thread, c.Key), c.Fingerprint()
}

// Verdict is what becomes of a delivery.
type Verdict struct {
	// Action says it.
	Action Action
	// To is the worker to forward to.
	To string
	// Reason says why a command is dead.
	Reason *Error
}

// Action is what is done with a durable delivery; a fast one was answered already.
type Action int

// The actions.
const (
	ActionDone    Action = iota // accepted, answered or refused for good: never deliver it again
	ActionRetry                 // deliver it again, later or elsewhere
	ActionForward               // give it to the thread's owner
	ActionDead                  // it can never be accepted: keep it as a dead letter
)

// Control is a control message as it reaches the owner of a thread: one of Signal, Kill and Stdin is set.
type Control struct {
	// Tenant, Thread and Process are the subject's.
	Tenant, Thread, Process string

	Signal *SignalRequest
	Kill   *KillRequest
	Stdin  *StdinPiece
}

// SessionControl is a request about a session as it reaches the owner of its thread: one of Stop, Renew and Start is set.
type SessionControl struct {
	// Tenant and Thread are the subject's.
	Tenant, Thread string

	Stop  *StopRequest
	Renew *RenewRequest
	Start *StartRequest
}
