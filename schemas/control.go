package schemas

// SignalRequest asks for a signal to a process's group. It travels on ctl.<thread>.<process>.signal.
type SignalRequest struct {
	// Signal is the signal's name, such as SIGINT, with or without SIG, or its number.
	Signal string `json:"signal"`
}

// KillRequest asks for the end of a process's whole tree. It travels on ctl.<thread>.<process>.kill.
type KillRequest struct {
	// GraceMS is the time between SIGTERM and SIGKILL, in milliseconds. 0 is SIGKILL at once.
	GraceMS int64 `json:"grace_ms"`
}

// PlaceRequest asks for a worker to take a thread. It travels on api.place, which one worker of all answers.
type PlaceRequest struct {
	// Thread is the conversation.
	Thread string `json:"thread"`
	// Provider is the kind of sandbox it needs; empty for the worker's own choice.
	Provider string `json:"provider,omitempty"`
}

// PlaceReply says who owns a thread now.
type PlaceReply struct {
	// Worker is the owner.
	Worker string `json:"worker,omitempty"`
	// Error says why nobody could take it.
	Error *Error `json:"error,omitempty"`
}

// StdinPiece is input for a running process. It travels on ctl.<thread>.<process>.stdin as raw bytes and headers.
type StdinPiece struct {
	// Offset is how many bytes of input came before.
	Offset int64
	// Data is the input.
	Data []byte
	// End closes the process's standard input after it.
	End bool
}
