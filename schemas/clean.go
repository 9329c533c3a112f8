package schemas

// CleanRequest asks a worker to clean up the processes of a thread that have ended, or to delete the output of one of them. It is sent on
// api.clean.
type CleanRequest struct {
	// Thread is the thread. Required.
	Thread string `json:"thread"`
	// Process is a process that has ended, whose output is deleted from LOG; its record stays, and so does it in lists. Default: no output is
	// deleted, and lists leave out all that have ended.
	Process string `json:"process,omitempty"`
}

// CleanReply is the answer to a CleanRequest.
type CleanReply struct {
	// Cleaned is how many processes lists leave out from now on, or 1 for the output that was deleted. Of two requests at once, both may count a
	// process.
	Cleaned int `json:"cleaned"`
	// Error is why nothing is cleaned up.
	Error *Error `json:"error,omitempty"`
}

// ProcessesCleaned says that lists leave out processes of a thread. Their records and their output stay.
type ProcessesCleaned struct {
	// Through is the sequence of EVT up to which an end is left out.
	Through uint64 `json:"through"`
	// Count is how many processes that adds.
	Count int `json:"count"`
}

// DecodeCleanRequest decodes and validates a request to clean up, as strictly as [DecodeCommand] and with the same errors.
func DecodeCleanRequest(body []byte) (*CleanRequest, error) {
	return decodeRequest("request to clean up", body, func(r *CleanRequest) error {
		return first(CheckID("thread", r.Thread), checkOptionalID("process", r.Process))
	})
}
