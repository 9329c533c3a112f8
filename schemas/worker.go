package schemas

// WorkerInfo is what is known of a worker, dead ones too. It is kept in the registry bucket.
type WorkerInfo struct {
	// ID is the worker's.
	ID string `json:"id"`
	// Incarnation is new at each start.
	Incarnation string `json:"incarnation"`
	// LowSeq is a sequence of EVT before which the worker left nothing unfinished: a recovery begins there.
	LowSeq uint64 `json:"low_seq"`
	// Providers are the kinds of sandbox it can make.
	Providers []string `json:"providers"`
	// Templates are the names of the templates it has.
	Templates []string `json:"templates,omitempty"`
}
